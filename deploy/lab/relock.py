"""Write the lock file of the jars again, for a new Spark or Kafka version: ``python -m dskype.deploy.lab.relock``, which ``make relock`` calls."""

from __future__ import annotations

import tempfile
from pathlib import Path

from dskype.deploy.machine.jars import KAFKA_VERSION, MANIFEST, SETS, run_ivy, scala_version, sha256_of, spark_home, spark_version

__all__ = ["relock"]

_LOG_BINDING = "log4j-slf4j-impl"
"""Connects Kafka's logging API with Log4j; Kafka's dependencies have both, but not this. Its version is that of Kafka's log4j-core."""


def relock(path: Path = MANIFEST) -> None:
    """Resolve the dependencies of both sets and write the lock file. Maintainers call this for a new Spark or Kafka version, and review the changes.

    Jars that Spark ships (the same file name in its ``jars`` folder) are left out of the connector's set.
    """
    scala = scala_version()
    shipped = {p.name for p in (spark_home() / "jars").glob("*.jar")}
    text = ["# Checksums of the jars that are fetched: sha256  group:artifact:version. Written by make relock."]
    with tempfile.TemporaryDirectory() as temp:
        closures = {}
        for name, roots in (
            ("spark", [("org.apache.spark", f"spark-sql-kafka-0-10_{scala}", spark_version())]),
            ("broker", [("org.apache.kafka", f"kafka_{scala}", KAFKA_VERSION)]),
        ):
            closures[name] = _resolve(name, roots, Path(temp) / name)
        log4j = next(v for g, a, v in closures["broker"] if a == "log4j-core")
        binding = ("org.apache.logging.log4j", _LOG_BINDING, log4j)
        closures["broker"].update(_resolve("binding", [binding], Path(temp) / "binding", only={binding}))
        for name in SETS:
            text.append(f"\n# [{name}]")
            for (group, artifact, version), file in sorted(closures[name].items()):
                if name == "broker" or f"{artifact}-{version}.jar" not in shipped:
                    text.append(f"{sha256_of(file)}  {group}:{artifact}:{version}")
    path.write_text("\n".join(text) + "\n", encoding="utf-8")


def _resolve(name: str, roots: list[tuple[str, str, str]], work: Path, only: set[tuple[str, str, str]] | None = None) -> dict[tuple[str, str, str], Path]:
    run_ivy(name, roots, work, work / "lib", transitive=only is None)
    result = {}
    cached = {p.stem: p for p in (work / "cache").rglob("jars/*.jar")} | {p.stem: p for p in (work / "cache").rglob("bundles/*.jar")}
    for stem, p in cached.items():
        group, artifact = p.parent.parent.parent.name, p.parent.parent.name
        key = (group, artifact, stem.removeprefix(artifact + "-"))
        kept = work / "lib" / f"{group}_{stem}.jar"
        if kept.exists() and (only is None or key in only):
            result[key] = kept
    return result


if __name__ == "__main__":
    relock()
