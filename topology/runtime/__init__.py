"""What runs topologies on Spark and Kafka, in rooms of which each imports only those before it.

``kafka``, ``stores``, ``transport``, ``processes``, ``spark``, ``nimbus``, ``driver``: the docstring of each says what it promises.
"""
