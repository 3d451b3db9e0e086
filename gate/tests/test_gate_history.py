"""Histories that the gate must read right: merges, ranges, roots, boundaries, submodules, and settings of the user."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gate.tests.commit_toys import Toy, only, verdicts
from holdtrue_gate.check import CommitReport

Make = Callable[..., Toy]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def build(name: str = "repo", **settings: float) -> Toy:
        return Toy(tmp_path / name, **settings)  # type: ignore[arg-type]

    return build


def test_of(name: str, value: int) -> str:
    return f"import {name}\n\ndef test_{name}():\n    assert {name}.A == {value}\n"


test_of.__test__ = False  # type: ignore[attr-defined]


def problems(commit: CommitReport) -> list[str]:
    return [problem.code for problem in commit.problems]


def forked(toy: Toy) -> None:
    """`a` is fixed with a test on the branch `side`, `b` with a test on the main one."""
    toy.commit("base", {"a.py": "A = 1\n", "b.py": "A = 1\n"})
    toy.git("checkout", "-q", "-b", "side")
    toy.commit("fix: a", {"a.py": "A = 2\n", "tests/test_a.py": test_of("a", 2)})
    toy.git("checkout", "-q", "main")
    toy.commit("fix: b", {"b.py": "A = 2\n", "tests/test_b.py": test_of("b", 2)})


def test_a_clean_merge_brings_nothing_of_its_own(make: Make) -> None:
    toy = make()
    forked(toy)
    toy.git("merge", "-q", "--no-edit", "side")
    commit = toy.judged()
    assert (commit.kind, commit.result, commit.tests, problems(commit)) == ("other", "pass", (), [])


def test_a_merge_is_judged_for_what_it_adds_itself(make: Make) -> None:
    toy = make()
    forked(toy)
    toy.git("merge", "-q", "--no-commit", "side")
    toy.commit("fix: a and b together", {"a.py": "A = 3\n", "tests/test_both.py": test_of("a", 3)})
    commit = toy.judged()
    assert verdicts(commit) == {"test_a": "own-assertion"}
    assert commit.result == "pass"


def test_a_merge_that_changes_the_product_beyond_its_parents_needs_a_test(make: Make) -> None:
    toy = make()
    forked(toy)
    toy.git("merge", "-q", "--no-commit", "side")
    toy.commit("Merge side", {"a.py": "A = 7\n"})
    commit = toy.judged()
    assert (commit.result, problems(commit)) == ("cannot-judge", ["no-tests"])


def test_lines_that_git_merges_by_itself_are_no_change_of_the_merge(make: Make) -> None:
    toy = make()
    lines = [f"V{n} = {n}\n" for n in range(12)]
    toy.commit("base", {"m.py": "".join(lines)})
    toy.git("checkout", "-q", "-b", "side")
    toy.commit("fix: low", {"m.py": "".join(["V0 = 100\n", *lines[1:]])})
    toy.git("checkout", "-q", "main")
    toy.commit("fix: high", {"m.py": "".join([*lines[:-1], "V11 = 100\n"])})
    toy.git("merge", "-q", "--no-edit", "side")
    commit = toy.judged()
    assert (commit.kind, commit.result, problems(commit)) == ("other", "pass", [])


def test_parameters_of_either_side_are_not_new_in_the_merge(make: Make) -> None:
    toy = make()
    case = "import m, pytest\n\n@pytest.mark.parametrize('n', [\n{}])\ndef test_n(n):\n    assert m.half(n) * 2 == n\n"
    rows = ["    0,\n", "    2,\n", "    4,\n", "    6,\n", "    8,\n"]
    toy.commit("base", {"m.py": "def half(n):\n    return n\n", "tests/test_m.py": case.format("".join(rows))})
    toy.git("checkout", "-q", "-b", "side")
    toy.commit("more", {"tests/test_m.py": case.format("".join(["    10,\n", *rows]))})
    toy.git("checkout", "-q", "main")
    toy.commit("even more", {"tests/test_m.py": case.format("".join([*rows, "    12,\n"]))})
    toy.git("merge", "-q", "--no-commit", "side")
    merged = case.format("".join(["    10,\n", *rows, "    12,\n", "    14,\n"]))
    toy.commit("fix: half", {"m.py": "def half(n):\n    return n // 2\n", "tests/test_m.py": merged})
    assert verdicts(toy.judged()) == {"test_n[14]": "own-assertion"}


def test_an_octopus_is_a_merge_too(make: Make) -> None:
    toy = make()
    toy.commit("base", {f"{name}.py": "A = 1\n" for name in "abc"})
    for name in "ab":
        toy.git("checkout", "-q", "-b", f"side-{name}", "main")
        toy.commit(f"fix: {name}", {f"{name}.py": "A = 2\n", f"tests/test_{name}.py": test_of(name, 2)})
    toy.git("checkout", "-q", "main")
    toy.commit("fix: c", {"c.py": "A = 2\n", "tests/test_c.py": test_of("c", 2)})
    toy.git("merge", "-q", "--no-edit", "side-a", "side-b")
    commit = toy.judged()
    assert len(toy.git("log", "-1", "--format=%P").split()) == 3
    assert (commit.kind, commit.result, commit.tests) == ("other", "pass", ())


def test_a_range_holds_its_merges_and_the_commits_of_both_sides(make: Make) -> None:
    toy = make()
    forked(toy)
    base = toy.git("rev-list", "--max-parents=0", "HEAD").strip()
    toy.git("merge", "-q", "--no-edit", "side")
    report = toy.check(f"{base}..HEAD")
    assert sorted((commit.subject[:6], commit.result) for commit in report.commits) == [
        ("Merge ", "pass"),
        ("fix: a", "pass"),
        ("fix: b", "pass"),
    ]


def test_a_revert_is_judged_like_any_commit(make: Make) -> None:
    toy = make()
    toy.commit("base", {"a.py": "A = 1\n"})
    toy.commit("fix: a", {"a.py": "A = 2\n", "tests/test_a.py": test_of("a", 2)})
    toy.git("revert", "--no-edit", "HEAD")
    commit = toy.judged()
    assert (commit.tests, problems(commit)) == ((), ["no-tests"])
    assert commit.result != "pass"
    toy.git("revert", "--no-edit", "HEAD")
    assert verdicts(toy.judged()) == {"test_a": "own-assertion"}


def test_a_root_and_a_shallow_boundary_are_two_answers(make: Make, tmp_path: Path) -> None:
    toy = make()
    toy.commit("fix: first", {"a.py": "A = 1\n", "tests/test_a.py": test_of("a", 1)})
    root = toy.judged()
    toy.commit("fix: second", {"a.py": "A = 2\n", "tests/test_a.py": test_of("a", 2)})
    toy.git("clone", "-q", "--depth", "1", f"file://{toy.root}", str(tmp_path / "shallow"))
    shallow = Toy.__new__(Toy)
    shallow.root = tmp_path / "shallow"
    boundary = shallow.judged()
    assert (problems(root), root.parent, root.result) == (["no-parent"], None, "cannot-judge")
    assert (problems(boundary), boundary.result) == (["history-missing"], "cannot-judge")
    assert boundary.parent == toy.git("rev-parse", "HEAD^").strip()


def test_a_graft_or_a_replacement_gives_a_commit_no_other_parent(make: Make) -> None:
    toy = make()
    first = toy.commit("base", {"a.py": "A = 2\n"})
    toy.commit("break it", {"a.py": "A = 1\n"})
    head = toy.commit("fix: a", {"a.py": "A = 2\n", "tests/test_a.py": test_of("a", 2)})
    toy.git("replace", "--graft", head, first)
    assert verdicts(toy.judged()) == {"test_a": "own-assertion"}
    toy.git("replace", "-d", head)
    (toy.root / ".git" / "info").mkdir(exist_ok=True)
    (toy.root / ".git" / "info" / "grafts").write_text(f"{head} {first}\n")
    assert verdicts(toy.judged()) == {"test_a": "own-assertion"}
    assert [commit.subject for commit in toy.check(f"{first}..HEAD").commits] == ["break it", "fix: a"]


def test_settings_and_attributes_of_the_user_change_no_answer(make: Make, tmp_path: Path) -> None:
    toy = make()
    ran = tmp_path / "ran"
    for key, value in {
        "diff.renames": "copies",
        "core.autocrlf": "true",
        "core.attributesFile": str(tmp_path / "attributes"),
        "core.quotePath": "true",
        "filter.f.smudge": f"touch {ran}; cat",
        "filter.f.clean": "cat",
        "diff.t.textconv": f"touch {ran}; cat",
        "diff.external": f"touch {ran}",
        "core.fsmonitor": f"touch {ran}",
        "core.hooksPath": str(tmp_path),
        "log.showSignature": "true",
        "color.ui": "always",
        "core.pager": f"touch {ran}; cat",
    }.items():
        toy.git("config", key, value)
    (tmp_path / "attributes").write_text("* text=auto eol=crlf filter=f diff=t\n")
    (tmp_path / "post-checkout").write_text(f"#!/bin/sh\ntouch {ran}\n")
    (tmp_path / "post-checkout").chmod(0o755)
    toy.write({".gitattributes": "*.py filter=f diff=t\n"})
    toy.commit("base", {"a.py": "A = 1\n", "tests/data.txt": "a\nb\n", "tests/test_old.py": test_of("a", 1)})
    toy.git("mv", "tests/test_old.py", "tests/test_moved.py")
    test = (
        test_of("a", 2)
        + "\ndef test_bytes():\n    assert open('tests/data.txt', 'rb').read() == b'a\\nb\\n' and a.A == 2\n"
    )
    toy.commit("fix: a", {"a.py": "A = 2\n", "tests/test_moved.py": None, "tests/test_new.py": test})
    ran.unlink(missing_ok=True)
    assert verdicts(toy.judged()) == {"test_a": "own-assertion", "test_bytes": "own-assertion"}
    assert not ran.exists()


def with_submodule(make: Make) -> tuple[Toy, Toy]:
    """A repository whose tests need the file `values.py` of a submodule."""
    part = make("part")
    part.commit("part", {"values.py": "TWO = 2\n", "pyproject.toml": None})
    toy = make()
    toy.commit("base", {"a.py": "A = 1\n"})
    toy.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(part.root), "tests/part")
    toy.commit("part", {})
    test = "import sys\nsys.path.insert(0, 'tests/part')\nimport a, values\n\ndef test_a():\n    assert a.A == values.TWO\n"
    toy.commit("fix: a", {"a.py": "A = 2\n", "tests/test_a.py": test})
    return toy, part


def test_a_submodule_is_filled_from_what_this_clone_holds(make: Make) -> None:
    toy, part = with_submodule(make)
    (part.root / ".git").rename(part.root / "gone")
    assert verdicts(toy.judged()) == {"test_a": "own-assertion"}


def test_a_submodule_that_this_clone_does_not_hold_cannot_be_judged(make: Make, tmp_path: Path) -> None:
    toy, _ = with_submodule(make)
    toy.git("clone", "-q", str(toy.root), str(tmp_path / "bare-of-parts"))
    clone = Toy.__new__(Toy)
    clone.root = tmp_path / "bare-of-parts"
    commit = clone.judged()
    assert (commit.result, problems(commit)) == ("cannot-judge", ["overlay-failed"])
    assert "tests/part" in commit.problems[0].message
    assert "git submodule update --init" in commit.problems[0].hint


def test_a_submodule_that_no_test_needs_may_be_left_out(make: Make, tmp_path: Path) -> None:
    part = make("theme")
    part.commit("part", {"theme.css": "x\n"})
    toy = make()
    toy.commit("base", {"a.py": "A = 1\n"})
    toy.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(part.root), "docs/theme")
    toy.commit("fix: a", {"a.py": "A = 2\n", "tests/test_a.py": test_of("a", 2)})
    toy.git("clone", "-q", str(toy.root), str(tmp_path / "clone"))
    clone = Toy.__new__(Toy)
    clone.root = tmp_path / "clone"
    assert verdicts(clone.judged()) == {"test_a": "own-assertion"}


def snapshot(root: Path) -> dict[str, str]:
    """Every byte of a work tree and of what git keeps of it: index, refs, stash, settings."""
    found = {}
    for path in sorted(root.rglob("*")):
        inner = path.relative_to(root).as_posix()
        if path.is_file() and not inner.startswith(".git/objects/"):
            found[inner] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def dirty(toy: Toy) -> None:
    toy.commit("base", {"m.py": "V = 1\n", "notes.txt": "keep\n"})
    toy.write({"notes.txt": "stashed\n"})
    toy.git("stash", "-q")
    toy.commit(
        "fix: V",
        {
            "m.py": "import time\nV = 2\n",
            "test_v.py": "import m, time\n\ndef test_v():\n    time.sleep(0.2)\n    assert m.V == 2\n",
        },
    )
    toy.write({"m.py": "V = 9  # wip\n", "s.txt": "staged\n", "u.txt": "untracked\n"})
    toy.git("add", "s.txt")


def test_the_users_tree_is_byte_for_byte_the_same_after_a_check(make: Make) -> None:
    toy = make()
    dirty(toy)
    before = snapshot(toy.root)
    assert only(toy.judged()).verdict == "own-assertion"
    assert snapshot(toy.root) == before


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_the_users_tree_is_byte_for_byte_the_same_after_ctrl_c(make: Make, tmp_path: Path) -> None:
    toy = make()
    dirty(toy)
    mark = tmp_path / "begun"
    test = f"import pathlib, time, m\n\ndef test_slow():\n    pathlib.Path({str(mark)!r}).touch()\n    time.sleep(60)\n"
    toy.commit("fix: slow", {"m.py": "V = 3\n", "test_slow.py": test})
    toy.write({"m.py": "V = 9  # wip\n", "s.txt": "staged\n"})
    toy.git("add", "s.txt")
    before = snapshot(toy.root)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("GIT_", "PYTEST_"))}
    process = subprocess.Popen(
        [sys.executable, "-m", "holdtrue_gate", "check", "HEAD", "-C", str(toy.root), "--json"],
        env=environment | {"PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(scratch)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        for _ in range(600):
            if mark.exists():
                break
            time.sleep(0.05)
        assert mark.exists()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130
    finally:
        process.kill()
    assert snapshot(toy.root) == before
    assert list(scratch.iterdir()) == []
