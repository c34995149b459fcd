"""Verification: compare what a topology published with a brute-force oracle that replays its input.

The oracle shares no rule with the topology: how records, words and expressions are read, weights, scores, windows and ranking are implemented a second time, without
any index. It takes the topology's settings, its classes for what has been read, and the ceiling of costs.
:func:`verify` is a pure function of the topics' records; ``dskype verify`` reads them from Kafka.

>>> from dskype.spouts.settings import Settings
>>> verify(Inputs(), Settings(), final=True).ok
True
"""

from dskype.deploy.verification.check import verify
from dskype.deploy.verification.inputs import INPUT_TOPICS, Inputs, Record
from dskype.deploy.verification.report import Difference, Report

__all__ = ["INPUT_TOPICS", "Difference", "Inputs", "Record", "Report", "verify"]
