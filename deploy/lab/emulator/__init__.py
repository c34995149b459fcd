"""Benchmarks of the emulator; each module prints a table: ``python -m dskype.deploy.lab.emulator.chain --help``."""
