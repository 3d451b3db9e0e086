"""What a replay may take, and that nothing of it is left: no process, no tree, no trace in the user's repository."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gate.tests.commit_toys import Toy, only, verdicts

SETTINGS = "[tool.gate]\nplugin_autoload = false\nruns = 1\ntimeout_s = 30\nmemory_mib = 256\n"
EATER = "import time\nPILE = []\nfor _ in range(100):\n    PILE.append(b'x' * 8 * 2**20)\n    time.sleep(0.01)\n"

linux = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found through /proc")


def marked(word: str) -> list[int]:
    """Processes with a word in their command line, but for this one."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            text = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if word.encode() in text and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return found


def gone(word: str, within_s: float = 5) -> bool:
    deadline = time.monotonic() + within_s
    while marked(word):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@linux
@pytest.mark.parametrize("fork", [True, False])
@pytest.mark.parametrize("where", ["the test", "a child that left its session"])
def test_a_test_that_eats_the_memory_is_ended_and_told_as_that(tmp_path: Path, where: str, fork: bool) -> None:
    toy = Toy(tmp_path / "shop")
    toy.commit("base", {"pyproject.toml": SETTINGS, "m.py": "A = 1\n"})
    child = """
        import subprocess, sys

        def eat():
            subprocess.run([sys.executable, "-c", EATER], start_new_session=True)
    """
    own = "\n        def eat():\n            exec(EATER)\n"
    toy.commit(
        "fix: eats no more",
        {
            "m.py": "A = 2\n",
            "test_m.py": f"""
                import m

                EATER = {EATER!r}
                {(own if where == "the test" else child).replace(chr(10), chr(10) + "        ")}

                def test_it():
                    if m.A == 1:
                        eat()

                def test_later():
                    assert m.A == 2
            """,
        },
    )
    commit = toy.judged(fork=fork)
    assert verdicts(commit) == {"test_it": "crash", "test_later": "own-assertion"}
    assert "used more than 256 MiB of memory" in commit.tests[0].reason
    assert commit.result == "fail"


@linux
def test_memory_that_is_not_used_is_not_held_against_a_test(tmp_path: Path) -> None:
    toy = Toy(tmp_path / "shop")
    toy.commit("base", {"pyproject.toml": SETTINGS, "m.py": "A = 1\n"})
    toy.commit(
        "fix: A",
        {
            "m.py": "A = 2\n",
            # Address space that nobody touches, and pages that forked children share.
            "test_m.py": """
                import mmap, os, time
                import m

                SHARED = b"x" * 100 * 2**20

                def test_it():
                    room = mmap.mmap(-1, 2**31)
                    children = []
                    for _ in range(4):
                        pid = os.fork()
                        if pid == 0:
                            time.sleep(0.5)
                            os._exit(len(SHARED) == 0)
                        children.append(pid)
                    for pid in children:
                        assert os.waitpid(pid, 0)[1] == 0
                    assert m.A == 2
            """,
        },
    )
    assert only(toy.judged()).verdict == "own-assertion"


@linux
@pytest.mark.parametrize("fork", [True, False])
def test_no_daemon_of_a_test_survives(tmp_path: Path, fork: bool) -> None:
    word = f"gate-daemon-{os.getpid()}-{fork}"
    toy = Toy(tmp_path / "shop")
    toy.commit("base", {"m.py": "A = 1\n"})
    toy.commit(
        "fix: A",
        {
            "m.py": "A = 2\n",
            "test_m.py": f"""
                import os, sys
                import m

                def test_it():
                    if os.fork() == 0:
                        os.setsid()
                        if os.fork() == 0:
                            os.chdir("/")
                            os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(60)", {word!r}])
                        os._exit(0)
                    os.wait()
                    assert m.A == 2
            """,
        },
    )
    assert only(toy.judged(fork=fork)).verdict == "own-assertion"
    assert gone(word)


def fingerprint(root: Path) -> dict[str, str]:
    """Every file of a repository, `.git` included, by its bytes and time."""
    return {
        os.fspath(path.relative_to(root)): f"{path.lstat().st_mtime_ns} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


@linux
@pytest.mark.parametrize("after_s", [0.0, 0.15, 0.4, 0.8, 1.6])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopping_the_gate_at_any_moment_leaves_nothing(tmp_path: Path, number: signal.Signals, after_s: float) -> None:
    word = f"gate-stopped-{os.getpid()}-{number}-{after_s}"
    toy = Toy(tmp_path / "shop")
    toy.commit("base", {"m.py": "A = 1\n", "s.txt": "a\n"})
    toy.commit(
        "fix: A",
        {
            "m.py": "A = 2\n",
            "test_m.py": f"""
                import subprocess, sys

                def test_it():
                    subprocess.run([sys.executable, "-c", "import time; time.sleep(60)", {word!r}], start_new_session=True)
            """,
        },
    )
    toy.write({"m.py": "A = 3\n", "s.txt": "staged\n", "u.txt": "untracked\n"})
    toy.git("add", "s.txt")
    toy.git("stash", "create")
    before = fingerprint(toy.root)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "holdtrue_gate", "check", "-C", str(toy.root), "--python", sys.executable],
        env=os.environ | {"TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    deadline = time.monotonic() + 20
    # The first moments of a Python program belong to the interpreter; from its first folder on they are the gate's.
    while not list(temporary.iterdir()) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.005)
    time.sleep(after_s)
    process.send_signal(number)
    output = process.communicate(timeout=30)[0].decode()
    assert process.returncode in (3, 130), output
    assert gone(word)
    assert list(temporary.iterdir()) == []
    assert fingerprint(toy.root) == before
