"""How to install the extras of the package: from the folder that it came from, because the public index of packages does not have it."""

from __future__ import annotations

import importlib.metadata
import json
import shlex
from urllib.parse import unquote, urlsplit

__all__ = ["how_to_install"]


def how_to_install(extra: str = "") -> str:
    """Return the command that installs the package with an extra.

    It names the folder that pip has noted. A name alone would make pip ask the public index, where anybody could register it.

    :param extra: name of the extra; empty: the package as it is.
    """
    editable, folder = False, "/path/to/dskype"
    try:
        noted = json.loads(importlib.metadata.distribution("dskype").read_text("direct_url.json") or "{}")
    except importlib.metadata.PackageNotFoundError:
        noted = {}
    url = urlsplit(noted.get("url", ""))
    if url.scheme == "file":
        editable, folder = bool(noted.get("dir_info", {}).get("editable")), unquote(url.path)
    return f"pip install {'-e ' * editable}{shlex.quote(f'{folder}[{extra}]' if extra else folder)}"
