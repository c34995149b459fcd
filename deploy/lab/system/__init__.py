"""Measurements of the whole system on Spark and Kafka: throughput, latency, moves, clusters, and the processes that do the work."""
