"""Where subscriptions and messages go: the strategies of the distribution bolt, see :mod:`dskype.bolts.protocol`."""
