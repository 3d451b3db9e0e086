"""F-0013: extensions such as APSW put frames like src/cursor.c into a traceback; there is no such file in the project."""

from __future__ import annotations

from pathlib import Path

from gate.tests.commit_toys import Toy

TEST = """
from shop import price

# What an extension does that adds a frame of its own source to an exception that passes through it.
call = eval(compile("lambda function: function()", "src/cursor.c", "eval"))


def check():
    __tracebackhide__ = True
    assert price(2) == 20


def test_price():
    call(check)
"""


def test_an_assertion_below_a_frame_without_a_file_is_the_tests_own(tmp_path: Path) -> None:
    toy = Toy(tmp_path / "repo")
    toy.commit("base", {"shop.py": "def price(n):\n    return n * 10 + 1\n"})
    toy.commit("fix: price is one too high", {"shop.py": "def price(n):\n    return n * 10\n", "test_shop.py": TEST})
    assert toy.verdicts() == {"test_price": "own-assertion"}
