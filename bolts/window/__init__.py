"""The sliding window of messages: top-k queries at an exact past watermark."""
