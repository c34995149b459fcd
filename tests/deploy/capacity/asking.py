"""Asks ``dskype advise`` about a topology that runs on Spark, as a user would who asks again when there are no figures yet."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from dskype.deploy.cli.main import main

NO_FIGURES = ("has reported within", "figures of now")
"""What the command says when a topology has just started, and when no task has reported on a busy machine while it watched."""


def asker(name: str, kafka: Any, capsys: Any) -> Callable[..., dict[str, Any]]:
    """Return a function that takes more arguments of the command and returns what it prints as JSON; without figures it says only that nothing is advised."""

    def advise(*more: str) -> dict[str, Any]:
        capsys.readouterr()
        code = main(["advise", name, "--seconds", "6", "-o", "json", *more, "--bootstrap-servers", kafka.bootstrap_servers])
        printed, said = capsys.readouterr()
        assert code == 0 or any(text in said for text in NO_FIGURES), said
        return json.loads(printed) if code == 0 else {"advice": []}

    return advise
