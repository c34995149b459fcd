"""Boolean subscriptions: a rectangle and a keyword expression."""
