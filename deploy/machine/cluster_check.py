"""Check a Spark cluster: whether its executors can run a topology."""

from __future__ import annotations

import contextlib
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dskype.deploy.machine.connection import Bootstrap, client_arguments, kafka_options
from dskype.deploy.machine.doctor import FAIL, OK, Row
from dskype.deploy.machine.spark_archive import existing_archive
from dskype.deploy.machine.spark_classes import spark_class_path

__all__ = ["check_cluster"]

_TIMEOUT_S = 60


def check_cluster(master: str, bootstrap: Bootstrap, conf: Mapping[str, Any], timeout_s: float = _TIMEOUT_S) -> list[Row]:
    """Start Spark on a master, and let each of its executors reach the brokers, and read and write a snapshot store there.

    :param bootstrap: named brokers; with none, the check fails.
    :param conf: ``spark.*`` and ``kafka.*`` settings.
    :param timeout_s: how long the master may take to provide a slot.
    """
    from kafka.errors import KafkaError

    from dskype.topology.errors import TopologyError
    from dskype.topology.runtime.driver.preflight import check_executors
    from dskype.topology.runtime.kafka.clients import KafkaSettings
    from dskype.topology.runtime.spark.session import start_session, stop_session
    from dskype.topology.runtime.stores.kafka_store import KafkaSnapshotStore

    if bootstrap.servers is None:
        return [Row("cluster", FAIL, f"brokers of {master} are not named", "add --bootstrap-servers HOST:PORT")]
    options = kafka_options(conf)
    kafka = KafkaSettings(bootstrap.servers, options, client_arguments(options))
    store = KafkaSnapshotStore(kafka, f"__dskype-doctor-{uuid.uuid4().hex[:8]}", 1)
    with tempfile.TemporaryDirectory(prefix="dskype-doctor-") as folder:
        spark = None
        try:
            settings = {k: str(v) for k, v in conf.items() if k.startswith("spark.")}
            found = spark_class_path()
            log = Path(folder) / "logs" / "spark.log"
            spark = start_session(master=master, jars=found, conf=settings, log_file=log, class_archive=existing_archive(found))
            store.create()
            hosts = check_executors(spark, store, kafka, timeout_s)
            slots = spark.sparkContext.defaultParallelism
        except (TopologyError, KafkaError) as error:
            text, _, fix = str(error).partition("hint: ")
            return [Row("cluster", FAIL, text.rstrip("; "), fix or "see the master's page and the logs of its workers")]
        finally:
            with contextlib.suppress(TopologyError, KafkaError):
                store.remove()
            if spark is not None:
                stop_session(spark)
    return [Row("cluster", OK, f"{master}: {slots} slots on {', '.join(hosts)}; brokers and state are reached from there, versions are equal")]
