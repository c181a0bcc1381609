"""A real Chromium for tests of pages, driven through DevTools' protocol over two pipes."""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import processes

# Nothing but what the page does itself may reach for the network.
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
TIMEOUT = 120  # seconds for one answer, on a busy machine


class Page:
    """One page of a Chromium, and all that it has asked for and complained about."""

    def __init__(self, commands: int, answers: int):
        self._commands, self._answers, self._buffer = commands, answers, b""
        self._session: str | None = None
        self._number = 0
        self.events: list[dict] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: object) -> dict:
        """One command of the protocol and its answer; events on the way are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            self.events.append(answer)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def _next(self) -> dict:
        end = time.monotonic() + TIMEOUT
        while b"\0" not in self._buffer:
            readable, _, _ = select.select([self._answers], [], [], max(0, end - time.monotonic()))
            assert readable, "Chromium does not answer"
            received = os.read(self._answers, 1 << 20)
            assert received, "Chromium has ended"
            self._buffer += received
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def show(self, path: Path, width: int, height: int = 800, dark=False, media="screen") -> None:
        """Open a file in a window of this size and wait until all of it is there."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self.resize(width, height)
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        while not self._seen("Page.loadEventFired"):
            self.events.append(self._next())

    def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 700}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def _seen(self, method: str) -> list[dict]:
        return [event["params"] for event in self.events if event.get("method") == method]

    @property
    def complaints(self) -> list[str]:
        """Everything on the console, and every error."""
        return [
            json.dumps(event)
            for method in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
            for event in self._seen(method)
        ]

    @property
    def requests(self) -> list[str]:
        """All addresses that were asked for, but for what the page holds itself."""
        urls = (event["request"]["url"] for event in self._seen("Network.requestWillBeSent"))
        return [url for url in urls if not url.startswith("data:")]

    def evaluate(self, expression: str):
        """The value of an expression of JavaScript."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, path: Path, whole: bool = True) -> None:
        """What the window shows, or the whole page."""
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def pdf(self) -> bytes:
        """The page as it is printed on A4."""
        size = {"paperWidth": 8.27, "paperHeight": 11.69, "printBackground": False}
        return base64.b64decode(self.call("Page.printToPDF", **size)["data"])


@contextlib.contextmanager
def chromium(profile: Path) -> Iterator[Page]:
    """A Chromium with a new profile; the test is skipped where there is none."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if not program:
        pytest.skip("no Chromium to look at pages with (Debian: apt-get install chromium)")
    to_browser, commands = os.pipe()
    answers, from_browser = os.pipe()
    # Chromium reads commands from descriptor 3 and answers on 4.
    script = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
    process = processes.start(
        *("bash", "-c", script, "bash", program, *OPTIONS, f"--user-data-dir={profile}"),
        pass_fds=(to_browser, from_browser),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_browser)
    os.close(from_browser)
    try:
        yield Page(commands, answers)
    finally:
        os.close(commands)  # it ends by itself when nobody can command it
        os.close(answers)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
