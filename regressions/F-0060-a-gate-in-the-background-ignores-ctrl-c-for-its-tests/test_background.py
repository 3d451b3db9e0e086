"""A shell without job control starts background jobs with SIGINT ignored, and a program inherits that from its parent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from gate.tests.commit_toys import Toy

TEST = """
import os, signal, time
import pytest
import shop

def test_price_survives_ctrl_c():
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(2)
    assert shop.price(2) == 20
"""


def test_a_test_that_interrupts_itself_is_judged_alike_in_the_background(tmp_path: Path) -> None:
    toy = Toy(tmp_path / "repo")
    toy.commit("base", {"shop.py": "def price(n):\n    return n * 10 + 1\n"})
    toy.commit("fix: price is one too high", {"shop.py": "def price(n):\n    return n * 10\n", "test_shop.py": TEST})
    done = subprocess.run(
        [sys.executable, "-m", "holdtrue_gate", "check", "--json", "--python", sys.executable],
        cwd=toy.root,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),  # as `gate check &` in a script
        capture_output=True,
        text=True,
        timeout=120,
    )
    (commit,) = json.loads(done.stdout)["commits"]
    assert [test["verdict"] for test in commit["tests"]] == ["own-assertion"]
