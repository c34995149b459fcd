"""What running topologies report: read, kept over time, measured, shown and served."""
