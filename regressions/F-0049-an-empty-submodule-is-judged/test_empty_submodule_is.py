"""F-0049: the tests ran in a tree that no checkout has; what a submodule holds decides what they see."""

from __future__ import annotations

from pathlib import Path

from gate.tests.commit_toys import Toy


def test_a_submodule_that_is_not_in_the_clone_is_no_pass(tmp_path: Path) -> None:
    part = Toy(tmp_path / "part")
    part.commit("part", {"rules.txt": "strict\n"})
    toy = Toy(tmp_path / "repo")
    toy.commit("base", {"m.py": "A = 1\n"})
    toy.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(part.root), "rules")
    toy.commit("rules", {})
    toy.commit("fix: A", {"m.py": "A = 2\n", "test_m.py": "import m\n\ndef test_a():\n    assert m.A == 2\n"})
    toy.git("clone", "-q", str(toy.root), str(tmp_path / "clone"))
    assert toy.judged().result == "pass"
    toy.root = tmp_path / "clone"
    commit = toy.judged()
    assert (commit.result, [problem.code for problem in commit.problems]) == ("cannot-judge", ["overlay-failed"])
