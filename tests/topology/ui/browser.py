"""A headless browser, driven by the WebDriver protocol over plain HTTP."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from tests.needs import install, which
from tests.waiting import Limit, wait_for

_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
_QUIET = "--disable-quic --no-first-run --disable-background-networking --disable-component-update --disable-sync --no-sandbox --disable-gpu"


def installed() -> tuple[str, str]:
    """Return the paths of Chromium and its driver; on Debian, install them if they are missing.

    :raises InstallationError: they are not there and cannot be installed.
    """
    install({"chromium": "chromium", "chromedriver": "chromium-driver"}, "tests of pages")
    return which("chromium") or "", which("chromedriver") or ""


def _start(driver: str) -> tuple[subprocess.Popen[str], int]:
    """Start a browser's driver, and return it with its port.

    It takes a port that is free for IPv6, and ends if somebody has the same port for IPv4; so it is started again.

    :raises RuntimeError: it has ended five times.
    """
    for _ in range(5):
        process = subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = []
        for line in process.stdout:
            if found := re.search(r"started successfully on port (\d+)", line):
                return process, int(found[1])
            said.append(line)
        process.wait()
        process.stdout.close()
    msg = f"the driver of the browser has ended: {''.join(said)}"
    raise RuntimeError(msg)


class Browser:
    """One window of a headless Chromium.

    :param folder: for its profile.
    :param size: width and height of the window in pixels.
    """

    def __init__(self, folder: Path, size: tuple[int, int] = (1280, 900)) -> None:
        chromium, driver = installed()
        self._process, port = _start(driver)
        self._url = f"http://127.0.0.1:{port}"
        arguments = ["--headless=new", *_QUIET.split(), f"--user-data-dir={folder}", f"--window-size={size[0]},{size[1]}"]
        options = {"goog:chromeOptions": {"binary": chromium, "args": arguments}, "goog:loggingPrefs": {"browser": "ALL"}}
        self._session = ""
        self._session = f"/session/{self._call('POST', '/session', {'capabilities': {'alwaysMatch': options}})['sessionId']}"

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if method != "POST" else json.dumps(body or {}).encode()
        request = Request(f"{self._url}{self._session}{path}", data, {"Content-Type": "application/json"}, method=method)
        try:
            with urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except HTTPError as error:
            raise RuntimeError(json.load(error)["value"]["message"][:500]) from None

    def open(self, url: str) -> None:
        """Load a page, and wait until it has shown its first answer."""
        self._call("POST", "/url", {"url": url})
        self.wait("document.body.dataset.state !== 'loading'")

    def run(self, script: str, *arguments: Any) -> Any:
        """Return what a script returns."""
        return self._call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, condition: str, secs: float = 60) -> None:
        """Wait until a JavaScript expression is true."""
        wait_for(lambda: self.run(f"return Boolean({condition})"), secs, lambda: f"{condition}: {self.text('body')[:2000]}")

    def text(self, selector: str) -> str:
        """Return the text of an element."""
        return self.run("return document.querySelector(arguments[0]).innerText", selector)

    def rows(self, selector: str) -> list[dict[str, str]]:
        """Return the rows of the table within an element, by their headings."""
        script = """
            const table = document.querySelector(arguments[0] + ' table');
            const heads = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
            const rows = [...table.tBodies[0].rows].map((row) => Object.fromEntries([...row.cells].map((cell, i) => [heads[i], cell.textContent])));
            return JSON.stringify(rows);
        """
        return json.loads(self.run(script, selector))  # as text, because the driver stumbles over an object with the key "Window"

    def click(self, xpath: str) -> None:
        """Click an element as soon as it is there; look for it again if the page has shown it anew meanwhile."""
        limit = Limit(60)
        while True:
            try:
                found = self._call("POST", "/element", {"using": "xpath", "value": xpath})
                return self._call("POST", f"/element/{found[_ELEMENT]}/click")
            except RuntimeError as error:
                if not any(what in str(error) for what in ("stale element", "no such element")) or limit.over:
                    raise
                time.sleep(0.05)

    def press(self, keys: str) -> None:
        """Press keys, one after the other; WebDriver has characters for keys without one."""
        actions = [{"type": kind, "value": one} for one in keys for kind in ("keyDown", "keyUp")]
        self._call("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def accept(self) -> str:
        """Accept the question that the page asks, and return its text."""
        text = self._call("GET", "/alert/text")
        self._call("POST", "/alert/accept")
        return text

    def picture(self) -> bytes:
        """Return what the window shows as PNG."""
        return base64.b64decode(self._call("GET", "/screenshot"))

    def resize(self, width: int, height: int) -> None:
        """Set the size of the window in pixels."""
        self._call("POST", "/window/rect", {"width": width, "height": height})

    def problems(self) -> list[str]:
        """Return what the console has shown since the last call: errors, warnings, violations of the content security policy."""
        return [f"{entry['level']}: {entry['message']}" for entry in self._call("POST", "/se/log", {"type": "browser"}) if entry["level"] != "INFO"]

    def prefer(self, scheme: str) -> None:
        """Let pages see that the user prefers ``light`` or ``dark`` colours; an empty text: no preference."""
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def devtools(self, command: str, **parameters: Any) -> dict[str, Any]:
        """Return the answer to a command of the Chrome DevTools Protocol."""
        return self._call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    @property
    def pid(self) -> int:
        """Return the process of the driver; those of the browser are its children."""
        return self._process.pid

    def leave(self) -> None:
        """Show an empty page, and forget what the console has shown and what the page has kept: a later server may get the same port, which makes it the same site."""
        self.run("if (location.protocol.startsWith('http')) { sessionStorage.clear(); localStorage.clear(); }")
        self.open("about:blank")
        self.problems()

    def close(self) -> None:
        """End the browser."""
        try:
            self._call("DELETE", "")
        finally:
            self._process.terminate()
            self._process.wait(timeout=10)
            self._process.stdout.close()
