"""``dskype version``: print versions."""

from __future__ import annotations

import argparse
import json

from dskype.deploy.cli.arguments import common, output
from dskype.deploy.machine.versions import installed_version, own_version


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    common(parser, kafka=False)
    output(parser)


def run(args: argparse.Namespace) -> int:
    """Print the versions of this product and of the packages that it runs on."""
    import platform

    found = {"dskype": own_version(), "python": platform.python_version()}
    found.update((package, installed_version(package, "missing")) for package in ("pyspark", "kafka-python", "numpy", "numba", "pyarrow"))
    if args.output == "json":
        print(json.dumps(found, indent=2))
    else:
        print("\n".join(f"{name} {number}" for name, number in found.items()))
    return 0
