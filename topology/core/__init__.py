"""The executor core: tasks, frames, versions, snapshots and acking, free of Spark and of Kafka.

Both transports run this code: the Spark and Kafka runtime (``dskype.topology.runtime``), and the
simulated log (``dskype.topology.simulated``) that tests use.
"""
