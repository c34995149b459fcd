"""Benchmarks of the emulator; each module prints a table: ``python -m dskype.deploy.benchmarks.emulator.chain --help``."""
