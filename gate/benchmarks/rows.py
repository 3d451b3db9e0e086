"""Toy fixes with a known answer: one commit a row, each a way in which a new test fails, or does not, at the parent.

The rows and what fixwitness 1.0.0 says of them come from runs of it; here both tools are run again on the same commits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

BUGGY = "def price(n):\n    return n * 10 + 1\n"
FIXED = "def price(n):\n    return n * 10\n"
OLD_TESTS = "from shop import price\n\n" + "\n\n".join(
    f"def test_old_{n}():\n    assert price({n}) > {n}" for n in range(1, 10)
)


@dataclass(frozen=True)
class Row:
    """`files` make the fix beside the product's; `old` make the parent. `verdicts` is what the new tests should be called,
    sorted; `proved` whether the commit proves its fix."""

    name: str
    verdicts: tuple[str, ...]
    proved: bool
    files: Mapping[str, str | None]
    fixed: str = FIXED
    buggy: str = BUGGY
    old: Mapping[str, str] = field(default_factory=dict)


def _test(body: str, before: str = "import shop\n") -> dict[str, str | None]:
    return {"tests/test_new.py": f"{before}\n\n{body}\n"}


PRICE = "def test_new():\n    assert shop.price(1) == 10"
MANY = FIXED + "\n\ndef many(ns):\n    return [price(n) for n in ns]\n"

ROWS = (
    Row("own assertion", ("own-assertion",), True, _test(PRICE)),
    Row(
        "pytest.raises did not raise",
        ("own-assertion",),
        True,
        _test(
            "def test_new():\n    with pytest.raises(ValueError):\n        shop.price(-1)",
            "import pytest\nimport shop\n",
        ),
        fixed="def price(n):\n    if n < 0:\n        raise ValueError(n)\n    return n * 10 + 1\n",
    ),
    Row("vacuous", ("vacuous",), False, _test("def test_new():\n    assert shop.price(2) > 2")),
    Row(
        "imports a function that the fix adds",
        ("missing-api",),
        False,
        _test("def test_new():\n    assert callable(many)", "from shop import many\n"),
        fixed=MANY,
    ),
    Row(
        "calls a function that the fix adds",
        ("missing-api",),
        False,
        _test("def test_new():\n    assert shop.many([]) == []"),
        fixed=MANY,
    ),
    Row(
        "a fixture needs a function that the fix adds",
        ("missing-api",),
        False,
        _test(
            "@pytest.fixture\ndef some():\n    return shop.many([])\n\n\ndef test_new(some):\n    assert some == []",
            "import pytest\nimport shop\n",
        ),
        fixed=MANY,
    ),
    Row(
        "conftest.py at the root holds the fixture",
        ("own-assertion",),
        True,
        {
            "conftest.py": "import pytest\n\n\n@pytest.fixture\ndef one():\n    return 1\n",
            "tests/test_new.py": "import shop\n\n\ndef test_new(one):\n    assert shop.price(one) == 10\n",
        },
    ),
    Row(
        "hangs",
        ("hang",),
        False,
        _test(
            "def test_new():\n    while shop.price(1) != 10:\n        time.sleep(0.01)", "import time\nimport shop\n"
        ),
    ),
    Row(
        "is killed",
        ("crash",),
        False,
        _test(
            "def test_new():\n    if shop.price(1) != 10:\n        os.kill(os.getpid(), 9)", "import os\nimport shop\n"
        ),
    ),
    Row(
        "passes every second run",
        ("flaky",),
        False,
        _test(
            "COUNT = pathlib.Path(__file__).with_name('count')\n\n\n"
            "def test_new():\n    with COUNT.open('a') as file:\n        file.write('x')\n"
            "    assert shop.price(1) == 10 or COUNT.stat().st_size % 2 == 0",
            "import pathlib\nimport shop\n",
        ),
    ),
    Row(
        "one real, one vacuous test",
        ("own-assertion", "vacuous"),
        False,
        _test(PRICE + "\n\n\ndef test_also():\n    assert shop.price(2) > 2"),
    ),
    Row(
        "needs a file that the fix adds",
        ("missing-api",),
        False,
        {
            "prices.txt": "10\n",
            "tests/test_new.py": (
                "import pathlib\n\n\ndef test_new():\n"
                "    text = (pathlib.Path(__file__).parent.parent / 'prices.txt').read_text()\n"
                "    assert text == '10\\n'\n"
            ),
        },
    ),
    Row(
        "is expected to fail",
        ("not-run",),
        False,
        _test("@pytest.mark.xfail(shop.price(1) != 10, reason='later')\n" + PRICE, "import pytest\nimport shop\n"),
    ),
    Row(
        "is skipped at the parent",
        ("not-run",),
        False,
        _test("@pytest.mark.skipif(shop.price(1) != 10, reason='later')\n" + PRICE, "import pytest\nimport shop\n"),
    ),
    Row("lies at the root", ("own-assertion",), True, {"test_new.py": "import shop\n\n\n" + PRICE + "\n"}),
    Row(
        "a fix of the same length",
        ("own-assertion",),
        True,
        _test("def test_new():\n    assert shop.price(1) == 10"),
        buggy="def price(n):\n    return n * 11\n",
        fixed="def price(n):\n    return n * 10\n",
    ),
)
