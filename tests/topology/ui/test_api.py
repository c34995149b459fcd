"""Storm's REST API on a simulated cluster: each endpoint, its fields, and its numbers."""

from __future__ import annotations

import json

import pytest

from dskype.topology import TopologyBuilder
from dskype.topology.nimbus.observing import Contact
from dskype.topology.testing import FeederSpout

from .simulated_source import Client, SimulatedSource, word_count

ID = "words-1-1000000000"
WORDS = ["storm", "on", "spark!"]
LETTERS = sum(map(len, WORDS))
WINDOWS = ["600", "10800", "86400", ":all-time"]


@pytest.fixture(scope="module")
def source():
    source, feeder = SimulatedSource(), FeederSpout("word")
    conf = {"topology.workers": 2, "my.password": "secret", "topology.message.timeout.secs": 20}
    source.cluster.submit_topology("words", conf, word_count(feeder))
    for word in WORDS:
        feeder.feed([word], word)
    source.cluster.advance_cluster_time(90)
    yield source
    source.cluster.shutdown()


@pytest.fixture(scope="module")
def client(source):
    return Client(source)


def fields(row, names):
    assert set(names.split()) <= row.keys(), set(names.split()) - row.keys()


# --- the cluster ------------------------------------------------------------------------------------------------------


def test_cluster_configuration_has_what_pages_read(client):
    conf = client.get("cluster/configuration")
    assert conf["ui.title"] == "Storm UI" and conf["ui.pagination"] == 20


def test_cluster_summary(client):
    summary = client.get("cluster/summary")
    fields(
        summary,
        "supervisors slotsUsed slotsFree slotsTotal executorsTotal tasksTotal totalMem availMem fragmentedMem memAssignedPercentUtil totalCpu availCpu "
        "fragmentedCpu cpuAssignedPercentUtil totalGenerics availGenerics schedulerDisplayResource user bugtracker-url central-log-url stormVersionInfo",
    )
    fields(summary["stormVersionInfo"], "version url revision branch user date")
    assert (summary["supervisors"], summary["slotsUsed"], summary["tasksTotal"], summary["executorsTotal"]) == (1, 2, 9, 9)


def test_nimbus_summary_names_the_brokers(client):
    (nimbus,) = client.get("nimbus/summary")["nimbuses"]
    fields(nimbus, "host port status version nimbusUpTime nimbusLogLink")
    assert (nimbus["host"], nimbus["port"], nimbus["status"], nimbus["version"]) == ("127.0.0.1", 9092, "Leader", "1.2.3")


def test_topology_summary(client):
    (row,) = client.get("topology/summary")["topologies"]
    fields(
        row,
        "encodedId name owner status uptime workersTotal executorsTotal tasksTotal replicationCount assignedTotalMem assignedCpu "
        "assignedGenericResources schedulerInfo topologyVersion stormVersion",
    )
    assert (row["id"], row["name"], row["status"], row["uptime"], row["uptimeSeconds"]) == (ID, "words", "ACTIVE", "1m 30s", 90)
    assert (row["workersTotal"], row["executorsTotal"], row["tasksTotal"]) == (2, 9, 9)


def test_supervisors_are_the_machines_that_run_topologies(client):
    (row,) = client.get("supervisor/summary")["supervisors"]
    fields(row, "host id logLink uptime slotsTotal slotsUsed slotsFree usedMem totalMem availMem usedCpu totalCpu availCpu version blacklisted")
    fields(row, "totalGenericResources usedGenericResources availGenericResources")
    for query in ("id=here", "host=here"):
        page = client.get(f"supervisor?{query}")
        assert page["supervisors"] == [row] and [w["port"] for w in page["workers"]] == [6700, 6701]
    assert client.get("supervisor?id=elsewhere")["workers"] == []


def test_owners(client):
    (row,) = client.get("owner-resources")["owners"]
    fields(row, "owner totalTopologies totalExecutors totalWorkers totalMemoryUsage memoryGuarantee memoryGuaranteeRemaining totalCpuUsage cpuGuarantee")
    fields(row, "cpuGuaranteeRemaining isolatedNodes")
    assert (row["totalTopologies"], row["totalExecutors"], row["totalWorkers"]) == (1, 9, 2)
    page = client.get(f"owner-resources/{row['owner']}")
    assert page["owner"] == row["owner"] and [t["id"] for t in page["topologies"]] == [ID]


def test_history_and_workers(client):
    assert client.get("history/summary") == {"topo-history": [ID]}
    assert client.get(f"topology-workers/{ID}")["hostPortList"] == [{"host": "here", "port": 6700}, {"host": "here", "port": 6701}]


# --- a topology -------------------------------------------------------------------------------------------------------


def test_topology_page(client):
    page = client.get(f"topology/{ID}")
    fields(
        page,
        "id encodedId name owner status uptime workersTotal executorsTotal tasksTotal replicationCount msgTimeout debug samplingPct configuration "
        "schedulerDisplayResource requestedTotalMem requestedCpu assignedTotalMem assignedCpu windowHint",
    )
    assert (page["msgTimeout"], page["windowHint"], page["debug"]) == (20, "All time", False)
    assert page["configuration"]["my.password"] == "******" and page["configuration"]["topology.workers"] == 2
    assert [s["window"] for s in page["topologyStats"]] == WINDOWS
    for stats in page["topologyStats"]:
        fields(stats, "window windowPretty emitted transferred completeLatency acked failed")
        # Two trees are acked; the third breaks at its exclamation mark, and fails by its timeout.
        assert (stats["emitted"], stats["transferred"]) == (len(WORDS) + LETTERS + len(WORDS), len(WORDS) + LETTERS + len(WORDS))
        assert (stats["acked"], stats["failed"]) == (2, 1)
        assert stats["completeLatency"] == f"{float(stats['completeLatency']):.3f}"


def test_rows_of_spouts_and_bolts(client):
    page = client.get(f"topology/{ID}?window=600")
    (spout,) = page["spouts"]
    fields(spout, "spoutId encodedSpoutId executors tasks emitted transferred completeLatency acked failed errorHost errorPort errorTime errorLapsedSecs")
    fields(spout, "errorWorkerLogLink lastError requestedMemOnHeap requestedMemOffHeap requestedCpu")
    assert (spout["spoutId"], spout["emitted"], spout["acked"], spout["failed"], spout["lastError"]) == ("words", 3, 2, 1, "")
    bolts = {bolt["boltId"]: bolt for bolt in page["bolts"]}
    assert list(bolts) == ["count", "split", "sum"]
    for bolt in bolts.values():
        fields(bolt, "boltId encodedBoltId capacity executeLatency executed processLatency emitted transferred acked failed executors tasks lastError")
    assert [bolts[b]["executed"] for b in bolts] == [LETTERS, len(WORDS), len(WORDS)]
    assert bolts["split"]["emitted"] == LETTERS + len(WORDS) and bolts["count"]["emitted"] == 0
    assert (bolts["count"]["acked"], bolts["count"]["failed"]) == (LETTERS - 1, 0)
    assert (bolts["count"]["executors"], bolts["count"]["tasks"]) == (3, 3)
    assert bolts["count"]["lastError"] == "ValueError: <img src=x onerror=alert(1)> password=******"


@pytest.mark.parametrize("value", ["true", "1", "True"])
def test_system_components_are_shown_when_asked_for(client, value):
    page = client.get(f"topology/{ID}?sys={value}")
    assert [b["boltId"] for b in page["bolts"]] == ["__acker", "count", "split", "sum"]
    plain = client.get(f"topology/{ID}?sys=false")
    assert page["topologyStats"][0]["emitted"] > plain["topologyStats"][0]["emitted"]
    assert page["topologyStats"][0]["acked"] == plain["topologyStats"][0]["acked"]


def test_workers_of_a_topology(client):
    workers = client.get(f"topology/{ID}?sys=true")["workers"]
    for worker in workers:
        fields(worker, "host supervisorId port workerLogLink uptime uptimeSeconds executorsTotal assignedMemOnHeap assignedMemOffHeap assignedCpu topologyId")
    totals: dict[str, int] = {}
    for worker in workers:
        for component, n in worker["componentNumTasks"].items():
            totals[component] = totals.get(component, 0) + n
    assert totals == {"__acker": 2, "count": 3, "split": 2, "sum": 1, "words": 1}
    assert sum(w["executorsTotal"] for w in workers) == 9
    assert "__acker" not in client.get(f"topology/{ID}")["workers"][0]["componentNumTasks"]


def test_component_page_of_a_spout(client):
    page = client.get(f"topology/{ID}/component/words")
    fields(page, "id name encodedId encodedTopologyId topologyStatus componentType executors tasks windowHint debug samplingPct eventLogLink")
    fields(page, "profilingAndDebuggingCapable profileActionEnabled profilerActive")
    assert page["componentType"] == "spout" and "boltStats" not in page
    assert [s["window"] for s in page["spoutSummary"]] == WINDOWS and {s["acked"] for s in page["spoutSummary"]} == {2}
    (out,) = page["outputStats"]
    assert {k: out[k] for k in ("stream", "emitted", "transferred", "acked", "failed")} == {
        "stream": "default",
        "emitted": 3,
        "transferred": 3,
        "acked": 2,
        "failed": 1,
    }
    (executor,) = page["executorStats"]
    fields(executor, "id uptime host port workerLogLink emitted transferred completeLatency acked failed")
    assert executor["id"] == "[9-9]"


def test_component_page_of_a_bolt(client):
    page = client.get(f"topology/{ID}/component/split?window=10800")
    assert page["componentType"] == "bolt" and page["windowHint"] == "3h 0m 0s" and "spoutSummary" not in page
    (given,) = page["inputStats"]
    fields(given, "component stream executeLatency executed processLatency acked failed")
    assert (given["component"], given["stream"], given["executed"], given["acked"]) == ("words", "default", 3, 3)
    assert [(o["stream"], o["emitted"], o["transferred"]) for o in page["outputStats"]] == [("default", LETTERS, LETTERS), ("length 1", 3, 3)]
    assert [e["id"] for e in page["executorStats"]] == ["[6-6]", "[7-7]"]
    assert sum(e["executed"] for e in page["executorStats"]) == 3
    fields(page["executorStats"][0], "id uptime host port capacity executed executeLatency processLatency emitted transferred acked failed")


def test_errors_are_shown_as_they_are_without_secrets(client):
    (error,) = client.get(f"topology/{ID}/component/count")["componentErrors"]
    fields(error, "errorTime errorHost errorPort errorWorkerLogLink errorLapsedSecs error")
    assert "<img src=x onerror=alert(1)>" in error["error"] and "hidden" not in error["error"]
    assert error["errorPort"] in (6700, 6701) and 0 <= error["errorLapsedSecs"] <= 90


def test_visualization(client):
    graph = client.get(f"topology/{ID}/visualization")
    assert set(graph) == {"words", "split", "count", "sum"}
    for node in graph.values():
        fields(node, ":type :capacity :latency :transferred :link :inputs :stats")
        fields(node[":stats"][0], ":host :port :uptime_secs")
    assert graph["count"][":inputs"] == [{":component": "split", ":stream": "default", ":sani-stream": "default", ":grouping": "fields"}]
    assert graph["sum"][":inputs"] == [{":component": "split", ":stream": "length 1", ":sani-stream": "length__", ":grouping": "fields"}]
    assert graph["words"][":inputs"] == [] and graph["split"][":inputs"][0][":grouping"] == "shuffle"
    assert graph["split"][":transferred"][":all-time"] == {"default": LETTERS, "length__": 3}
    assert len(graph["count"][":stats"]) == 3
    assert "__acker" in client.get(f"topology/{ID}/visualization?sys=true")


def test_metrics_by_component_and_stream(client):
    found = client.get(f"topology/{ID}/metrics?window=86400")
    assert (found["window"], found["windowHint"]) == ("86400", "1d 0h 0m 0s")
    (spout,) = found["spouts"]
    fields(spout, "id emitted transferred acked failed complete_ms_avg")
    assert spout["emitted"] == [{"stream_id": "default", "value": 3}]
    bolts = {b["id"]: b for b in found["bolts"]}
    fields(bolts["count"], "id emitted transferred acked failed process_ms_avg executed executed_ms_avg")
    assert bolts["count"]["executed"] == [{"component_id": "split", "stream_id": "default", "value": LETTERS}]


def test_a_topology_without_kafka_spouts_has_no_lag(client):
    assert client.get(f"topology/{ID}/lag") == {}
    assert client.get(f"topology/{ID}/logconfig") == {"namedLoggerLevels": {}}


def test_the_lag_of_a_kafka_spout_is_the_way_to_the_end_of_its_topic(source):
    from dataclasses import replace

    from dskype.topology.ui.topology_answers import lag
    from dskype.topology.ui.view import Reports

    (view,) = source.topologies()
    reports = Reports()
    reports.stats.tasks[9] = {"component": "words", "task": 9, "kafka": [["in", 0, 50, 40], ["in", 1, 5, 5], ["gone", 0, 1, 1]]}
    view = replace(view, reports=reports, ends={("in", 0): 100, ("in", 1): 5})
    assert reports.positions() == {"read_uncommitted": {("in", 0): 50, ("in", 1): 5, ("gone", 0): 1}}
    assert lag(view)["words"] == {
        "spoutId": "words",
        "spoutType": "KAFKA",
        "spoutLagResult": {
            "in": {"0": {"logHeadOffset": 100, "consumerCommittedOffset": 40, "lag": 60}, "1": {"logHeadOffset": 5, "consumerCommittedOffset": 5, "lag": 0}}
        },
    }


# --- errors and safety ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("topology/nothing-1-1", "nothing-1-1 is not alive"),
        (f"topology/{ID}?window=60", "No such window. given: '60'; legal: 600, 10800, 86400, :all-time"),
        (f"topology/{ID}/component/nobody", "component 'nobody' is not part of topology 'words'"),
        ("topology/nothing-1-1/visualization", "is not alive"),
    ],
)
def test_errors_are_500_with_storms_json(client, path, words):
    status, headers, body = client.request("GET", f"/api/v1/{path}")
    answer = json.loads(body)
    assert (status, answer["error"]) == (500, "500 Server Error") and words in answer["errorMessage"]
    assert headers["content-type"].startswith("application/json")


def test_a_path_that_does_not_exist_is_json_too(client):
    for method, path in (("GET", "/api/v1/nothing"), ("POST", "/api/v1/topology/summary"), ("GET", f"/api/v1/topology/{ID}/kill/0")):
        status, _, body = client.request(method, path)
        assert status in (404, 405) and json.loads(body)["error"].startswith(str(status))


def test_every_answer_has_the_headers_that_keep_it_safe(client):
    for path in ("/", "/static/api.js", "/api/v1/cluster/summary", "/nothing", "/api/v1/nothing"):
        _, headers, _ = client.request("GET", path)
        assert "default-src 'none'" in headers["content-security-policy"] and "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"] == "no-cache, no-store"
        assert "access-control-allow-origin" not in headers and headers["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "", "127.0.0.1.evil.example"])
def test_a_foreign_name_reaches_nothing(client, host):
    status, _, body = client.request("GET", "/api/v1/cluster/summary", host=host)
    assert status == 400 and b"does not go by this name" in body
    assert client.request("GET", "/api/v1/cluster/summary", host="[::1]:8080")[0] == 200


def test_other_origins_and_jsonp_need_permission(source, client):
    status, _, body = client.request("GET", "/api/v1/cluster/summary?callback=f")
    assert status == 400 and b"JSONP is off" in body
    open_to_all = Client(source, origin="*")
    status, headers, body = open_to_all.request("GET", "/api/v1/history/summary?callback=f")
    assert (status, body) == (200, b'f({"topo-history": ["%s"]});' % ID.encode())
    assert headers["access-control-allow-origin"] == "*" and headers["content-type"].startswith("text/javascript")
    assert open_to_all.request("GET", "/api/v1/history/summary?callback=alert(1)//")[0] == 400


@pytest.mark.parametrize("name", ["..%2Fserver.py", "../server.py", "%2e%2e/view.py", "nothing.js", ".hidden"])
def test_only_the_files_of_the_pages_are_served(client, name):
    assert client.request("GET", f"/static/{name}")[0] == 404


@pytest.mark.parametrize("token", [None, "", "wrong", "open-sesame2"])
@pytest.mark.parametrize("path", ["activate", "deactivate", "kill/0", "rebalance/0", "debug/enable/10", "logconfig"])
def test_changes_need_the_token(client, source, path, token):
    before = len(source.sent)
    status, answer = client.post(f"topology/{ID}/{path}", token=token)
    assert (status, answer["error"]) == (401, "401 Unauthorized") and len(source.sent) == before


def test_a_long_body_is_refused(client):
    assert client.post(f"topology/{ID}/rebalance/0", {"x": "y" * 100_000})[0] == 413


# --- changes ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def running():
    source = SimulatedSource()
    source.cluster.submit_topology("words", {"topology.workers": 2}, word_count(FeederSpout("word")))
    source.cluster.advance_cluster_time(1)
    yield source, Client(source)
    source.cluster.shutdown()


def test_a_topology_is_deactivated_activated_rebalanced_and_killed(running):
    source, client = running

    def status():
        return [t["status"] for t in client.get("topology/summary")["topologies"]]

    assert client.post(f"topology/{ID}/deactivate") == (200, {"topologyOperation": "deactivate", "topologyId": ID, "status": "success"})
    assert status() == ["INACTIVE"]
    assert client.post(f"topology/{ID}/activate")[1]["topologyOperation"] == "activate"
    assert status() == ["ACTIVE"]
    body = {"rebalanceOptions": {"numWorkers": 1, "executors": {"count": 1}}}
    assert client.post(f"topology/{ID}/rebalance/0", body)[0] == 200
    source.cluster.advance_cluster_time(1)
    page = client.get(f"topology/{ID}")
    assert page["workersTotal"] == 1 and {b["boltId"]: (b["executors"], b["tasks"]) for b in page["bolts"]}["count"] == (1, 3)
    assert client.post(f"topology/{ID}/kill/5")[1] == {"topologyOperation": "kill", "topologyId": ID, "status": "success"}
    assert status() == ["KILLED"]
    assert client.post(f"topology/{ID}/activate")[0] == 500
    source.cluster.advance_cluster_time(6)
    assert status() == []


def test_the_token_of_old_clients_comes_in_another_header(running):
    _, client = running
    assert client.request("POST", f"/api/v1/topology/{ID}/deactivate", headers={"x-csrf-token": "open-sesame"})[0] == 200


@pytest.mark.parametrize("body", [[], {"rebalanceOptions": 1}, {"rebalanceOptions": {"numWorkers": "2"}}, {"rebalanceOptions": {"executors": {"count": "1"}}}])
def test_a_bad_rebalance_is_refused(running, body):
    source, client = running
    status, answer = client.post(f"topology/{ID}/rebalance/0", body)
    assert status == 500 and "legal:" in answer["errorMessage"] and not source.sent


def test_storms_own_refusals_come_through(running):
    _, client = running
    status, answer = client.post(f"topology/{ID}/rebalance/0", {"rebalanceOptions": {"executors": {"nobody": 2}}})
    assert status == 500 and "Invalid component nobody for topology words" in answer["errorMessage"]
    assert client.post(f"topology/{ID}/kill/soon")[0] == 500


def test_debugging_is_switched_for_a_topology_and_for_a_component():
    source = SimulatedSource()
    source.cluster.submit_topology("words", {"topology.eventlogger.executors": 1}, word_count(FeederSpout("word")))
    client = Client(source)
    assert client.post(f"topology/{ID}/debug/enable/10") == (200, {"topologyOperation": "debug/enable", "topologyId": ID, "status": "success"})
    assert client.post(f"topology/{ID}/component/count/debug/enable/2.5")[0] == 200
    shown = [client.get(f"topology/{ID}{path}") for path in ("", "/component/count", "/component/words")]
    assert [(page["debug"], page["samplingPct"]) for page in shown] == [(True, 10), (True, 2.5), (True, 10)]
    assert client.post(f"topology/{ID}/component/count/debug/disable/0")[0] == 200
    assert client.get(f"topology/{ID}/component/count")["debug"] is False
    for path, words in (("debug/enable/ten", "must be a number"), ("debug/on/10", "switched on or off"), ("debug/enable/101", "between 0 and 100")):
        status, answer = client.post(f"topology/{ID}/{path}")
        assert status == 500 and words in answer["errorMessage"]
    source.cluster.shutdown()


@pytest.mark.parametrize("path", ["debug/enable/10", "component/count/debug/disable/0"])
def test_debugging_needs_event_loggers(running, path):
    _, client = running
    status, answer = client.post(f"topology/{ID}/{path}")
    assert status == 500 and "has no event loggers" in answer["errorMessage"]


@pytest.mark.parametrize("path", ["logconfig", "profiling/start/here:6700/1"])
def test_what_is_not_here_is_refused_by_name(running, path):
    _, client = running
    status, answer = client.post(f"topology/{ID}/{path}")
    assert status == 500 and answer["errorMessage"].startswith("This is not part of the emulator: ")


def test_names_with_blanks_are_found_encoded_and_plain():
    source = SimulatedSource()
    builder = TopologyBuilder()
    builder.set_spout("my words é", FeederSpout("word"))
    source.cluster.submit_topology("word count", {}, builder.create_topology())
    client = Client(source)
    (row,) = client.get("topology/summary")["topologies"]
    assert row["encodedId"] == "word+count-1-1000000000"
    for id in (row["id"], row["encodedId"]):
        (spout,) = client.get(f"topology/{id}")["spouts"]
        assert spout["encodedSpoutId"] == "my+words+%C3%A9"
        for component in (spout["spoutId"], spout["encodedSpoutId"]):
            assert client.get(f"topology/{id}/component/{component}")["id"] == "my words é"
    source.cluster.shutdown()


def test_records_that_cannot_be_read_are_ignored(running):
    source, client = running
    (view,) = source.topologies()
    for value in (b"", b"null", b"[]", b"{", b'{"kind": "stats"}', b'{"kind": "stats", "topology": "x", "time_ms": 1, "tasks": 5}', None):
        view.reports.feed(value)
    assert client.get(f"topology/{ID}")["id"] == ID


def test_a_topology_of_a_version_that_writes_no_plan_has_a_page_without_components(running):
    from dataclasses import replace

    from dskype.topology.ui.topology_answers import topology_page
    from dskype.topology.ui.windows import ALL_TIME

    (view,) = running[0].topologies()
    for plan in (None, [], {"x": {}}, {"x": {"kind": "bolt", "executors": [[1]], "inputs": [], "streams": []}}):
        page = topology_page(replace(view, record={**view.record, "plan": plan}), ALL_TIME, "1")
        assert page["spouts"] == page["bolts"] == page["workers"] == []


# --- health -----------------------------------------------------------------------------------------------------------


def health(client):
    status, _, body = client.request("GET", "/api/ui/health")
    assert status == 200
    return json.loads(body)


@pytest.fixture
def changed(source):
    """The source, which is as before after the test."""
    before = source.answer, source.silent_s
    yield source
    source.answer, source.silent_s = before


def test_the_server_says_that_all_is_well_only_after_it_has_just_heard_so(changed, client):
    found = health(client)
    assert found["brokers"]["answer"] is True and found["problems"] == []
    assert [(t["id"], t["health"]["state"]) for t in found["topologies"]] == [(ID, "running")]


def test_a_driver_that_writes_nothing_is_a_problem_of_every_page(changed, client):
    changed.silent_s = 33.0
    (problem,) = health(client)["problems"]
    assert "Topology words is silent: its process has written nothing for 33 s" in problem["what"] and problem["topology"] == ID
    assert changed.cluster.now_ms() - problem["sinceMs"] == 33_000
    for row in (*client.get("topology/summary")["topologies"], client.get(f"topology/{ID}")):
        assert row["health"]["state"] == "silent" and "submit the topology again" in row["health"]["why"][1]


def test_nothing_is_said_to_run_and_no_broker_to_lead_while_the_brokers_do_not_answer(changed, client):
    assert client.get("nimbus/summary")["nimbuses"][0]["status"] == "Leader"
    changed.answer = Contact(False, 1_000, 20.0)
    assert [n["status"] for n in client.get("nimbus/summary")["nimbuses"]] == ["Offline"]
    (row,) = client.get("topology/summary")["topologies"]
    assert row["health"]["state"] == "unknown" and "have not answered for 20 s" in row["health"]["why"][0]
    (problem,) = health(client)["problems"]
    assert problem == {
        "state": "unknown",
        "what": "The brokers have not answered for 20 s. Are they up, and does the network reach them? What is shown is from that time. "
        "The pages go on by themselves when the brokers answer.",
        "sinceMs": 1_000,
        "topology": None,
        "numbersOld": True,
    }
    assert client.post(f"topology/{ID}/deactivate")[0] == 500 and "The brokers do not answer" in client.post(f"topology/{ID}/deactivate")[1]["errorMessage"]


def test_reports_that_are_old_are_said_to_be_so(changed, client, monkeypatch):
    newest = changed.reports["words"][0].stats.newest_ms()
    monkeypatch.setattr(changed.reports["words"][0].stats, "newest_ms", lambda: changed.cluster.now_ms() - 42_000)
    (problem,) = health(client)["problems"]
    assert "have reported nothing for 42 s" in problem["what"] and problem["numbersOld"] and newest is not None
    assert client.get(f"topology/{ID}")["reportAgeSeconds"] == 42


def test_a_topology_without_ackers_says_so(client):
    assert client.get(f"topology/{ID}")["ackers"] is True and client.get(f"topology/{ID}/component/count")["ackers"] is True
    source = SimulatedSource()
    try:
        source.cluster.submit_topology("bare", {"topology.acker.executors": 0}, word_count(FeederSpout("word")))
        id = source.topologies()[0].id
        assert Client(source).get(f"topology/{id}")["ackers"] is False
    finally:
        source.cluster.shutdown()
