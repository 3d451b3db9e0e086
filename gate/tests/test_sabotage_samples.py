"""A sample of the planted bugs: one an invariant, chosen by the commit or a seed, and said; and several at a time."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from gate.tests.spec_toys import PROPERTY, SPEC, STOCK, Toy
from holdtrue_gate.cli import gate
from holdtrue_gate.sabotage import pick
from holdtrue_gate.spec import Sabotage, load

NAMES = ("kept", "doubled", "harmless")
EDITS = {
    "kept": "pass",
    "doubled": "self.pieces -= 2 * wanted",
    "harmless": "self.pieces = self.pieces - wanted",
}


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    """One invariant with four planted bugs, one of which no test can notice."""
    toy = Toy.build(tmp_path_factory.mktemp("shop"))
    for name in NAMES:
        patch = f"invariants/sabotage/INV-001-{name}.patch"
        toy.plant(patch, STOCK, "self.pieces -= wanted", EDITS[name])
        entry = f'\n[[sabotage]]\nname = "{name}"\npatch = "{patch}"\ncaught_by = ["{PROPERTY}"]\n'
        toy.write(SPEC, toy.read(SPEC) + entry)
    return toy


def asked(toy: Toy, *arguments: str) -> dict[str, object]:
    done = CliRunner().invoke(gate, ["sabotage", "-C", str(toy.root), "--json", *arguments])
    found: dict[str, object] = json.loads(done.output)
    return found


def names(report: dict[str, object]) -> list[str]:
    entries = report["sabotage"]
    assert isinstance(entries, list)
    return [entry["name"] for entry in entries]


def test_a_sample_is_one_bug_of_each_invariant_and_says_by_which_seed(toy: Toy) -> None:
    report = asked(toy, "--sample", "--seed", "3")
    assert len(names(report)) == 1
    assert report["sample"] == {"seed": "3", "of": 4}
    assert names(asked(toy, "--sample", "--seed", "3")) == names(report)


def test_without_a_seed_the_files_choose(toy: Toy) -> None:
    report = asked(toy, "--sample")
    subject, sample = report["subject"], report["sample"]
    assert isinstance(subject, dict)
    assert isinstance(sample, dict)
    assert sample["seed"] == (subject["commit"] or subject["sha256"])


def test_a_sample_that_takes_the_bug_nobody_notices_says_no(toy: Toy) -> None:
    (spec,) = load(toy.root)
    planted = [(spec, bug) for bug in spec.sabotage]
    seed = next(str(n) for n in range(100) if pick(planted, str(n))[0][1].name == "harmless")
    assert asked(toy, "--sample", "--seed", seed)["result"] == "fail"


def test_all_of_them_are_tried_without_a_sample_one_or_several_at_a_time(toy: Toy) -> None:
    one, three = asked(toy), asked(toy, "-j", "3")
    assert one["sample"] is None
    assert len(names(one)) == 4
    assert names(three) == names(one)
    for report in (one, three):
        assert isinstance(report["sabotage"], list)
        assert [entry["status"] for entry in report["sabotage"] if entry["name"] == "harmless"] == ["not-caught"]
        assert Counter(entry["status"] for entry in report["sabotage"])["caught"] == 3


def test_a_seed_without_a_sample_is_refused(toy: Toy) -> None:
    done = CliRunner().invoke(gate, ["sabotage", "-C", str(toy.root), "--seed", "3"])
    assert done.exit_code == 2
    assert "--sample" in done.output


def test_over_many_seeds_every_bug_has_its_turn(toy: Toy) -> None:
    (spec,) = load(toy.root)
    planted = [(spec, Sabotage(str(number), f"{number}.patch", ("t.py",))) for number in range(5)]
    chosen = Counter(pick(planted, str(seed))[0][1].name for seed in range(500))
    assert set(chosen) == set("01234")
    assert min(chosen.values()) > 50


def test_the_sample_is_told_to_a_person(toy: Toy, tmp_path: Path) -> None:
    done = CliRunner().invoke(gate, ["sabotage", "-C", str(toy.root), "--sample", "--seed", "1"])
    assert "A sample: 1 of 4 planted bugs, by the seed 1." in done.output
