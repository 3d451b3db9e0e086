"""One test against the product of any revision: toy repositories, real git and real pytest processes."""

from __future__ import annotations

import json
import sys

import pytest
from click.testing import CliRunner

from gate.tests.commit_toys import Toy
from holdtrue_gate.cli import gate

TESTS = """
    import pytest
    import shop

    def test_price():
        assert shop.price(2) == 20

    def test_name():
        assert shop.fresh(1) == 1

    @pytest.mark.parametrize("n", [0, 2])
    def test_each(n):
        assert shop.price(n) == 10 * n

    def test_red():
        assert shop.price(1) == 11
"""


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    toy = Toy(tmp_path_factory.mktemp("prove") / "repo")
    toy.commit("one", {"shop.py": "def price(n):\n    return n * 9\n"})
    toy.commit(
        "two",
        {"shop.py": "def price(n):\n    return n * 10\n", "test_shop.py": "def test_price():\n    assert False\n"},
    )
    toy.commit("three", {"shop.py": "def price(n):\n    return n * 10\n\n\ndef fresh(n):\n    return n\n"})
    toy.commit("four", {"test_shop.py": TESTS})
    return toy


def prove(toy: Toy, node: str, *arguments: str) -> tuple[int, str]:
    command = ["prove", node, *arguments, "-C", str(toy.root), "--python", sys.executable]
    done = CliRunner().invoke(gate, command)
    return done.exit_code, done.output


def verdicts(toy: Toy, node: str, *arguments: str) -> tuple[int, dict[str, tuple[str, bool]]]:
    code, text = prove(toy, node, "--json", *arguments)
    return code, {test["id"].partition("::")[2]: (test["verdict"], test["proof"]) for test in json.loads(text)["tests"]}


def test_a_test_is_judged_by_the_product_of_the_revision_that_is_named(toy: Toy) -> None:
    node = "test_shop.py::test_price"
    assert verdicts(toy, node, "--against", "HEAD~3") == (0, {"test_price": ("own-assertion", True)})
    assert verdicts(toy, node, "--against", "HEAD~2") == (1, {"test_price": ("vacuous", False)})
    assert verdicts(toy, node, "--against", "HEAD") == (1, {"test_price": ("vacuous", False)})


def test_a_missing_name_is_no_proof_and_neither_is_a_test_that_is_red_at_home(toy: Toy) -> None:
    assert verdicts(toy, "test_shop.py::test_name", "--against", "HEAD~3") == (1, {"test_name": ("missing-api", False)})
    assert verdicts(toy, "test_shop.py::test_red", "--against", "HEAD~3") == (1, {"test_red": ("head-red", False)})


def test_a_parameter_may_be_silent_beside_one_that_is_proof_and_can_be_asked_alone(toy: Toy) -> None:
    each = {"test_each[0]": ("vacuous", False), "test_each[2]": ("own-assertion", True)}
    assert verdicts(toy, "test_shop.py::test_each", "--against", "HEAD~3") == (0, each)
    assert verdicts(toy, "test_shop.py::test_each[0]", "--against", "HEAD~3")[0] == 1


def test_the_test_may_live_in_another_revision_than_head(toy: Toy) -> None:
    code, found = verdicts(toy, "test_shop.py::test_price", "--against", "HEAD~3", "--at", "HEAD~2")
    assert (code, found) == (1, {"test_price": ("head-red", False)})


def test_the_answer_for_a_person_names_the_assertion(toy: Toy) -> None:
    code, text = prove(toy, "test_shop.py::test_price", "--against", "HEAD~3")
    assert code == 0
    assert "own-assertion" in text
    assert "test_shop.py:5" in text
    code, text = prove(toy, "test_shop.py::test_price", "--against", "HEAD~2")
    assert (code, "vacuous: passes at the parent too" in text) == (1, True)


@pytest.mark.parametrize(
    ("node", "against"),
    [
        ("nowhere.py::test_a", "HEAD~1"),
        ("test_shop.py::test_nothing", "HEAD~3"),
        ("test_shop.py::test_price", "nowhere"),
    ],
)
def test_what_is_not_there_is_a_usage_error(toy: Toy, node: str, against: str) -> None:
    assert prove(toy, node, "--against", against)[0] == 2
