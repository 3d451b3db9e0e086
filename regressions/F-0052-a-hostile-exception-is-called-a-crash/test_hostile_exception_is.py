"""F-0052: a finding that declares a crash would have been proved by any such exception."""

from __future__ import annotations

from pathlib import Path

from gate.tests.commit_toys import Toy, only

BAD = """
class Bad(Exception):
    name = property(lambda self: 1 / 0)
    exceptions = property(lambda self: 1 / 0)

def go():
    raise Bad("bad")
"""


def test_an_exception_that_cannot_be_read_is_no_crash(tmp_path: Path) -> None:
    toy = Toy(tmp_path / "repo")
    toy.commit("base", {"m.py": BAD})
    test = "import m\n\ndef test_go():\n    assert m.go() == 1\n"
    toy.commit("fix: go", {"m.py": "def go():\n    return 1\n", "test_m.py": test})
    judged = only(toy.judged())
    assert (judged.verdict, judged.exception, judged.location) == ("undeclared-exception", "m.Bad", "m.py:6")
