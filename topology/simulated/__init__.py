"""The simulated transport: topologies on an in-memory log with simulated time, for tests.

It runs the same executor core as the runtime on Spark and Kafka, in one process and one thread. By a seed, it can crash,
repeat, cut and delay batches. See :class:`~dskype.topology.simulated.engine.SimulatedTopology`, and with faults :class:`~dskype.topology.simulated.faulty.FaultyTopology`.
"""
