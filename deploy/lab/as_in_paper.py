"""``--as-in-paper``: the settings and sizes of the papers' own experiments, as data."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from dskype.deploy.lab.experiments import Experiment

__all__ = ["AS_IN_PAPER", "Preset", "add_preset_argument", "with_settings"]


@dataclass(frozen=True)
class Preset:
    """What a paper sets.

    :ivar sizes: option -> the paper's number, of which a run has a share.
    :ivar options: option -> value.
    :ivar settings: field of the settings of rows -> value, where an experiment does not vary it.
    :ivar besides: what else is as in the paper, or is not.
    """

    sizes: Mapping[str, int]
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    besides: str = ""

    def __str__(self) -> str:
        own = [f"--{name.replace('_', '-')} {value}" for name, value in self.options.items()] + [f"{name} = {value}" for name, value in self.settings.items()]
        sizes = ", ".join(f"{name.replace('_', '-')} {number:,}" for name, number in self.sizes.items())
        return "; ".join(part for part in (", ".join(own), f"of these sizes a share: {sizes}", self.besides) if part)


AS_IN_PAPER: Mapping[str, Preset] = {
    "skype": Preset({"subscriptions": 1_000_000, "window": 1_000_000, "arrivals": 100_000, "warm_up": 3_000_000}, besides="warm-up: three windows"),
    "distribution": Preset(
        {"subscriptions": 1_000_000, "window": 1_000_000, "arrivals": 100_000, "warm_up": 3_000_000},
        settings={"index": "igpt"},
        besides="warm-up: three windows; 32 tasks",
    ),
    "boolean": Preset({"subscriptions": 10_000_000}, besides="GI2's grid lies over the messages"),
    "tornado": Preset({"subscriptions": 10_000_000}, settings={"units": 10}, besides="FAST; GI2's grid lies over the messages"),
    "ps2stream": Preset(
        {"subscriptions": 5_000_000},
        {"index": "gi2"},
        {"workers": 8},
        "GI2's grid lies over the messages; the paper has 5 million subscriptions of Q1, and 10 million of Q2 and Q3",
    ),
}
"""Action of ``dskype bench`` -> preset."""


def add_preset_argument(parser: argparse.ArgumentParser, name: str) -> None:
    """Add the option ``--as-in-paper``; options behind it win."""
    preset = AS_IN_PAPER[name]
    parser.add_argument(
        "--as-in-paper",
        metavar="SHARE",
        nargs="?",
        const=1.0,
        type=_share,
        action=_Set,
        preset=preset,
        help=f"the paper's setting: {preset}. SHARE: above 0, at most 1, the default. Options behind it win",
    )


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"expected a share of the paper's sizes, above 0, at most 1; given: {text!r}")
    return value


class _Set(argparse.Action):
    def __init__(self, *args: Any, preset: Preset, **options: Any) -> None:
        super().__init__(*args, **options)
        self._preset = preset

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None) -> None:
        setattr(namespace, self.dest, values)
        namespace.row_settings = dict(self._preset.settings)
        for name, value in self._preset.options.items():
            setattr(namespace, name, value)
        for name, number in self._preset.sizes.items():
            setattr(namespace, name, max(1, round(number * values)))


def with_settings(experiments: Sequence[Experiment], args: argparse.Namespace) -> list[Experiment]:
    """Return experiments with the settings that ``--as-in-paper`` has for their rows, each where the experiment does not vary it."""
    return [_changed(experiment, getattr(args, "row_settings", {})) for experiment in experiments]


def _changed(experiment: Experiment, settings: Mapping[str, Any]) -> Experiment:
    rows = list(experiment.rows)
    for name, value in settings.items():
        having = [row for row in rows if name in {one.name for one in fields(row.setting)}]
        if len({repr(getattr(row.setting, name)) for row in having}) == 1:
            rows = [replace(row, setting=replace(row.setting, **{name: value})) if row in having else row for row in rows]
    return replace(experiment, rows=rows)
