"""The way out of a server process, tried on processes that serve nothing: it is certain, and it takes a bounded time."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from impl.tests.serverprocess import environment

# Written past the buffer of `sys.stdout`: a signal can come while the main thread still holds its lock.
PROGRAM = """
import os, signal, sys, time
from holdtrue.lifetime import Lifetime
if "nohup" in sys.argv:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
def close():
    os.write(1, b"closed\\n")
    time.sleep(60 if "stuck" in sys.argv else 0)
lifetime = Lifetime(close)
lifetime.watch_signals()
os.write(1, b"ready\\n")
time.sleep(60)
"""


def started(*arguments: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments], stdout=subprocess.PIPE, text=True, env=environment()
    )
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("closing", ["at once", "stuck"])
def test_each_signal_closes_once_and_ends_the_process_within_two_seconds(end: signal.Signals, closing: str) -> None:
    process = started(closing)
    try:
        began_s = time.monotonic()
        process.send_signal(end)
        out, _ = process.communicate(timeout=20)
        assert time.monotonic() - began_s < 2.0
        assert (process.returncode, out) == (0, "closed\n")
    finally:
        process.kill()
        process.wait(10)


def test_signals_that_come_while_it_leaves_change_nothing() -> None:
    process = started("stuck")
    try:
        for _ in range(3):
            process.send_signal(signal.SIGTERM)
            time.sleep(0.05)
        out, _ = process.communicate(timeout=20)
        assert (process.returncode, out) == (0, "closed\n")
    finally:
        process.kill()
        process.wait(10)


def test_a_hang_up_that_the_parent_had_ignored_stays_ignored() -> None:
    process = started("nohup")
    try:
        process.send_signal(signal.SIGHUP)
        time.sleep(0.3)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait(10)
