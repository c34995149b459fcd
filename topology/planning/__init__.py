"""From what the user declared to the plan of tasks, executors and workers: checks, what the system adds, and the plan."""
