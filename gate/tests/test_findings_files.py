"""Findings: what `finding.toml` may say, what is refused, and how `gate findings` lists them."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pytest

from gate.tests.spec_toys import Toy
from holdtrue_gate.findings import Detects, FindingError, load

GOOD = """\
id = "F-0007"
title = "An update kept the vector of the old text"
category = "data"
severity = "A"
invariant = "INV-001"
status = "fixed"
tests = ["regressions/F-0007-stale-vector/test_stale_vector.py::test_the_vector_follows_the_text"]
expected_at_parent = "assertion"
detects = "19/20"
"""
ACCEPTED = GOOD.replace('"fixed"', '"accepted"') + 'reason = "No user has it."\nexpiry = 2030-01-31\n'
FILE = "regressions/F-0007-stale-vector/finding.toml"


def project(root: Path, text: str, folder: str = "F-0007-stale-vector") -> Path:
    path = root / "regressions" / folder / "finding.toml"
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    return root


def problems_of(root: Path, invariants: set[str] | None = None) -> list[str]:
    with pytest.raises(FindingError) as caught:
        load(root, invariants)
    assert caught.value.exit_code == 2
    return caught.value.problems


def test_a_good_finding_is_read_whole(tmp_path: Path) -> None:
    (finding,) = load(project(tmp_path, GOOD), {"INV-001"})

    assert (finding.id, finding.status, finding.invariant) == ("F-0007", "fixed", "INV-001")
    assert finding.detects == Detects(at_least=19, runs=20)
    assert finding.file == FILE


def test_what_is_left_out_has_the_documented_default(tmp_path: Path) -> None:
    lines = [line for line in GOOD.splitlines() if not line.startswith(("invariant", "expected", "detects"))]
    (finding,) = load(project(tmp_path, "\n".join(lines)))

    assert finding.expected_at_parent == ("assertion",)
    assert finding.detects is None
    assert finding.invariant is None


def test_a_test_may_be_expected_to_fail_in_one_of_several_ways(tmp_path: Path) -> None:
    (finding,) = load(project(tmp_path, GOOD.replace('"assertion"', '["assertion", "sqlite3.IntegrityError"]')))

    assert finding.expected_at_parent == ("assertion", "sqlite3.IntegrityError")


def test_an_open_finding_needs_no_test_yet(tmp_path: Path) -> None:
    lines = [line for line in GOOD.splitlines() if not line.startswith("tests")]
    (finding,) = load(project(tmp_path, "\n".join(lines).replace("fixed", "open")))

    assert finding.tests == ()


def test_an_accepted_finding_expires_after_its_last_day(tmp_path: Path) -> None:
    (finding,) = load(project(tmp_path, ACCEPTED))

    assert not finding.is_expired(datetime.date(2030, 1, 31))
    assert finding.is_expired(datetime.date(2030, 2, 1))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("F-0007", "F-7", "`id` is 'F-7'; write F- and four digits"),
        ('"data"', '"fun"', "`category` is 'fun'; write one of"),
        ('"fixed"', '"closed"', "`status` is 'closed'; write one of open, fixed, accepted."),
        ('"fixed"', '"accepted"', "`reason` is missing."),
        ('"fixed"', '"accepted"', "`expiry` is missing."),
        ('"fixed"', '"fixed"\nexpiry = 2030-01-31', "`expiry` belongs to an accepted finding and this one is fixed"),
        (
            '"fixed"',
            '"accepted"\nreason = "x"\nexpiry = "2030-01-31"',
            "`expiry` is a text; write a date without quotes",
        ),
        ('"assertion"', '"some error"', "write assertion, hang, crash, or the exact type of an exception"),
        ('"19/20"', '"often"', "write k/n, for example 19/20"),
        ('"19/20"', '"21/20"', "k cannot be more than n."),
        ('"19/20"', '"0/20"', "write k/n, for example 19/20"),
        ("tests = [", "tests = [] # ", "`tests` is empty; name at least one."),
        ('"assertion"', "[]", "`expected_at_parent` is empty; name at least one."),
        ('"assertion"', '["hang", "some error"]', "write assertion, hang, crash, or the exact type of an exception"),
        ("tests = [", "test = [", "`test` is not a key here; did you mean `tests`?"),
        ("INV-001", "INV-999", "`invariant` is INV-999, which no spec has"),
    ],
)
def test_a_bad_finding_is_refused_with_what_to_write_instead(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in GOOD
    problems = problems_of(project(tmp_path, GOOD.replace(old, new, 1)), {"INV-001"})

    assert any(said in problem for problem in problems), problems
    assert all(problem.startswith(f"{FILE}: ") for problem in problems)


def test_the_folder_carries_the_id_and_a_slug(tmp_path: Path) -> None:
    assert "the folder must be called F-0007-some-slug" in problems_of(project(tmp_path / "1", GOOD, "F-0008-x"))[0]
    assert "the folder must be called F-0007-some-slug" in problems_of(project(tmp_path / "2", GOOD, "F-0007"))[0]


def test_all_problems_of_all_findings_are_reported_at_once(tmp_path: Path) -> None:
    project(tmp_path, GOOD.replace('"data"', '"fun"').replace('"A"', '"E"'))
    project(tmp_path, GOOD, "F-0007-again")
    (tmp_path / "regressions" / "F-0009-empty").mkdir()
    text = "\n".join(problems_of(tmp_path))

    for part in ("`category` is 'fun'", "`severity` is 'E'", "F-0009-empty/finding.toml: is missing"):
        assert part in text


def test_two_findings_cannot_share_an_id(tmp_path: Path) -> None:
    project(tmp_path, GOOD)
    project(tmp_path, GOOD, "F-0007-again")
    assert "have the same id F-0007" in problems_of(tmp_path)[0]


def test_a_project_without_findings_has_none(tmp_path: Path) -> None:
    assert load(tmp_path) == []


def test_the_command_lists_them_and_says_which_acceptance_has_run_out(tmp_path: Path) -> None:
    toy = Toy.build(tmp_path)
    toy.write("regressions/F-0007-stale-vector/finding.toml", ACCEPTED.replace("2030", "2020"))
    toy.write("regressions/F-0008-open/finding.toml", GOOD.replace("F-0007", "F-0008").replace("fixed", "open"))

    listed = toy.gate("findings")
    assert listed.exit_code == 0, listed.output
    assert "F-0007" in listed.output
    assert "expired" in listed.output

    findings = json.loads(toy.gate("findings", "--json").output)["findings"]
    assert [(entry["id"], entry["status"], entry["expired"]) for entry in findings] == [
        ("F-0007", "accepted", True),
        ("F-0008", "open", False),
    ]


def test_the_command_refuses_bad_findings_with_exit_code_two(tmp_path: Path) -> None:
    toy = Toy.build(tmp_path)
    toy.write(FILE, GOOD.replace("fixed", "closed"))

    refused = toy.gate("findings")
    assert refused.exit_code == 2
    assert "`status` is 'closed'" in refused.output
