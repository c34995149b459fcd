"""The transport in micro-batches, the fallback where Spark has too few task slots for real-time queries."""
