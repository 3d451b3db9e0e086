"""F-0055: a red example went unseen, and a fix that is proved by one could not be judged."""

from __future__ import annotations

from pathlib import Path

from gate.tests.commit_toys import Toy

OLD = "def half(n):\n    return n\n"
NEW = 'def half(n):\n    """\n    >>> half(4)\n    {}\n    """\n    return n // 2\n'


def test_a_doctest_is_judged_like_any_test(tmp_path: Path) -> None:
    answers = []
    for number, told in enumerate(("2", "3")):
        toy = Toy(tmp_path / f"repo-{number}")
        toy.commit("base", {"m.py": OLD, "pytest.ini": "[pytest]\naddopts = --doctest-modules\n"})
        toy.commit("fix: half", {"m.py": NEW.format(told)})
        commit = toy.judged()
        answers.append((commit.result, [(test.id, str(test.verdict)) for test in commit.tests]))
    assert answers == [
        ("pass", [("m.py::m.half", "own-assertion")]),
        ("fail", [("m.py::m.half", "head-red")]),
    ]
