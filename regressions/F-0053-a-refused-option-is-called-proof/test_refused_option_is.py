"""F-0053: the parent's command line does not know the option; the bug may still be there."""

from __future__ import annotations

from pathlib import Path

from gate.tests.commit_toys import Toy, only

OLD = """
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--old", action="store_true")
parser.parse_args()
"""
TEST = """
import subprocess, sys

def test_fresh():
    done = subprocess.run([sys.executable, "m.py", "--fresh"])
    assert done.returncode == 0
"""


def test_the_exit_status_of_a_new_option_is_no_proof(tmp_path: Path) -> None:
    toy = Toy(tmp_path / "repo")
    toy.commit("base", {"m.py": OLD})
    toy.commit("fix: fresh", {"m.py": OLD.replace("--old", "--fresh"), "test_m.py": TEST})
    commit = toy.judged()
    assert (only(commit).verdict, only(commit).proof, commit.result) == ("suspect", False, "fail")
