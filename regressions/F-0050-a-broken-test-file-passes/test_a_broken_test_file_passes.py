"""F-0050: no function was found in the file, so none had changed, and nothing was left to judge."""

from __future__ import annotations

from pathlib import Path

from gate.tests.commit_toys import Toy


def test_a_test_file_that_is_no_python_any_more_blocks(tmp_path: Path) -> None:
    toy = Toy(tmp_path / "repo")
    toy.commit("base", {"m.py": "A = 1\n", "test_m.py": "import m\n\ndef test_a():\n    assert m.A == 1\n"})
    toy.commit("Tidy the tests", {"test_m.py": "import m\n\ndef test_a(:\n    assert m.A == 1\n"})
    commit = toy.judged()
    assert (commit.result, [(test.id, str(test.verdict)) for test in commit.tests]) == (
        "fail",
        [("test_m.py", "head-red")],
    )
