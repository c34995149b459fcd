"""The command line: the table of commands, what they share, and one module for each in ``commands/``."""
