"""Message windows, which answer top-k queries exactly as of a past watermark."""
