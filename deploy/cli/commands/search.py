"""``dskype search``: ask once what a subscription would have found in the window."""

from __future__ import annotations

import argparse
import contextlib
import json
from typing import Any

from dskype.deploy.cli.arguments import UsageError, client_options, open_client, output, positive_seconds
from dskype.deploy.cli.questions import boolean_options, question_fields, topk_options
from dskype.deploy.machine.terminal import clean, counted, put, say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    client_options(parser)
    parser.add_argument("text", nargs="?", metavar="TEXT", help="the words to look for; the best messages are found, near a place with --near")
    parser.add_argument("--wait", metavar="SECS", type=positive_seconds, default=10, help="how long to wait for the answer; default: 10")
    parser.add_argument("--no-text", dest="texts", action="store_false", help="do not look up the texts of messages")
    output(parser)
    topk_options(parser.add_argument_group("the best messages of the window"))
    boolean_options(parser.add_argument_group("the newest messages that match, and how many there are"))


def run(args: argparse.Namespace) -> int:
    """Print the answer."""
    fields = question_fields(args)
    best = [name for name in ("text", "near", "alpha", "distance", "scale_m", "where") if getattr(args, name) is not None]
    newest = [name for name in ("expression", "bbox", "region", "circle") if getattr(args, name) is not None]
    if bool(best) == bool(newest):
        given = "both" if best else "neither"
        raise UsageError(f"expected TEXT with --near, --alpha, --distance, --scale-m, --where; or --expression, --bbox, --circle, --region; given: {given}")
    with open_client(args) as client:
        answer = client.search(args.text, timeout_s=args.wait, **fields)
        if args.output == "json":
            put(json.dumps(answer.as_json(), ensure_ascii=False))
            return 0
        put(*_lines(answer, _texts(client, answer) if args.texts else {}, client.settings.half_life_ms))
        found = counted(len(answer.matches), "message")
        say(f"{found if answer.total is None else f'{found} of {answer.total:,}'}, as of watermark {answer.watermark}")
    return 0


def _texts(client: Any, answer: Any) -> dict[str, str]:
    """Return id (as JSON) -> text, of messages whose texts are found quickly, unless results carry fields in their place."""
    from dskype.deploy.cli.result_lines import Texts

    if client.settings.result_fields is not None or not answer.matches:
        return {}
    with contextlib.closing(Texts(client)) as texts:
        return texts.find(match.message for match in answer.matches)


def _lines(answer: Any, texts: dict[str, str], half_life_ms: float | None) -> list[str]:
    from dskype.deploy.cli.result_lines import carried_text, of_object
    from dskype.deploy.client.records import score_left

    lines = []
    for rank, match in enumerate(answer.matches, 1):
        score = "" if match.score is None else f"{score_left(match.score, answer.watermark, half_life_ms):.6f}  "
        place = "" if match.lat is None else f"{match.lat:.5f},{match.lon:.5f}"
        text = carried_text(match.carried.get("fields")) or texts.get(json.dumps(match.message), "")
        lines.append(f"{rank:>4}  {score}{of_object(match.object)}{clean(match.message, 60)}  {place}  {text}".rstrip())
    return lines
