"""Verification: what a topology published, against a brute-force oracle that replays its input.

The oracle shares parsing and weights with the topology, and nothing else: scores, windows and ranking are written a second time, without
any index. :func:`verify` is a pure function of the topics' records; ``dskype verify`` reads them from Kafka.

>>> from dskype.spouts.settings import Settings
>>> verify(Inputs(), Settings(), final=True).ok
True
"""

from dskype.deploy.verification.check import verify
from dskype.deploy.verification.inputs import INPUT_TOPICS, Inputs, Record
from dskype.deploy.verification.report import Difference, Report

__all__ = ["INPUT_TOPICS", "Difference", "Inputs", "Record", "Report", "verify"]
