"""A comparison of the indexes of top-k subscriptions, and the costs of the whole engine, with many subscriptions over a full window."""
