"""Top-k subscriptions: indexes that find the subscriptions a message concerns, and buffers of their results."""
