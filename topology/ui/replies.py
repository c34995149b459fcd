"""Answers as bytes: JSON, pictures and refusals."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import Response

from dskype.topology.ui.extension import Picture

__all__ = ["TYPES", "as_json", "refusal", "response_of"]

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
}


def as_json(data: Any, status: int = 200) -> Response:
    """Return an answer in JSON."""
    return Response(json.dumps(data, ensure_ascii=False, allow_nan=False, default=str), status, media_type="application/json; charset=utf-8")


_STATUS = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    413: "Content Too Large",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Server Error",
    503: "Service Unavailable",
}


def refusal(status: int, text: str, *, gone: bool = False, retry_after_s: int | None = None) -> Response:
    """Return the answer to a request that is refused.

    :param gone: whether it is because a topology is not alive any more.
    :param retry_after_s: when the client may try again.
    """
    response = as_json({"error": f"{status} {_STATUS.get(status, 'Error')}", "errorMessage": text, **({"notAlive": True} if gone else {})}, status)
    if retry_after_s is not None:
        response.headers["Retry-After"] = str(retry_after_s)
    return response


def response_of(found: Any) -> Response:
    """Return what was found as an answer; called in the thread that has found it, because it may be long."""
    return Response(found.svg, media_type=TYPES[".svg"]) if isinstance(found, Picture) else as_json(found)
