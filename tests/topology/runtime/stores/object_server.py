"""A server with the interface of S3 on this machine: SeaweedFS, from a package."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from dskype.deploy.machine.broker import free_ports
from dskype.deploy.machine.processes import spawn_tied
from tests.waiting import wait_for

_KEY, _SECRET = "key", "secret"


@contextlib.contextmanager
def object_server(folder: Path) -> Iterator[dict[str, str]]:
    """Run a server with a bucket ``states``, and yield the environment with which clients reach it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "s3.json").write_text(
        json.dumps(
            {"identities": [{"name": "test", "credentials": [{"accessKey": _KEY, "secretKey": _SECRET}], "actions": ["Admin", "Read", "Write", "List"]}]}
        )
    )
    ports = free_ports(8)
    names = ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc", "s3.port", "s3.port.grpc")
    options = [f"-{name}={port}" for name, port in zip(names, ports)]
    url = f"http://127.0.0.1:{ports[6]}"
    with open(folder / "log", "wb") as log:
        process = spawn_tied(
            [
                str(Path(sys.executable).parent / "weed"),
                "server",
                "-ip=127.0.0.1",
                "-ip.bind=127.0.0.1",
                f"-dir={folder}",
                "-filer",
                "-s3",
                f"-s3.config={folder / 's3.json'}",
                "-master.volumeSizeLimitMB=64",
                "-volume.max=50",
                "-s3.port.iceberg=0",  # of two servers, one would end, because these ports are fixed
                "-s3.port.lance=0",
                "-master.telemetry=false",
                *options,
            ],
            env={**os.environ, "HOME": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
        )
    environment = {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": _KEY,
        "AWS_SECRET_ACCESS_KEY": _SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    try:
        wait_for(lambda: _answers(url), 60, "the object server")
        with _set(environment):
            from s3fs import S3FileSystem

            files = S3FileSystem(skip_instance_cache=True)
            wait_for(lambda: _made(files, "states"), 60, "the bucket")
        yield environment
    finally:
        process.kill()
        process.wait()


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=2).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def _made(files, bucket: str) -> bool:
    try:
        files.mkdir(bucket)
        files.pipe_file(f"{bucket}/first", b"x")
        files.rm_file(f"{bucket}/first")
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _set(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
