"""Real-time queries on Spark: every record passes through Spark, whose own reports agree with what tasks have processed, also where Spark's batches end."""

from __future__ import annotations

import json
from collections import Counter

from dskype.topology.config import Config
from dskype.topology.planning.plan import inbox_topic
from tests.waiting import wait_for

from ..components import sum_chain, sums_expected
from ..helpers import make_topic, output

TOTAL, RATE = 12_000, 800


def test_sparks_reports_count_what_tasks_have_processed_and_its_batches_change_nothing(cluster, name):
    kafka = cluster.environment.kafka
    out = make_topic(kafka, f"{name}-out")
    topology, conf = sum_chain(out, TOTAL, RATE)
    conf |= {Config.TOPOLOGY_EMULATOR_TRANSPORT: "real-time", Config.TOPOLOGY_EMULATOR_REAL_TIME_BATCH_SECS: 5}
    with cluster.submit_topology(name, conf, topology) as handle:
        driver = handle.backend
        assert driver._queries.transports.real_time == set(driver.plan.component_ids)
        driver.wait_until(lambda stats: stats.total("sink", "executed") >= TOTAL, 120, "the last tuple at the sink")
        bolts = [c for c in driver.plan.component_ids if not driver.plan.spec(c).is_spout]

        def versions(component):
            """Return the next offset of each inbox partition, as the tasks report it."""
            return {str(driver.plan.task_index(t)): driver.stats.tasks[t]["version"] for t in driver.plan.component_tasks(component)}

        def reported(component):
            """Return the rows of all batches, and where the last one ended, as Spark reports it."""
            reports = driver._queries._queries[component]._query.recentProgress
            ends = reports[-1].sources[0].endOffset if reports else "{}"
            return len(reports), sum(report.numInputRows for report in reports), ends

        for component in bolts:
            ended, rows, ends = wait_for(
                lambda c=component: (found := reported(c))[1] == sum(versions(c).values()) > 0 and found, 30, f"a report about all records of {component}"
            )
            assert ended > 1 and versions(component) == json.loads(ends)[inbox_topic(name, component)]
        assert Counter(r.value for r in output(kafka, out).values()) == sums_expected(TOTAL)
        assert not driver.state.reports.restarts
