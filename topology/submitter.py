"""``StormSubmitter``: the entry point of a program that builds a topology and submits it, as ``storm jar`` and ``storm local`` run it.

.. code-block:: python

    # wordcount.py: run it with "dskype local wordcount.py NAME" or "dskype submit wordcount.py NAME"
    def main(args):
        builder = TopologyBuilder()
        ...
        StormSubmitter.submit_topology(args[0] if args else "word-count", Config(), builder.create_topology())
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from dskype.topology.errors import IllegalArgumentException, TopologyError
from dskype.topology.model import StormTopology

__all__ = ["StormSubmitter", "Submission", "SubmitOptions", "collecting"]


class SubmitOptions(NamedTuple):
    """How a topology starts.

    :ivar initial_status: ACTIVE or INACTIVE; an inactive one opens nothing before it is activated.
    """

    initial_status: str = "ACTIVE"


_ACTIVE = SubmitOptions()


class Submission(NamedTuple):
    """What a program has submitted."""

    name: str
    conf: dict[str, Any]
    topology: StormTopology
    active: bool


_submissions: ContextVar[list[Submission] | None] = ContextVar("submissions", default=None)


@contextmanager
def collecting() -> Iterator[list[Submission]]:
    """Collect what is submitted within the ``with`` block, for the command that runs it."""
    submissions: list[Submission] = []
    token = _submissions.set(submissions)
    try:
        yield submissions
    finally:
        _submissions.reset(token)


class StormSubmitter:
    """Submits topologies."""

    @staticmethod
    def submit_topology(name: str, conf: Mapping[str, Any] | None, topology: StormTopology, options: SubmitOptions = _ACTIVE) -> None:
        """Submit a topology to the command that runs this program; it starts when the program returns.

        :param name: its name.
        :param conf: its configuration; options ``-c`` of the command override it.
        :param topology: the result of ``create_topology``.
        :param options: whether it starts active.
        :raises TopologyError: the program was not started by ``dskype local`` or ``dskype submit``.
        :raises IllegalArgumentException: not a topology, or no such status.
        """
        submissions = _submissions.get()
        if submissions is None:
            raise TopologyError(
                "Must submit topologies using the 'dskype' command, so that StormSubmitter knows where to run them.",
                given=name,
                hint="dskype local FILE.py, or dskype submit FILE.py; within a program: LocalCluster",
            )
        if not isinstance(topology, StormTopology):
            raise IllegalArgumentException("Not a topology.", given=topology, hint="builder.create_topology()")
        if options.initial_status not in ("ACTIVE", "INACTIVE"):
            raise IllegalArgumentException("No such status.", given=options.initial_status, legal="ACTIVE, INACTIVE")
        submissions.append(Submission(name, dict(conf or {}), topology, options.initial_status == "ACTIVE"))

    submit_topology_with_progress_bar = submit_topology
    """The same: there is nothing to upload."""
