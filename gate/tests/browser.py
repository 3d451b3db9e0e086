"""A real browser for tests: headless Chromium, spoken to over a pipe (Chrome DevTools Protocol)."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
ANSWER_LIMIT_S = 60.0
_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # tests run as root in containers; the page is ours
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
)


def find() -> str:
    """The browser's program. Where there is none, the tests of a page are skipped, but never in CI."""
    given = os.environ.get("CHROMIUM")
    for name in (given, *NAMES) if given else NAMES:
        found = shutil.which(name)
        if found:
            return found
    words = f"no browser: install one of {', '.join(NAMES)}, or name it in CHROMIUM"
    if os.environ.get("CI"):
        pytest.fail(words)
    pytest.skip(words)


class Browser:
    """One browser with one page."""

    def __init__(self, profile: Path) -> None:
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        # The browser wants exactly 3 and 4; from high numbers neither is overwritten while they are put there.
        high_in, high_out = (fcntl.fcntl(fd, fcntl.F_DUPFD, 100) for fd in (theirs_in, theirs_out))

        def place() -> None:
            # Two calls that are safe after a fork.
            os.dup2(high_in, 3)
            os.dup2(high_out, 4)

        self._process = subprocess.Popen(
            [find(), *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=place,
            pass_fds=(3, 4),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "HOME": str(profile)},
        )
        for fd in (theirs_in, theirs_out, high_in, high_out):
            os.close(fd)
        self._in, self._out, self._rest, self._number = ours_in, ours_out, b"", 0
        self._session = ""
        self.events: list[dict[str, Any]] = []
        targets = self.ask("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self.ask("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.ask(f"{domain}.enable")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(timeout=10)
        os.close(self._in)
        os.close(self._out)

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command and its answer; what happens meanwhile goes to `events`."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + ANSWER_LIMIT_S
        while True:
            answer = self._next(deadline)
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(self._in, 1 << 16) if ready else b""
            assert chunk, "the browser did not answer"
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found

    def open(self, path: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Loads a file and waits until it is there."""
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.ask("Page.navigate", url=path.as_uri())
        deadline = time.monotonic() + ANSWER_LIMIT_S
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next(deadline))

    def evaluate(self, expression: str) -> Any:
        """A value of the page; the page's own policy does not hold for the debugger."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer.get("exceptionDetails")
        return answer["result"].get("value")

    def press(self, key: str, *, shift: bool = False) -> None:
        """One key, down and up, as a keyboard sends it."""
        codes = {"Tab": 9, "Enter": 13, " ": 32, "ArrowRight": 39, "ArrowDown": 40}
        text = {"Enter": "\r", " ": " "}.get(key, "")
        common = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": codes[key]}
        self.ask("Input.dispatchKeyEvent", type="keyDown", text=text, modifiers=8 if shift else 0, **common)
        self.ask("Input.dispatchKeyEvent", type="keyUp", modifiers=8 if shift else 0, **common)

    def screenshot(self, path: Path, *, whole: bool = False) -> bytes:
        """The page as a PNG: what is to be seen, or all of it."""
        data = base64.b64decode(self.ask("Page.captureScreenshot", captureBeyondViewport=whole)["data"])
        path.write_bytes(data)
        return data

    def print(self) -> bytes:
        """The page as a PDF, as it would be printed."""
        return base64.b64decode(self.ask("Page.printToPDF", printBackground=True)["data"])

    def requests(self) -> list[str]:
        """The addresses that were asked for since the page was opened."""
        sent = [event for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]


@contextlib.contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A browser that is gone afterwards."""
    made = Browser(profile)
    try:
        yield made
    finally:
        made.close()
