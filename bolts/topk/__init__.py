"""Top-k subscriptions: indexes that find the subscriptions a message matters to, and buffers of their results."""
