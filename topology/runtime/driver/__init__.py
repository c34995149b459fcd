"""The driver of one topology: it starts, watches, restarts and ends everything else, and only it does so."""
