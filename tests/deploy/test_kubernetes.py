"""The manifests for Kubernetes: valid by the classes of the client that comes with Spark, whole, and with a command line that exists."""

from __future__ import annotations

import re
import subprocess
import zipfile
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
from dskype.deploy.metrics.ui_server import UiSettings, serve
from dskype.topology.nimbus.observing import Contact

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"


def documents() -> list[dict[str, Any]]:
    """Return all manifests, with the template of executor pods."""
    found = [d for d in yaml.safe_load_all((FOLDER / "dskype.yaml").read_text()) if d]
    templates = [yaml.safe_load(text) for d in found if d["kind"] == "ConfigMap" for name, text in d["data"].items() if name.endswith(".yaml")]
    return found + templates


def of_kind(kind: str) -> dict[str, dict[str, Any]]:
    return {d["metadata"].get("name", ""): d for d in documents() if d["kind"] == kind}


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


def test_every_field_is_one_of_kubernetes_and_has_its_type(cluster):
    serialization = cluster.environment.spark._jvm.io.fabric8.kubernetes.client.utils.Serialization
    wrong = []
    for document in documents():
        read = serialization.unmarshal(yaml.safe_dump(document))  # raises where a value has another type
        assert read.getClass().getSimpleName() == document["kind"], "a kind that the client does not know becomes a generic one"
        wrong += unknown_fields(document, read, document["kind"])
    assert not wrong
    damaged = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "a", "imagee": "b"}]}}
    assert unknown_fields(damaged, serialization.unmarshal(yaml.safe_dump(damaged)), "Pod") == ["Pod.spec.containers[0].imagee"]


def test_what_manifests_refer_to_is_there():
    pods = {**of_kind("StatefulSet"), **of_kind("Deployment")}
    accounts = of_kind("ServiceAccount")
    for owner in pods.values():
        template = owner["spec"]["template"]
        labels = template["metadata"]["labels"]
        assert owner["spec"]["selector"]["matchLabels"].items() <= labels.items()
        spec = template["spec"]
        assert spec.get("serviceAccountName", "dskype") in accounts
        volumes = {v["name"]: v for v in spec.get("volumes", ())}
        for container in spec["containers"]:
            assert {m["name"] for m in container.get("volumeMounts", ())} <= volumes.keys()
            named = {e["name"] for e in container["env"]}
            assert set(re.findall(r"\$\((\w+)\)", " ".join(container["args"]))) <= named
            assert container["securityContext"]["allowPrivilegeEscalation"] is False and spec["securityContext"]["runAsNonRoot"] is True
        assert {v["configMap"]["name"] for v in volumes.values() if "configMap" in v} <= of_kind("ConfigMap").keys()
    for name, service in of_kind("Service").items():
        owner = pods[name]["spec"]["template"]
        assert service["spec"]["selector"].items() <= owner["metadata"]["labels"].items()
        ports = {p["name"] for c in owner["spec"]["containers"] for p in c["ports"]}
        assert {p.get("targetPort", p["name"]) for p in service["spec"]["ports"]} <= ports
    (binding,) = of_kind("RoleBinding").values()
    assert binding["roleRef"]["name"] in of_kind("Role") and binding["subjects"][0]["name"] in accounts
    (budget,) = of_kind("PodDisruptionBudget").values()
    assert budget["spec"]["selector"]["matchLabels"] == of_kind("StatefulSet")["dskype-driver"]["spec"]["selector"]["matchLabels"]
    assert len({e["value"] for p in pods.values() for c in p["spec"]["template"]["spec"]["containers"] for e in c["env"] if e["name"] == "KAFKA"}) == 1


def test_the_commands_of_the_pods_are_commands():
    known = {command.name for group in COMMANDS.values() for command in group}
    for owner in {**of_kind("StatefulSet"), **of_kind("Deployment")}.values():
        (container,) = owner["spec"]["template"]["spec"]["containers"]
        assert container["args"][0] == "dskype" and container["args"][1] in known
        words = [re.sub(r"\$\(\w+\)", "b:1", word) for word in container["args"][1:]]
        args = _parser().parse_args(words)
        assert args.bootstrap_servers == "b:1"
        if args.verb == "submit":
            conf = dict(args.conf)
            assert args.standby and conf["spark.driver.host"] == "b:1" and conf["topology.workers"] == conf["spark.executor.instances"] == 2


def test_the_pages_answer_their_probes_and_go_by_the_names_that_reach_them():
    (container,) = of_kind("Deployment")["dskype-ui"]["spec"]["template"]["spec"]["containers"]
    args = _parser().parse_args([word.replace("$(KAFKA)", "127.0.0.1:1").replace("$(POD_IP)", "10.1.2.4") for word in container["args"][1:]])
    (port,) = container["ports"]
    assert args.port == port["containerPort"] and args.allow_origin is None
    settings = UiSettings(args.host, 0, names=tuple(args.allow_host), allow_remote=args.allow_remote)
    away = Contact(False, None, 60.0)  # the pages serve while brokers are away, too: a probe that failed then would end them
    with serve(SimpleNamespace(topologies=list, contact=lambda: away), settings, lambda text: None) as server:
        for probe in (container["readinessProbe"]["httpGet"], container["livenessProbe"]["httpGet"]):
            headers = {header["name"]: header["value"] for header in probe["httpHeaders"]}
            with urlopen(Request(f"{server.url}{probe['path'].lstrip('/')}", headers=headers), timeout=10) as answer:
                assert answer.status == 200
        for host in ("dskype-ui:8080", "10.1.2.4:8080", "127.0.0.1:8080", "localhost:1234"):
            urlopen(Request(server.url, headers={"Host": host}), timeout=10).close()
        for host in ("10.1.2.3:8080", "evil.example"):
            with pytest.raises(HTTPError, match="400"):
                urlopen(Request(server.url, headers={"Host": host}), timeout=10)


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
    template = next(d for d in documents() if d["kind"] == "Pod")
    (container,) = template["spec"]["containers"]
    assert container["command"] == ["/opt/dskype/deploy/kubernetes/executor.sh"], "where the image has the repository"
    assert (FOLDER / "executor.sh").stat().st_mode & 0o111
