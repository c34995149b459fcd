"""The processes beside Spark's on each host: Spark's Python daemon forks the supervisor, and the supervisor the executors. None outlives its parent."""
