"""``dskype version``: print versions."""

from __future__ import annotations

import argparse
import json

from dskype.deploy.cli.arguments import common, output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    common(parser, kafka=False)
    output(parser)


def run(args: argparse.Namespace) -> int:
    """Print the versions of this product and of the packages that it runs on."""
    import platform

    found = {"dskype": own_version(), "python": platform.python_version()}
    found.update((package, _version_of(package, "missing")) for package in ("pyspark", "kafka-python", "numpy", "numba", "pyarrow"))
    if args.output == "json":
        print(json.dumps(found, indent=2))
    else:
        print("\n".join(f"{name} {number}" for name, number in found.items()))
    return 0


def own_version() -> str:
    """Return the version of this product."""
    return _version_of("dskype", "unknown")


def _version_of(package: str, otherwise: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return otherwise
