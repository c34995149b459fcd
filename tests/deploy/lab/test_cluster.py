"""The benchmark of clusters: the topology that it asks for, and its table."""

from dskype.deploy.cli.main import main
from dskype.deploy.lab.system import cluster

from .reported import parsed


def test_it_asks_for_the_topology_that_it_needs():
    asked = cluster._throughput_arguments(parsed(cluster, "--subscriptions", "300", "--tasks", "5", "-c", "x=1"))
    assert dict(asked.tasks) == {"subscription-bolt": 5} and asked.subscriptions == [300] and asked.conf == [("x", 1)]
    assert asked.results == "deltas" and asked.verify == 50 and asked.latency_rate == 500
    assert parsed(cluster, "--workers", "1,4").workers == [1, 4]


def one_row(rate, executors, **more):
    component = {"frames_per_message": 0.25, "metrics_per_message": {"deltas": 8.5}}
    process = {"cpu_us_per_message": 50.0, "processes": 2, "rss_bytes": 3 << 30, "pss_bytes": 2 << 30}
    return {
        "messages_per_s": rate,
        "all_active_s": 3.2,
        "processes": {"Spark (JVM)": process, "broker": {**process, "cpu_us_per_message": 7.0}},
        "components": dict.fromkeys(cluster._COMPONENTS, component),
        "streams": [{"tuples_per_message": 6.0, "bytes_per_message": 130.0}, {"tuples_per_message": 0.5, "bytes_per_message": None}],
        "latency": {"first_p50_ms": 240.0, "first_p99_ms": None},
        "executors": executors,
        "executors_started": 12,
        "verified": {"ok": True},
        **more,
    }


def test_a_row_without_a_master_is_what_others_are_compared_with(capsys):
    rows = {"no master": one_row(1000.0, []), "2 workers": one_row(800.0, [5, 6], verified={"ok": False})}
    shown = {line[0].strip(): line[1:] for line in cluster._figures(rows)}
    assert shown["messages/s"] == ["1,000", "800"] and shown["against no master"] == ["1.00", "0.80"]
    assert shown["us of processor time per message"] == ["57", "57"] and shown["Spark (JVM)"] == ["50.0", "50.0"]
    assert shown["tuples between components per message"] == ["6.50", "6.50"] and shown["frames per message"] == ["1.000", "1.000"]
    assert shown["first result p99 ms"] == ["-", "-"] and shown["executors on each worker"] == ["-", "5, 6"]
    assert shown["memory GiB (PSS)"] == ["4.0", "4.0"] and shown["verified"] == ["equal", "DIFFERENT"]
    cluster._print({"rows": rows})
    assert "2 workers" in capsys.readouterr().out


def test_wrong_arguments_are_refused():
    assert main(["bench", "cluster", "--workers", "0"]) == 2
