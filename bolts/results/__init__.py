"""Where results go: the record formats, and the stores they are written to."""
