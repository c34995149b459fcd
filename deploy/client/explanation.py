"""Why a message does or does not match a boolean subscription, or what it scores for a top-k or threshold subscription: the parts of the answer, and as text.

Scores come from the functions that the indexes use (:mod:`dskype.spouts.score_kernels`) and from the vocabulary, so they are those of the results, to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dskype.deploy.client.content import Content
from dskype.deploy.client.expression_parts import explain_expression, expression_lines
from dskype.deploy.client.place import Place, borders_between, distance_km
from dskype.deploy.machine.terminal import clean, clock_text, counted
from dskype.spouts import score_kernels
from dskype.spouts.records import Message
from dskype.spouts.subscriptions import BooleanSubscription, ThresholdSubscription, TopkSubscription
from dskype.spouts.vocabulary import Vocabulary

__all__ = ["add_time_score", "as_lines", "explain_boolean", "explain_list", "explain_scores"]

_EVERYWHERE = [-180.0, -90.0, 180.0, 90.0]


def explain_boolean(subscription: BooleanSubscription, message: Message, content: Content) -> dict[str, Any]:
    """Say whether a message matches a boolean subscription, and why.

    :param content: of the message.
    :returns: ``type``, ``matches``, ``rectangle`` (``bbox``, ``place``: [lat, lon] or None, ``area`` or None, ``inside``, and ``outside``: a map ``border``,
        ``by_deg`` and ``by_km`` of each border that lies between the two), ``region`` (None if neither of the two has one; else ``inside``, ``subscription`` and
        ``message``: what they are in words, and ``distance_m`` from the message's point to the centre if the subscription's is a circle, else None) and ``expression``
        (:func:`~dskype.deploy.client.expression_parts.explain_expression`).
    """
    area = message.bbox
    outside = borders_between(subscription.bbox, message)
    region = Place(subscription).explain_region(message)
    expression = explain_expression(subscription.expression, content)
    return {
        "type": "boolean",
        "matches": not outside and (region is None or region["inside"]) and expression["satisfied"],
        "rectangle": {
            "bbox": list(subscription.bbox),
            "place": None if area else [message.lat, message.lon],
            "area": list(area) if area else None,
            "inside": not outside,
            "outside": outside,
        },
        "region": region,
        "expression": expression,
    }


def explain_scores(
    subscription: TopkSubscription | ThresholdSubscription,
    message: Message,
    tokens: Sequence[str],
    vocabulary: Vocabulary,
    diagonal_deg: float,
    content: Content | None = None,
) -> dict[str, Any]:
    """Say what a message scores for a top-k or threshold subscription, and of which parts the score is made.

    :param tokens: of the message's text.
    :param diagonal_deg: of the data space.
    :param content: of the message; it may be None if the subscription has no ``where``.
    :returns: ``type``, ``where`` (as ``expression`` of :func:`explain_boolean`; None: the subscription has none), ``score`` (None without a common word: such a message enters no list, and does not match), ``alpha``, ``k`` (or ``min_score`` and ``matches``), ``place`` (``subscription`` and ``message``: [lat, lon],
        ``area`` or None, ``distance_deg``, ``distance_km``, ``diagonal_deg``, ``scale_m`` (None: nearness is measured in degrees), ``ssim``) and ``words`` (``common``: maps ``word``, ``df``, ``subscription``, ``message``
        (their weights) and ``product``; ``missing``: maps ``word`` and ``df``; ``documents`` of the vocabulary, ``tsim``).
    """
    wanted, weights = _weights(subscription.keywords, vocabulary)
    found = dict(zip(*_weights(tokens, vocabulary)))
    of_id = dict(zip(vocabulary.ids(subscription.keywords).tolist(), subscription.keywords))
    df = dict(zip(wanted, vocabulary.df(wanted).tolist()))
    common, missing, textual = [], [], 0.0
    for term, weight in zip(wanted, weights):  # in rising order of the terms, as indexes add them up
        if term in found:
            textual += weight * found[term]
            common.append({"word": of_id[term], "df": df[term], "subscription": weight, "message": found[term], "product": weight * found[term]})
        else:
            missing.append({"word": of_id[term], "df": df[term]})
    area = message.bbox
    dx, dy = message.lon - subscription.lon, message.lat - subscription.lat
    if subscription.scale_m is None:
        spatial = float(score_kernels.ssim(dx, dy, diagonal_deg))
    else:
        spatial = float(score_kernels.ssim_in_metres(subscription.lat, subscription.lon, message.lat, message.lon, subscription.scale_m))
    where = None if subscription.where is None or content is None else explain_expression(subscription.where, content)
    score = float(score_kernels.score(subscription.alpha, spatial, textual)) if common else None
    if isinstance(subscription, TopkSubscription):
        limit: dict[str, Any] = {"k": subscription.k}
    else:
        limit = {
            "min_score": subscription.min_score,
            "matches": score is not None and score >= subscription.min_score and (where is None or where["satisfied"]),
        }
    return {
        "type": "topk" if "k" in limit else "threshold",
        "where": where,
        "score": score,
        "alpha": subscription.alpha,
        **limit,
        "place": {
            "subscription": [subscription.lat, subscription.lon],
            "message": [message.lat, message.lon],
            "area": list(area) if area else None,
            "distance_deg": math.hypot(dx, dy),
            "distance_km": distance_km(subscription.lat, subscription.lon, message.lat, message.lon),
            "diagonal_deg": diagonal_deg,
            "scale_m": subscription.scale_m,
            "ssim": spatial,
        },
        "words": {"common": common, "missing": missing, "documents": vocabulary.documents, "tsim": textual},
    }


def add_time_score(explained: dict[str, Any], time_ms: int, half_life_ms: float) -> None:
    """Add ``time_ms``, ``half_life_ms`` and ``time_score``, which ranks in place of the score of a top-k subscription with a half-life, to what :func:`explain_scores` returned."""
    if explained["score"] is not None and "k" in explained:
        explained |= {
            "time_ms": time_ms,
            "half_life_ms": half_life_ms,
            "time_score": float(score_kernels.time_score(explained["score"], time_ms, half_life_ms)),
        }


def explain_list(
    explained: Mapping[str, Any],
    message: str | int | None,
    entries: Sequence[tuple[str | int, float]],
    watermark: int,
    position: int | None = None,
    extent: int | None = None,
) -> dict[str, Any]:
    """Say where a message stands in a published top-k list, or what keeps it out.

    :param explained: what :func:`explain_scores` returned.
    :param message: the message's id; None: it has not been published.
    :param entries: (message id, score) of the list, best first.
    :param position: where the message stands for the window, and ``extent`` of the window; None: not known.
    :returns: ``watermark``, ``position``, ``size``, ``rank`` (None: not in the list), ``threshold`` (the score of the last entry of a full list, else None), ``would_be``
        (the rank that its score would have now; None: none) and ``reason``: ``listed``, ``no common word``, ``filtered`` (it does not satisfy the filter), ``below the threshold``, ``left the window``,
        ``came later``, ``not in the window`` (one of these two), ``not published`` or ``due`` (it will be in the next list).
    """
    score, full = explained.get("time_score", explained["score"]), len(entries) >= explained["k"]
    rank = next((i for i, (id, _) in enumerate(entries, 1) if message is not None and id == message), None)
    threshold = entries[-1][1] if full and entries else None
    would_be = None if score is None or (threshold is not None and score < threshold) else 1 + sum(value > score for _, value in entries)
    if rank is not None:
        reason = "listed"
    elif score is None:
        reason = "no common word"
    elif explained["where"] is not None and not explained["where"]["satisfied"]:
        reason, would_be = "filtered", None
    elif message is None:
        reason = "below the threshold" if would_be is None else "not published"
    elif position is not None and position > watermark:
        reason = "came later"
    elif position is not None and extent is not None and position <= watermark - extent:
        reason = "left the window"
    elif would_be is None:
        reason = "below the threshold"
    else:
        reason = "not in the window" if position is None else "due"
    return {"watermark": watermark, "position": position, "size": len(entries), "rank": rank, "threshold": threshold, "would_be": would_be, "reason": reason}


# -- parts --------------------------------------------------------------------------------------------------------------


def _weights(words: Sequence[str], vocabulary: Vocabulary) -> tuple[list[int], list[float]]:
    terms, weights = vocabulary.weigh(words)
    return terms.tolist(), weights.tolist()


# -- as text ------------------------------------------------------------------------------------------------------------


def as_lines(explained: Mapping[str, Any], subscription: str, message: str) -> list[str]:
    """Return an explanation as lines of text: the answer first, then its parts.

    :param explained: what :func:`explain_boolean` or :func:`explain_scores` returned; ``list``, ``times`` and ``notes`` are shown if they are there.
    :param subscription: what to call it, and ``message`` alike: ``message 17``.
    """
    lines = _boolean_lines(explained, subscription, message) if explained["type"] == "boolean" else _score_lines(explained, subscription, message)
    return lines + [f"note: {clean(note)}" for note in explained.get("notes", ())]


def _boolean_lines(explained: Mapping[str, Any], subscription: str, message: str) -> list[str]:
    rectangle, expression = explained["rectangle"], explained["expression"]
    lines = [f"{message} {'matches' if explained['matches'] else 'does not match'} {subscription}", ""]
    where = f"the area {_numbers(rectangle['area'])}" if rectangle["area"] else f"the place {_numbers(rectangle['place'])}"
    bbox = f"the rectangle {_numbers(rectangle['bbox'])}"
    if rectangle["bbox"] == _EVERYWHERE:
        lines.append(f"rectangle   yes   {where}: it asks for no rectangle, so every place will do")
    elif rectangle["inside"]:
        lines.append(f"rectangle   yes   {where} {'overlaps' if rectangle['area'] else 'is in'} {bbox}")
    else:
        lines.append(f"rectangle   no    {where} {'does not overlap' if rectangle['area'] else 'is outside'} {bbox}:")
        for border in rectangle["outside"]:
            across = border["by_deg"] > 180
            km = f"{border['by_km']:,.3g} km{' across the antimeridian' if across else ''}"
            beyond = "; west > east would cross the antimeridian" if across else ""
            lines.append(f"                  it lies {border['by_deg']:.6g} degrees ({km}) {border['border']} of the {border['border']} border{beyond}")
    if explained["region"] is not None:
        lines.append(_region_line(explained["region"]))
    return lines + expression_lines("expression", expression) + _time_lines(explained)


def _time_lines(explained: Mapping[str, Any]) -> list[str]:
    return [f"time        {_yes(time['held'])}   {clean(time['text'])}" for time in explained.get("times", ())]


def _region_line(region: Mapping[str, Any]) -> str:
    distance = "" if region["distance_m"] is None else f", {region['distance_m']:,.1f} m from its centre"
    return f"region      {_yes(region['inside'])}   {region['message']} is {'in' if region['inside'] else 'outside'} {region['subscription']}{distance}"


def _yes(held: bool) -> str:
    return "yes" if held else "no "


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.10g}" for value in values)


def _score_lines(explained: Mapping[str, Any], subscription: str, message: str) -> list[str]:
    place, words, alpha, score = explained["place"], explained["words"], explained["alpha"], explained["score"]
    where = explained["where"]
    head = "has no word in common with" if score is None else f"scores {score:.6f} for"
    if where is not None and not where["satisfied"]:
        head = "does not satisfy the filter of"
    if "min_score" in explained:
        head = "matches" if explained["matches"] else "does not match"
    lines = [f"{message} {head} {subscription}", ""]
    centre = f", the centre of the area {_numbers(place['area'])}," if place["area"] else ""
    lines.append(
        f"place   {_numbers(place['message'])}{centre} is {place['distance_deg']:.6g} degrees ({place['distance_km']:,.4g} km) from {_numbers(place['subscription'])}"
    )
    if place["scale_m"] is None:
        parts = place["distance_deg"], place["diagonal_deg"], f"the diagonal of the space is {place['diagonal_deg']:.6g}"
    else:
        parts = (
            min(place["distance_km"] * 1000, place["scale_m"]),
            place["scale_m"],
            f"the scale is {place['scale_m']:.6g} m; what is farther counts as that far",
        )
    lines.append(f"        SSim = 1 - {parts[0]:.6g} / {parts[1]:.6g} = {place['ssim']:.6f} ({parts[2]})")
    if words["common"]:
        width = max(4, *(len(clean(w["word"], 30)) for w in words["common"]))
        lines.append(f"words   {'word':<{width}}  {'in texts':>10}  {'subscription':>12}  {'message':>8}  {'product':>8}")
        lines += [
            f"        {clean(w['word'], 30):<{width}}  {w['df']:>10,}  {w['subscription']:>12.6f}  {w['message']:>8.6f}  {w['product']:>8.6f}"
            for w in words["common"]
        ]
        lines.append(
            f"        TSim = the sum of the products = {words['tsim']:.6f} (rare words weigh more; the vocabulary is of {counted(words['documents'], 'text')})"
        )
    if words["missing"]:
        lines.append(f"        not in the message: {', '.join(clean(w['word'], 30) for w in words['missing'])}")
    if score is not None:
        lines.append(f"score   {alpha:g} * {place['ssim']:.6f} + {1 - alpha:g} * {words['tsim']:.6f} = {score:.6f}")
        if "time_score" in explained:
            halves, when = explained["half_life_ms"] / 1000, clock_text(explained["time_ms"], True)
            lines.append(
                f"        with its time, {when}, in half-lives of {halves:g} s: log2({score:.6f}) + {explained['time_ms'] / 1000 / halves:.6f} = {explained['time_score']:.6f}"
            )
    else:
        lines.append(f"score   none: a message without a common word {'enters no list' if 'k' in explained else 'does not match'}, however near it is")
    if score is not None and "min_score" in explained:
        enough = "is enough" if score >= explained["min_score"] else "is not enough"
        lines.append(f"        {score:.6f} {enough}: the subscription wants {explained['min_score']:.6g} and more")
    if explained["where"] is not None:
        lines += expression_lines("where", explained["where"])
    if "list" in explained:
        lines.append(_list_line(explained))
    return lines + _time_lines(explained)


def _list_line(explained: Mapping[str, Any]) -> str:
    found = explained["list"]
    last = "" if found["threshold"] is None else f"; the last entry has {found['threshold']:.6f}"
    held = f"the list holds {found['size']} of {explained['k']}{last}"
    enough = f"its score is enough for rank {found['would_be']}, but " if found["would_be"] is not None else ""
    texts = {
        "listed": f"it has rank {found['rank']}: {held}",
        "no common word": held,
        "filtered": f"it is not in the list, for it does not satisfy the filter of the subscription ({held})",
        "below the threshold": f"it is not in the list: the last of {explained['k']} entries has {found['threshold'] or 0:.6f}, which is more",
        "not published": f"it would have rank {found['would_be']}: {held}",
        "came later": f"the list is not as far: this is message {found['position']} ({held})",
        "left the window": f"{enough}message {found['position']} has left the window ({held})",
        "not in the window": f"{enough}the message is not in the window: it has left it, or came later ({held})",
        "due": f"{enough}the list with it is not published yet ({held})",
    }
    return f"list    at watermark {found['watermark']} {texts[found['reason']]}"
