"""F-0046: the folders of a replay have random names. A message that held one, as every failure about a file in tmp_path
does, was different each time, so the report of one commit was never the same bytes twice."""

from __future__ import annotations

from pathlib import Path

from gate.tests.commit_toys import Toy, only

TEST = """
import shop


def test_the_price_list_is_written_where_asked(tmp_path):
    target = tmp_path / "prices.txt"
    shop.write(target)
    assert target.exists()
"""


def test_two_checks_of_one_commit_tell_the_same_message(tmp_path: Path) -> None:
    toy = Toy(tmp_path / "repo")
    toy.commit("base", {"shop.py": "def write(target):\n    pass\n"})
    toy.commit(
        "fix: write the list", {"shop.py": "def write(target):\n    target.write_text('1')\n", "test_shop.py": TEST}
    )
    first, second = (only(toy.judged()).message for _ in range(2))
    assert "prices.txt" in first
    assert first == second
