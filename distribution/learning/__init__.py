"""Learning plans: samples of messages and subscriptions, and cutting places and words into parts of equal cost."""
