"""What it takes to run on this machine: Java, jars, folders, a broker, Spark, compiled kernels."""
