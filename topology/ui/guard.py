"""What stands before all answers of the web server: headers that every answer has, and requests that are refused unread."""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dskype.topology.errors import explain
from dskype.topology.ui.budget import Usage, is_own_name
from dskype.topology.ui.replies import refusal

__all__ = ["Guard"]

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache, no-store",
}

_PICTURE_POLICY = b"default-src 'none'; style-src 'unsafe-inline'; sandbox"
"""Of SVG pictures, which have their styles in them; opened alone, they run nothing."""


class Guard:
    """Adds the headers of every answer, and refuses requests that are too long, to foreign names, or from pages of other sites.

    :param app: the application.
    :param hosts: see :class:`~dskype.topology.ui.server.UiOptions`.
    :param origin: see there.
    :param usage: has the limits.
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str] | None, origin: str | None, usage: Usage) -> None:
        self._app, self._hosts, self._usage, self._foreign_pages = app, hosts, usage, origin is not None
        headers = dict(_HEADERS)
        if origin is None:
            headers["Cross-Origin-Resource-Policy"] = "same-origin"
        else:
            headers |= {"Access-Control-Allow-Origin": origin, "Vary": "Origin"}
        self._headers = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        self._picture_headers = [(name, _PICTURE_POLICY if name == b"content-security-policy" else value) for name, value in self._headers]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in self._headers}
                own = [pair for pair in message.get("headers", ()) if pair[0].lower() not in given]
                picture = any(name.lower() == b"content-type" and value.startswith(b"image/svg+xml") for name, value in own)
                message["headers"] = own + (self._picture_headers if picture else self._headers)
            await send(message)

        response = self._refused(scope)
        try:
            await (self._app if response is None else response)(scope, receive, send_with_headers)
        except Exception:
            if response is not None:
                raise
            # It has been answered and logged (``_Api.failed`` in server.py).

    def _refused(self, scope: Scope) -> Response | None:
        """Return the answer to a request that is not looked at any further; None if it is."""
        headers, most = dict(scope["headers"]), self._usage.budget.head_bytes
        size = len(scope["raw_path"]) + len(scope["query_string"]) + sum(len(name) + len(value) for name, value in scope["headers"])
        if size > most:
            self._usage.note("head_bytes")
            return refusal(431, explain("Address and headers are too long.", given=size, legal=f"up to {most} bytes"))
        host = headers.get(b"host", b"").decode("latin-1")
        if not is_own_name(host, self._hosts):
            self._usage.note("foreign_name")
            legal = ", ".join(sorted(self._hosts or ()))
            return refusal(400, explain("The server does not go by this name.", given=host, legal=legal, hint="--allow-host adds one"))
        site = headers.get(b"sec-fetch-site", b"none")
        opened = headers.get(b"sec-fetch-mode") == b"navigate" and headers.get(b"sec-fetch-dest") == b"document"
        if site not in (b"none", b"same-origin") and not opened and not self._foreign_pages:
            self._usage.note("foreign_page")
            return refusal(
                403, explain("A page of another site asks for this.", given=site.decode("latin-1"), hint="--allow-origin lets its pages read the answers")
            )
        return None
