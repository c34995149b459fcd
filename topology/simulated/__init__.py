"""The simulated transport: topologies on an in-memory log with simulated time, for tests.

It runs the same executor core as Spark and Kafka do, in one process and one thread, and can crash,
repeat, cut and delay batches as a seed says. See :class:`~dskype.topology.simulated.engine.SimulatedTopology`.
"""
