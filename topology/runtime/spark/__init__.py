"""What asks Spark for anything: its session, its executors, and the query of each component with the Java classes that the query needs."""
