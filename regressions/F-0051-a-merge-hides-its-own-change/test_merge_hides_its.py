"""F-0051: a merge can carry a change of the product that neither of its parents has, and no test with it."""

from __future__ import annotations

from pathlib import Path

from gate.tests.commit_toys import Toy


def test_a_range_does_not_pass_over_what_a_merge_changes_itself(tmp_path: Path) -> None:
    toy = Toy(tmp_path / "repo")
    base = toy.commit("base", {"a.py": "A = 1\n", "b.py": "B = 1\n"})
    toy.git("checkout", "-q", "-b", "side")
    toy.commit("fix: a", {"a.py": "A = 2\n", "test_a.py": "import a\n\ndef test_a():\n    assert a.A == 2\n"})
    toy.git("checkout", "-q", "-")
    toy.commit("words", {"README.md": "words\n"})
    toy.git("merge", "-q", "--no-commit", "side")
    merge = toy.commit("Merge side", {"b.py": "B = 7\n"})
    report = toy.check(f"{base}..HEAD")
    assert report.result == "cannot-judge"
    assert [[problem.code for problem in c.problems] for c in report.commits if c.sha == merge] == [["no-tests"]]
