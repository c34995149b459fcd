"""``dskype localconfvalue`` and ``dskype remoteconfvalue``: print a configuration value. Both read this machine's configuration."""

from __future__ import annotations

import argparse
import json

from dskype.deploy.cli.arguments import common, file_conf


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    common(parser, kafka=False)
    parser.add_argument("key", metavar="KEY")


def run(args: argparse.Namespace) -> int:
    """Print the value, with secrets redacted."""
    from dskype.topology.config import DEFAULTS
    from dskype.topology.core.redaction import redact

    conf = {**DEFAULTS, **file_conf(args), **dict(args.conf)}
    value = redact({args.key: conf.get(args.key)})[args.key]
    print(f"{args.key}: {value if isinstance(value, str) else json.dumps(value)}")
    return 0
