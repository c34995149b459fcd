"""The executor core: tasks, frames, versions, snapshots and acking, independent of Spark and Kafka.

Both transports run this code: the runtime on Spark and Kafka (``dskype.topology.runtime``), and the simulated log
(``dskype.topology.simulated``) that tests use.
"""
