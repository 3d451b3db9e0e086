"""A server that is SIGKILLed and restarted every two seconds while its client stores, beside three that live.

Every acknowledged memory must be there exactly once at the end. What was unanswered at a kill is asked again with its
idempotency key, as a client would.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from impl.benchmarks.figures import Figure, Report
from impl.benchmarks.rpc import NoAnswer, StdioServer
from properties.kit import raw

SERVERS = 4


class _Client(threading.Thread):
    """Stores one memory after the other; starts its server again whenever that has died."""

    def __init__(self, number: int, store: Path, until_s: float) -> None:
        super().__init__(name=f"client-{number}")
        self.number = number
        self.store = store
        self.until_s = until_s
        self.server = self._start()
        self.acknowledged: list[str] = []
        self.refused: list[str] = []
        self.unanswered = 0
        self.starts_s: list[float] = []
        self.answered_since_start = threading.Event()

    def _start(self) -> StdioServer:
        return StdioServer([sys.executable, "-m", "holdtrue", "serve", "--store", str(self.store)])

    def run(self) -> None:
        number, up = 0, False
        while time.monotonic() < self.until_s:
            text = f"client {self.number} stores memory {number}"
            try:
                if not up:
                    self.starts_s.append(self.server.initialize())
                    up = True
                answer = self.server.call("memory_store", text=text, key=text)
            except NoAnswer:
                self.unanswered += up
                self.server.kill()
                self.server, up = self._start(), False
                continue  # the same text again
            (self.refused if "error" in answer else self.acknowledged).append(text)
            self.answered_since_start.set()
            number += 1


def measure(*, seconds: float, every_s: float = 2.0, progress: Any = None) -> Report:
    say = progress or (lambda _text: None)
    with tempfile.TemporaryDirectory(prefix="holdtrue-bench-") as top:
        store = Path(top) / "store"
        until_s = time.monotonic() + seconds
        clients = [_Client(number, store, until_s) for number in range(SERVERS)]
        try:
            for client in clients:
                client.start()
            kills = 0
            while time.monotonic() + every_s < until_s:
                # The two seconds count from its first answer: a server that is always killed while it starts shows nothing.
                clients[0].answered_since_start.wait(20)
                time.sleep(every_s)
                clients[0].answered_since_start.clear()
                clients[0].server.kill()
                kills += 1
                say(f"{kills} kills, {sum(len(client.acknowledged) for client in clients):,} acknowledged")
            for client in clients:
                client.join(90)
        finally:
            for client in clients:
                client.server.kill()
        state = raw.read(store)
    stored = Counter(state.texts())
    acknowledged = [text for client in clients for text in client.acknowledged]
    report = Report("killed server", {"servers": SERVERS, "seconds": seconds, "killed_every_s": every_s})
    report.figures = [
        Figure("kills", kills, ""),
        Figure("acknowledged", len(acknowledged), ""),
        Figure("acknowledged by the killed server", len(clients[0].acknowledged), ""),
        Figure("unanswered, asked again", sum(client.unanswered for client in clients), ""),
        Figure("acknowledged and lost", sum(stored[text] == 0 for text in acknowledged), "", 0),
        Figure("there more than once", sum(count > 1 for count in stored.values()), "", 0),
        Figure("refused", sum(len(client.refused) for client in clients), "", 0),
        Figure("damage found", len(state.damage) + len(state.orphans), "", 0),
        Figure("slowest restart", max(clients[0].starts_s, default=float("nan")), "s"),
    ]
    return report
