"""Storm's starter topologies, written for this emulator: each module is a program (``dskype local FILE.py``)."""
