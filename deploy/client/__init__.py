"""A client of a running DSkype: subscriptions, messages, results, plans of the distribution."""
