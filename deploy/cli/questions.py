"""The options that say what a subscription or a search is about."""

from __future__ import annotations

import argparse
from typing import Any

from dskype.deploy.cli.arguments import UsageError, degrees, json_value, positive

__all__ = ["boolean_options", "question_fields", "topk_options"]


def topk_options(group: Any) -> None:
    """Add those of the best messages, without the words."""
    group.add_argument("--near", metavar="LAT,LON", type=degrees("LAT,LON"))
    group.add_argument("-k", metavar="K", type=positive, help="how many; default: 10")
    group.add_argument("--alpha", metavar="A", type=float, help="weight of nearness against words, 0 to 1; default: 0.5")
    group.add_argument("--distance", choices=("degrees", "metres"), help="what nearness is measured in; default: degrees, over the diagonal of the data space")
    group.add_argument("--scale-m", metavar="M", type=float, help="with --distance metres: nearness counts up to M metres")
    group.add_argument("--where", metavar="E", help="an expression that messages have to satisfy, e.g. 'price < 5 AND NOT decaf'")


def boolean_options(group: Any) -> None:
    """Add those of every message that matches."""
    group.add_argument("--expression", metavar="E", help="""e.g. 'coffee AND NOT decaf AND (wifi OR "late night")'; default: every message in the rectangle""")
    group.add_argument("--bbox", metavar="W,S,E,N", type=degrees("WEST,SOUTH,EAST,NORTH"), help="default: everywhere")
    group.add_argument(
        "--circle",
        metavar="LAT,LON,METRES",
        type=degrees("LAT,LON,METRES", "in degrees and metres"),
        help="everything within METRES of a place, in place of --bbox",
    )
    group.add_argument("--region", metavar="JSON", type=json_value, help="a GeoJSON Polygon or MultiPolygon, a circle, or a list of these, in place of --bbox")


def question_fields(args: argparse.Namespace) -> dict[str, Any]:
    """Return the fields that these options give: those of a record."""
    names = ("k", "alpha", "distance", "scale_m", "where", "expression", "bbox", "region")
    fields = {name: value for name in names if (value := getattr(args, name)) is not None}
    if args.circle is not None:
        if args.region is not None:
            raise UsageError("expected --circle or --region; given: both")
        lat, lon, radius_m = args.circle
        fields["region"] = {"center": {"lat": lat, "lon": lon}, "radius_m": radius_m}
    if args.near is not None:
        fields["lat"], fields["lon"] = args.near
    return fields
