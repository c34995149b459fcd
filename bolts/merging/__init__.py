"""Which results are published, and when: the strategies of the result bolt, see :mod:`dskype.bolts.protocol`."""
