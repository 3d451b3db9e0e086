"""The life of a server process: a quick handshake whatever the model does, a clean stdout, and a certain end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import ExitStack
from pathlib import Path

import apsw
import psutil

from impl.tests.serverprocess import HANDSHAKE, ServerProcess, environment, python_path

END_LIMIT_S = 2.0
SLOW_MODEL_S = 30.0


def slow_noisy_model(folder: Path) -> str:
    """A PYTHONPATH on which the model's library takes half a minute to load and prints while it does."""
    package = folder / "tokenizers"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        textwrap.dedent(f"""
        import os, time
        print("loading the model", flush=True)
        os.write(1, b"a C library says hello\\n")
        time.sleep({SLOW_MODEL_S})
        """)
    )
    return python_path(folder)


def test_a_slow_and_noisy_model_delays_no_handshake_and_never_reaches_stdout(tmp_path: Path) -> None:
    path = slow_noisy_model(tmp_path / "slow")
    began_s = time.monotonic()
    with ServerProcess(tmp_path / "store", PYTHONPATH=path, HOLDTRUE_MODEL_WAIT_S="0.1") as server:
        server.initialize()
        server.answer(server.send("tools/list"))
        stored = server.call("memory_store", text="ticket POL-358: retry the webhook twice")
        found = server.call("memory_search", query="POL-358")
        assert stored["degraded"] == ["The model is still loading."]
        assert found["degraded"] == ["The model is still loading."]
        assert [hit["id"] for hit in found["hits"]] == [stored["id"]]
        status = server.call("memory_status")
        assert status["pending_vectors"] == 1
        assert status["degraded"]
        assert time.monotonic() - began_s < SLOW_MODEL_S, "something waited for the model"
        while "a C library says hello" not in (log := server.log.read_text()):
            assert time.monotonic() - began_s < SLOW_MODEL_S, f"the model printed nothing: {log}"
            time.sleep(0.05)
        assert "loading the model" in log
        server.process.stdin.close()
        assert server.ended_within(END_LIMIT_S) == 0, "the thread that loads the model kept the process"
        for line in server.lines:
            assert json.loads(line)["jsonrpc"] == "2.0"


def test_a_closed_stdin_and_sigterm_end_the_process_within_two_seconds_though_calls_are_under_way(
    tmp_path: Path,
) -> None:
    ends = ("EOF", signal.SIGTERM)
    journals = [tmp_path / f"journal-{number}" for number in range(len(ends))]
    with ExitStack() as stack:
        servers = [
            stack.enter_context(
                ServerProcess(
                    tmp_path / "store",
                    HOLDTRUE_FAILPOINTS="view.before_nearest=delay(30)",
                    HOLDTRUE_FAILPOINT_JOURNAL=str(journal),
                )
            )
            for journal in journals
        ]
        for number, server in enumerate(servers):
            server.initialize()
            server.call("memory_store", text=f"acknowledged by server {number}")
        foreign = stack.enter_context(contextlib.closing(apsw.Connection(str(tmp_path / "store" / "memory.db"))))
        foreign.execute("BEGIN IMMEDIATE")
        for end, server, journal in zip(ends, servers, journals, strict=True):
            server.start_call("memory_store", {"text": f"never answered, {end}"})
            server.start_call("memory_search", {"query": "a search that takes half a minute"})
            while '"fired"' not in journal.read_text():
                server.call("memory_list")
            if end == "EOF":
                server.process.stdin.close()
            else:
                server.process.send_signal(end)
            assert server.ended_within(END_LIMIT_S) == 0, end
        foreign.execute("ROLLBACK")
        texts = [text for (text,) in foreign.execute("SELECT text FROM memories ORDER BY text")]
        assert texts == [f"acknowledged by server {number}" for number in range(len(ends))]


def test_requests_that_are_written_before_stdin_closes_are_all_answered(tmp_path: Path) -> None:
    requests = [
        {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": HANDSHAKE},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        *(
            {
                "jsonrpc": "2.0",
                "id": n,
                "method": "tools/call",
                "params": {"name": "memory_store", "arguments": {"text": f"note {n}"}},
            }
            for n in range(1, 11)
        ),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "holdtrue", "serve", "--store", str(tmp_path / "store")],
        input="".join(json.dumps(request) + "\n" for request in requests).encode(),
        capture_output=True,
        timeout=60,
        env=environment(),
        check=True,
    )
    answers = {message["id"]: message for message in map(json.loads, done.stdout.splitlines())}
    assert set(answers) == set(range(11))
    assert all(answers[n]["result"]["structuredContent"]["created"] for n in range(1, 11))


PARENT = """
import json, os, subprocess, sys, time
store, handshake = sys.argv[1:]
end_for_server, end_for_client = os.pipe()
command = [sys.executable, "-m", "holdtrue", "serve", "--store", store]
server = subprocess.Popen(command, stdin=end_for_server, stdout=subprocess.PIPE)
holder = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"], pass_fds=[end_for_client])
os.write(end_for_client, (handshake + "\\n").encode())
server.stdout.readline()
print(json.dumps([server.pid, holder.pid]), flush=True)
time.sleep(120)
"""


def test_a_server_ends_when_its_parent_is_killed_though_another_process_holds_the_pipe_open(tmp_path: Path) -> None:
    request = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HANDSHAKE})
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "store"), request],
        stdout=subprocess.PIPE,
        env=environment(),
        start_new_session=True,
    )
    try:
        server, holder = json.loads(parent.stdout.readline())
        parent.kill()
        parent.wait(10)
        deadline_s = time.monotonic() + END_LIMIT_S
        while running(server) and time.monotonic() < deadline_s:
            time.sleep(0.02)
        assert not running(server), "the server outlived its parent"
        assert running(holder), "the pipe was not held open, so this proved nothing"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(parent.pid, signal.SIGKILL)
        parent.stdout.close()


def test_a_server_whose_answers_nobody_reads_any_more_ends(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    server = subprocess.Popen(
        [sys.executable, "-m", "holdtrue", "serve", "--store", str(tmp_path / "store")],
        stdin=subprocess.PIPE, stdout=writing, stderr=subprocess.DEVNULL, env=environment(),
    )  # fmt: skip
    try:
        os.close(writing)
        os.close(reading)
        request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HANDSHAKE}
        server.stdin.write(json.dumps(request).encode() + b"\n")
        server.stdin.flush()
        assert server.wait(40) == 0  # its import takes what it takes; stdin stays open
    finally:
        server.kill()
        server.wait(10)
        server.stdin.close()


def running(pid: int) -> bool:
    """Whether a process runs; one that has ended and whose new parent has not noticed does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
