"""Planning: checks of a declared topology, the parts that the system adds, and the plan of tasks, executors and workers."""
