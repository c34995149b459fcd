"""How records reach an executor and leave it: Spark's sockets, the loop that processes batches, the writer, and the lease on each task."""
