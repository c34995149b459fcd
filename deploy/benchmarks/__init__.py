"""Benchmarks: of the emulator, of the whole system (``dskype bench throughput``), and of the papers' experiments."""
