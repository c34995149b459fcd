"""Which balancer and which meter a distributor has, for ``dskype.balance: auto``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from dskype.bolts.balancing.balancer import Balancer
from dskype.bolts.balancing.evaluator import Evaluator
from dskype.bolts.balancing.load_adjuster import LoadAdjuster
from dskype.bolts.balancing.partition_balancer import PartitionBalancer
from dskype.bolts.balancing.workload_meter import LoadMeter, WorkloadMeter
from dskype.bolts.placement.epochs import Epochs
from dskype.bolts.protocol.balance import BalanceMessage, HandedOver
from dskype.distribution import distributor_class, distributor_of_plan
from dskype.distribution.hybrid.distributor import HybridDistributor
from dskype.spouts.settings import Settings

__all__ = ["make_balancer", "make_meter"]


def make_balancer(settings: Settings, epochs: Epochs, write: Callable[[bytes], None], context: Any, sources: int) -> Balancer:
    """Return what decides for the subscription tasks.

    :param write: writes a record to the topic of plans.
    :param sources: number of distribution tasks.
    """
    assert settings.balance is not None
    if issubclass(distributor_class(settings.distributor), HybridDistributor):
        return LoadAdjuster(settings.balance, epochs, write, context, sources)
    return PartitionBalancer(settings.balance, epochs, write, context)


def make_meter(
    settings: Settings, index: int, tasks: int, send: Callable[[BalanceMessage], None], hand_over: Callable[[int, HandedOver], None]
) -> WorkloadMeter:
    """Return what measures the work of a subscription task.

    :param index: of the task; ``tasks``: how many subscription tasks there are.
    :param send: sends a message to the distribution task that balances; ``hand_over``: sends costs to another subscription task.
    """
    assert settings.balance is not None
    if issubclass(distributor_class(settings.distributor), HybridDistributor):
        return LoadMeter(index, settings.balance, send)
    return Evaluator(index, settings.balance, partial(distributor_of_plan, settings, tasks), send, hand_over)
