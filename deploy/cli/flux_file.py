"""The file of ``dskype local`` and ``dskype submit``, mostly one of Flux: options, loading, and the dry run."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from dskype.deploy.cli.arguments import Ignored, UsageError, common, file_conf, split, target
from dskype.deploy.machine.cluster import Target
from dskype.deploy.machine.registry import TOPOLOGIES, registry
from dskype.deploy.machine.terminal import say
from dskype.deploy.machine.versions import own_version

__all__ = ["add_arguments", "add_printing", "dry_run", "load"]

_IGNORED: dict[int | str | None, tuple[str, ...]] = {
    0: ("-l --local", "-r --remote"),
    "?": ("--java-debug",),
    None: (
        "-s --sleep",
        "-z --zookeeper",
        "--local-zookeeper",
        "--jars",
        "--artifacts",
        "--artifactRepositories",
        "--mavenLocalRepositoryDirectory",
        "--proxyUrl",
        "--proxyUsername",
        "--proxyPassword",
        "--storm-server-classpath",
    ),
}
"""Options of ``storm`` without a meaning here, by how many values they take (``nargs``)."""


def add_arguments(parser: argparse.ArgumentParser, cluster: bool = True) -> None:
    """Add Flux's options and the common ones. Options of Storm without a meaning here are accepted and ignored.

    :param cluster: also add those that name brokers and a Spark master; without them, the broker is an embedded one.
    """
    common(parser, kafka=cluster)
    parser.add_argument(
        "file",
        nargs="*",
        metavar="FILE",
        help="one Flux YAML file, or a Python file: of a streamparse topology, or with a function main(args), followed by args",
    )
    parser.add_argument("--environment", metavar="NAME", help="of a streamparse topology: the environment whose parallelism to use")
    parser.add_argument("-d", "--dry-run", action="store_true", help="build and describe the topology without running it")
    parser.add_argument("-f", "--filter", metavar="FILE", help="a .properties file with values for ${key}")
    parser.add_argument("-e", "--env-filter", action="store_true", help="replace ${ENV-NAME} by environment variables")
    parser.add_argument("-i", "--inactive", action="store_true", help="start the topology inactive")
    add_printing(parser)
    parser.add_argument("-R", "--resource", action="store_true", help="FILE is one of those that come with dskype, e.g. wordcount.yaml")
    parser.add_argument("--allow-module", metavar="M", action="append", default=[], help="let the file name classes of this module; repeatable")
    parser.add_argument(
        "--allow-commands", action="store_true", help="let the file start programs: components in other languages (FluxShellSpout, FluxShellBolt)"
    )
    if cluster:
        parser.add_argument("--master", metavar="URL", help="Spark master; default: this machine (local[*])")
    else:
        parser.set_defaults(bootstrap_servers="embedded", kafka=[], master=None)
    ignored = parser.add_argument_group("options of storm that are accepted and ignored")
    for nargs, options in _IGNORED.items():
        for flags in options:
            ignored.add_argument(*flags.split(), nargs=nargs, action=Ignored, help=argparse.SUPPRESS, default=None)


def add_printing(parser: argparse.ArgumentParser) -> None:
    """Add Flux's options that change what is printed, and nothing else."""
    parser.add_argument("-n", "--no-splash", action="store_true", help="no opening line")
    parser.add_argument("-q", "--no-detail", action="store_true", help="no details of the topology, which --dry-run and --verbose print")


def load(args: argparse.Namespace) -> tuple[Any, Target]:
    """Load the Flux file; print its details in a dry run, and if they are asked for.

    :returns: the topology, and where to run it.
    :raises UsageError: the arguments do not name exactly one file.
    :raises FluxException: the file cannot be loaded, or has settings that need a permission.
    """
    from dskype.deploy.cli import python_file

    program = bool(args.file) and python_file.is_python_file(args.file[0]) and not args.resource
    if args.file and args.file[0].endswith(".jar"):
        raise UsageError(
            f"expected a Flux file or a Python file, given: {args.file[0]}; Java does not run here: write main(args) in Python (docs/guides/storm.md)"
        )
    if not args.file or (len(args.file) > 1 and not program):
        raise UsageError(f"expected exactly one FILE, given: {len(args.file)}")
    from dskype.topology import config as storm_config
    from dskype.topology import flux as flux_files

    file = args.file[0]
    if args.allow_module:
        # At the end of the path: a module here must not shadow an installed one.
        sys.path += [p for p in (os.getcwd(), str(Path(file).resolve().parent)) if p not in sys.path]
    if not args.no_splash:
        say(f"dskype {own_version()}: Storm topologies on Spark and Kafka")
    detailed = (args.dry_run or args.verbose) and not args.no_detail
    if detailed:
        say(f"Parsing {'resource' if args.resource else 'file'}: {file if args.resource else os.path.abspath(file)}")
    below, _ = split(file_conf(args))
    above, _ = split(dict(args.conf))
    if program:
        flux, active = python_file.load(file, args.environment, above, args.file[1:])
        args.inactive = args.inactive or not active
    else:
        flux = flux_files.load(
            file,
            properties=args.filter,
            environ=os.environ if args.env_filter else None,
            allow_modules=args.allow_module,
            allow_commands=args.allow_commands,
            registry=registry(),
            resources=[TOPOLOGIES],
            resource=args.resource,
            config=above,
            trusted={**below, **target(args).conf},
        )
    in_file, settings = split(flux.config)
    flux.config = {**below, **in_file}
    storm_config.validate(flux.config)
    for warning in flux.warnings:
        say(f"warning: {warning}")
    if detailed:
        print(flux.describe(), flush=True)
    return flux, target(args, settings)


def dry_run(flux: Any) -> int:
    """Print why a submission would be refused. The dry run succeeds all the same, as in Storm."""
    from dskype.deploy.machine.launch import tell_warnings
    from dskype.topology.errors import TopologyError
    from dskype.topology.planning.validation import validate_submission

    try:
        flux.check_runnable()
        tell_warnings(flux.topology, validate_submission(flux.name, flux.config, flux.topology), say)
    except TopologyError as ex:
        say(f"note: a submission would be refused: {ex}")
    return 0
