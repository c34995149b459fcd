"""A short run of the fault suite on Spark and Kafka; ``make chaos`` runs longer ones."""

from __future__ import annotations

import pytest

from dskype.deploy.lab.chaos.report import as_table
from dskype.deploy.lab.chaos.run import run

pytestmark = pytest.mark.product(seconds=90)


def test_a_seeded_run_loses_nothing_and_repeats_nothing(capfd):
    result = run(
        "chain",
        132,  # draws short strikes
        10,
        rate=100,
        faults=["overload", "disk-full"],
        strikes=2,
        patience_s=300,
        command="make chaos",
        progress=lambda text: print(text, flush=True),
    )
    print(as_table(result))
    assert result.ok, as_table(result)
    assert {o.faults.split(" + ")[0] for o in result.outcomes} == {"overload", "disk-full"} and result.records > 1_000


def test_all_clients_work_again_after_brokers_or_they_themselves_stood_still(capfd):
    result = run(
        "dskype",
        1,
        10,
        rate=50,
        faults=["pause-broker", "pause-clients"],
        strikes=2,
        patience_s=300,
        pause_s=5,
        command="make chaos CHAOS_ARGS='--topology dskype --faults pause-broker,pause-clients --pause 5'",
        progress=lambda text: print(text, flush=True),
    )
    print(as_table(result))
    assert result.ok, as_table(result)
    assert {o.faults for o in result.outcomes} == {"pause-broker", "pause-clients"} and all(o.client and o.clients_s for o in result.outcomes)
