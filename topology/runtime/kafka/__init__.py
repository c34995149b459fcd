"""Clients of Kafka: settings, security, topics, reading and writing. They know nothing of topologies, and any process may use them."""
