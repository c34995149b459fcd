"""What a subscription task does with its subscriptions: the strategies of the subscription bolt, see :mod:`dskype.bolts.protocol`."""
