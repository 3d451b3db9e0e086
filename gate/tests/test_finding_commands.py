"""The commands `gate finding`: writing a finding down, listing, closing with a proof, accepting for a while."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gate.tests.commit_toys import Toy
from holdtrue_gate import finding_folder, finding_history, finding_toml
from holdtrue_gate.cli import gate
from holdtrue_gate.errors import ConfigError
from holdtrue_gate.findings import load
from holdtrue_gate.repo import Repository

NEW = ("--title", "A price is one too high", "--category", "data", "--severity", "B")
FOLDER = "regressions/F-0001-a-price-is-one-too-high"
TEST = f"{FOLDER}/test_a_price_is_one_too_high.py"
NODE = f"{TEST}::test_a_price_is_one_too_high"
BUGGY = "def price(n):\n    return n * 10 + 1\n"
FIXED = "def price(n):\n    return n * 10\n"
PROOF = "from shop import price\n\n\ndef test_a_price_is_one_too_high():\n    assert price(1) == 10\n"
VACUOUS = "from shop import price\n\n\ndef test_a_price_is_one_too_high():\n    assert price(1)\n"


def run(root: Path, *arguments: str) -> Result:
    name, *rest = arguments
    return CliRunner().invoke(gate, ["finding", name, "-C", str(root), *rest])


def answer(root: Path, *arguments: str) -> dict[str, object]:
    done = run(root, *arguments, "--json")
    return {"exit": done.exit_code, **json.loads(done.stdout)}


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    made = Toy(tmp_path / "repo")
    settings = (made.root / "pyproject.toml").read_text() + 'tests = ["regressions"]\n'
    made.commit("base", {"shop.py": BUGGY, "pyproject.toml": settings})
    return made


def closable(toy: Toy, test: str = PROOF, message: str = "fix: price\n\nFinding: F-0001") -> None:
    """An open finding whose fix and test are committed."""
    assert run(toy.root, "new", *NEW).exit_code == 0
    toy.commit(message, {"shop.py": FIXED, TEST: test})


# --- new


def test_a_new_finding_is_open_names_its_test_and_says_what_to_do_next(toy: Toy) -> None:
    done = run(toy.root, "new", *NEW)
    assert done.exit_code == 0, done.output
    (finding,) = load(toy.root)
    assert (finding.id, finding.status, finding.category, finding.severity) == ("F-0001", "open", "data", "B")
    assert (finding.title, finding.tests, finding.file) == (
        "A price is one too high",
        (NODE,),
        f"{FOLDER}/finding.toml",
    )
    for told in (TEST, "Finding: F-0001", "gate finding close F-0001"):
        assert told in done.output


def test_the_test_of_a_new_finding_fails_until_it_is_written(toy: Toy) -> None:
    run(toy.root, "new", *NEW)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", NODE]
    ran = subprocess.run(command, cwd=toy.root, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 1
    assert "F-0001: this test is not written yet" in ran.stdout


def test_a_skeleton_that_nobody_wrote_closes_no_finding(toy: Toy) -> None:
    run(toy.root, "new", *NEW)
    toy.commit("fix: price\n\nFinding: F-0001", {"shop.py": FIXED})
    said = answer(toy.root, "close", "F-0001")
    assert (said["exit"], said["result"], said["changed"]) == (1, "fail", False)
    assert "head-red" in str(said["why"])


def test_the_number_is_free_on_disk_on_every_branch_and_in_every_trailer(toy: Toy) -> None:
    finding = 'id = "F-0004"\ntitle = "x"\ncategory = "data"\nseverity = "A"\nstatus = "open"\n'
    toy.git("checkout", "-q", "-b", "other")
    toy.commit("a finding of another branch", {"regressions/F-0004-x/finding.toml": finding})
    toy.commit("and away", {"regressions/F-0004-x/finding.toml": None})
    (toy.root / "regressions" / "F-0004-x").rmdir()
    toy.git("checkout", "-q", "-")
    assert answer(toy.root, "new", *NEW)["finding"]["id"] == "F-0005"  # type: ignore[index]
    toy.git("checkout", "-q", "-b", "third")
    toy.commit("fix: y\n\nFinding: F-0030, F-0031", {})
    toy.git("checkout", "-q", "-")
    assert answer(toy.root, "new", *NEW)["finding"]["id"] == "F-0032"  # type: ignore[index]
    assert answer(toy.root, "new", *NEW)["finding"]["id"] == "F-0033"  # type: ignore[index]


def test_a_project_outside_of_git_and_one_without_a_commit_get_their_first_finding(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    assert run(tmp_path / "plain", "new", *NEW).exit_code == 0
    assert run(Toy(tmp_path / "unborn").root, "new", *NEW).exit_code == 0


def test_two_at_once_never_take_the_same_number(tmp_path: Path) -> None:
    def make(number: int) -> str:
        return finding_folder.make(tmp_path, finding_folder.Draft(f"title {number}", "data", "A"), ()).id

    with ThreadPoolExecutor(16) as pool:
        ids = list(pool.map(make, range(64)))
    assert sorted(ids) == [f"F-{number:04d}" for number in range(1, 65)]
    assert [one.id for one in load(tmp_path)] == sorted(ids)


def test_two_processes_at_once_never_take_the_same_number(toy: Toy) -> None:
    command = [sys.executable, "-m", "holdtrue_gate", "finding", "new", "-C", str(toy.root), *NEW, "--json"]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(4)]
    outputs = [child.communicate(timeout=60)[0] for child in children]
    ids = [json.loads(output)["finding"]["id"] for output in outputs]
    assert sorted(ids) == ["F-0001", "F-0002", "F-0003", "F-0004"]


def test_findings_that_cannot_be_read_take_no_further_one(toy: Toy) -> None:
    toy.write({"regressions/F-0001-x/finding.toml": "id = 1\n"})
    assert run(toy.root, "new", *NEW).exit_code == 2
    assert [path.name for path in (toy.root / "regressions").iterdir()] == ["F-0001-x"]


def test_nothing_is_written_over(tmp_path: Path) -> None:
    kept = tmp_path / "regressions" / "F-0001"
    kept.mkdir(parents=True)
    (kept / "notes.txt").write_text("mine")
    made = finding_folder.make(tmp_path, finding_folder.Draft("x", "data", "A"), ())
    assert made.id == "F-0002"
    assert (kept / "notes.txt").read_text() == "mine"


def test_a_title_of_any_letters_and_quotes_is_kept_whole(toy: Toy) -> None:
    title = 'Größe "0" \\ wird \'\'\' zu """ 北京'
    said = answer(toy.root, "new", "--title", title, *NEW[2:])
    assert said["exit"] == 0
    (finding,) = load(toy.root)
    assert finding.title == title
    assert finding.file == "regressions/F-0001-groe-0-wird-zu/finding.toml"
    skeleton = toy.root / finding.tests[0].partition("::")[0]
    compile(skeleton.read_text(encoding="utf-8"), "skeleton", "exec")


@pytest.mark.parametrize(
    ("title", "slug"),
    [
        ("The store's lock is kept", "the-stores-lock-is-kept"),
        ("北京", "untitled"),
        ("a" * 100, "a" * 60),
        ("word " * 30, "-".join(["word"] * 12)),
    ],
)
def test_the_slug_is_short_ascii_words(title: str, slug: str) -> None:
    assert finding_folder.slug_of(title) == slug


def test_tests_that_exist_are_named_instead_of_a_skeleton_and_a_name_names_the_skeleton(toy: Toy) -> None:
    toy.write({"test_shop.py": "def test_it():\n    assert 1\n"})
    said = answer(toy.root, "new", *NEW, "--test", "test_shop.py::test_it")
    assert said["files"] == [f"{FOLDER}/finding.toml"]
    assert said["finding"]["tests"] == ["test_shop.py::test_it"]  # type: ignore[index]
    said = answer(toy.root, "new", *NEW, "--test", "test_ten_is_ten")
    assert said["finding"]["tests"] == [  # type: ignore[index]
        "regressions/F-0002-a-price-is-one-too-high/test_ten_is_ten.py::test_ten_is_ten"
    ]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--test", "test_nowhere.py::test_it"), "there is no such file"),
        (("--test", "../shop.py::test_it"), "there is no such file"),
        (("--test", "it works"), "neither a node id nor the name of one test"),
        (("--test", "test_a", "--test", "test_b"), "neither a node id nor the name of one test"),
        (("--invariant", "INV-001"), "has no invariants/"),
        (("--title", "two\nlines"), "one line of text"),
        (("--title", "  "), "one line of text"),
        (("--category", "fun"), "Invalid value for '--category'"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error_and_leaves_nothing(
    toy: Toy, arguments: tuple[str, ...], told: str
) -> None:
    done = run(toy.root, "new", *NEW, *arguments)
    assert done.exit_code == 2
    assert told in done.output
    assert not (toy.root / "regressions").exists()


# --- list and show


def listed(root: Path, *arguments: str) -> list[str]:
    return [entry["id"] for entry in answer(root, "list", *arguments)["findings"]]  # type: ignore[attr-defined]


def test_the_list_is_filtered_and_gate_findings_is_the_same(toy: Toy) -> None:
    kinds = (("data", "A", "open"), ("trust", "B", "fixed"), ("data", "C", "accepted"), ("resource", "A", "accepted"))
    for number, (category, severity, status) in enumerate(kinds, 1):
        text = f'id = "F-000{number}"\ntitle = "t"\ncategory = "{category}"\nseverity = "{severity}"\n'
        text += f'status = "{status}"\n'
        text += 'tests = ["a.py"]\n' if status == "fixed" else ""
        text += f'reason = "r"\nexpiry = 20{10 if category == "data" else 99}-01-01\n' if status == "accepted" else ""
        toy.write({f"regressions/F-000{number}-x/finding.toml": text})
    assert listed(toy.root) == ["F-0001", "F-0002", "F-0003", "F-0004"]
    # An acceptance that has run out is open again.
    assert listed(toy.root, "--open") == ["F-0001", "F-0003"]
    assert listed(toy.root, "--category", "data", "--severity", "C") == ["F-0003"]
    assert listed(toy.root, "--category", "data", "--category", "trust") == ["F-0001", "F-0002", "F-0003"]
    short = CliRunner().invoke(gate, ["findings", "-C", str(toy.root), "--open", "--json"])
    assert short.stdout == run(toy.root, "list", "--open", "--json").stdout
    assert run(toy.root, "list", "--category", "trust", "--severity", "A").output == "No findings.\n"


def test_show_tells_the_finding_and_the_commits_that_name_it(toy: Toy) -> None:
    closable(toy)
    sha = toy.git("rev-parse", "HEAD").strip()
    said = answer(toy.root, "show", "f-0001")
    assert (said["exit"], said["commits"]) == (0, [sha])
    shown = run(toy.root, "show", "F-0001").output
    for told in ("A price is one too high", "a wrong or a silently missing result", NODE, sha):
        assert told in shown


def test_what_a_title_holds_is_shown_and_not_obeyed(toy: Toy) -> None:
    run(toy.root, "new", "--title", "[red]x[/] [bold", *NEW[2:])
    path = toy.root / next(one.file for one in load(toy.root))
    path.write_text(path.read_text().replace("[bold", "[bold \\u001b[2J"))
    for command in (("show", "F-0001"), ("list",)):
        shown = run(toy.root, *command).output
        assert "\x1b" not in shown
        assert "[red]x[/]" in shown


def test_a_finding_that_is_not_there_is_a_usage_error(toy: Toy) -> None:
    for command in (("show", "F-0009"), ("close", "F-0009")):
        done = run(toy.root, *command)
        assert done.exit_code == 2
        assert "no finding of this project" in done.output


# --- close


def test_a_finding_is_closed_by_the_commit_that_proves_it(toy: Toy) -> None:
    closable(toy)
    said = answer(toy.root, "close", "F-0001")
    assert (said["exit"], said["result"], said["changed"], said["notes"]) == (0, "pass", True, [])
    assert said["proof"]["commit"] == toy.git("rev-parse", "HEAD").strip()  # type: ignore[index]
    assert load(toy.root)[0].status == "fixed"
    again = answer(toy.root, "close", "F-0001")
    assert (again["exit"], again["changed"]) == (0, False)


@pytest.mark.parametrize(
    ("test", "message", "told"),
    [
        (VACUOUS, "fix: price\n\nFinding: F-0001", "is vacuous"),
        (PROOF, "fix: price", "no commit has the trailer `Finding: F-0001`"),
        (PROOF, "fix: price\n\nFinding: F-0002", "no commit has the trailer `Finding: F-0001`"),
        (PROOF.replace("test_a", "helper"), "fix: price\n\nFinding: F-0001", "pytest does not collect"),
    ],
)
def test_a_finding_without_a_proof_stays_open_and_the_answer_says_why(
    toy: Toy, test: str, message: str, told: str
) -> None:
    closable(toy, test, message)
    before = (toy.root / FOLDER / "finding.toml").read_bytes()
    said = answer(toy.root, "close", "F-0001")
    assert (said["exit"], said["result"], said["changed"]) == (1, "fail", False)
    assert told in str(said["why"])
    assert (toy.root / FOLDER / "finding.toml").read_bytes() == before


def test_a_finding_whose_tests_cannot_be_imported_is_not_judged(toy: Toy) -> None:
    closable(toy, "import nowhere\n" + PROOF)
    assert run(toy.root, "close", "F-0001").exit_code == 3
    assert load(toy.root)[0].status == "open"


def test_a_proof_commit_can_be_named_and_a_missing_trailer_is_said(toy: Toy) -> None:
    closable(toy, message="fix: price")
    said = answer(toy.root, "close", "F-0001", "--proof-commit", "HEAD")
    assert (said["exit"], said["changed"]) == (0, True)
    assert "has no trailer `Finding: F-0001`" in str(said["notes"])
    assert run(toy.root, "close", "F-0001", "--proof-commit", "nowhere").exit_code == 2


# --- accept


def test_an_accepted_finding_has_a_reason_and_a_last_day(toy: Toy) -> None:
    run(toy.root, "new", *NEW)
    done = run(toy.root, "accept", "F-0001", "--reason", 'nobody "has" it', "--expiry", "2999-12-31")
    assert done.exit_code == 0, done.output
    (finding,) = load(toy.root)
    assert (finding.status, finding.reason, finding.expiry) == ("accepted", 'nobody "has" it', date(2999, 12, 31))
    assert run(toy.root, "accept", "F-0001", "--reason", "more", "--expiry", "2999-12-30").exit_code == 0
    assert load(toy.root)[0].reason == "more"


def test_an_acceptance_without_a_reason_in_the_past_or_of_a_fixed_finding_is_refused(toy: Toy) -> None:
    closable(toy)
    for reason, expiry in (("  ", "2999-01-01"), ("r", "2001-01-01"), ("r", "soon")):
        assert run(toy.root, "accept", "F-0001", "--reason", reason, "--expiry", expiry).exit_code == 2
    assert run(toy.root, "close", "F-0001").exit_code == 0
    assert run(toy.root, "accept", "F-0001", "--reason", "r", "--expiry", "2999-01-01").exit_code == 2
    assert load(toy.root)[0].status == "fixed"


def test_closing_an_accepted_finding_ends_the_acceptance(toy: Toy) -> None:
    closable(toy)
    assert run(toy.root, "accept", "F-0001", "--reason", "r", "--expiry", "2999-01-01").exit_code == 0
    assert run(toy.root, "close", "F-0001").exit_code == 0
    (finding,) = load(toy.root)
    assert (finding.status, finding.reason, finding.expiry) == ("fixed", None, None)


# --- the file


COMMENTED = """\
# found by a fuzzer
id   = "F-0001"      # first
title = 'x = "open"'
status = "open"   # since May
'category' = "data"
tests = [
    # one line each
    "a.py::test_a",
]
notes = \"\"\"
status = "no key"
\"\"\"

[table]
status = "other"
"""


def test_a_change_keeps_comments_order_and_every_other_byte() -> None:
    fresh = finding_toml.edited(COMMENTED, {"status": "fixed"})
    assert fresh == COMMENTED.replace('status = "open"   #', 'status = "fixed"   #')


def test_new_keys_follow_the_status_and_leave_again_without_a_trace() -> None:
    accepted = finding_toml.edited(COMMENTED, {"status": "accepted", "reason": "a # b\n", "expiry": date(2030, 1, 2)})
    assert 'status = "accepted"   # since May\nreason = "a # b\\n"\nexpiry = 2030-01-02\n' in accepted
    back = finding_toml.edited(accepted, {"status": "open"}, ["reason", "expiry"])
    assert back == COMMENTED


def test_line_ends_of_windows_stay_and_a_file_without_a_last_line_end_is_no_trap() -> None:
    text = 'id = "F-0001"\r\nstatus = "open"'
    assert finding_toml.edited(text, {"status": "open", "reason": "r"}) == text + '\r\nreason = "r"\r\n'


def test_a_line_separator_inside_a_comment_hides_no_key() -> None:
    text = '# a\u2028status = "no"\nstatus = "open"\n'
    assert finding_toml.edited(text, {"status": "fixed"}) == text.replace('"open"', '"fixed"')


def test_a_file_that_would_say_anything_else_afterwards_is_not_changed(tmp_path: Path) -> None:
    for text in ("status = ", 'a = {status = "open"', '"sta\\u0074us" = "open"\n'):
        path = tmp_path / "finding.toml"
        path.write_text(text)
        with pytest.raises(ConfigError):
            finding_toml.write(path, {"status": "fixed"})
        assert path.read_text() == text
        assert [entry.name for entry in tmp_path.iterdir()] == ["finding.toml"]


@pytest.mark.parametrize("value", ['a "b" \\ c', "tab\tand\nnewline", "\x7f\x00\x1f", "北京 \u2028", "'''"])
def test_a_text_of_any_characters_is_read_back(value: str) -> None:
    assert tomllib.loads(f"k = {finding_toml.literal(value)}") == {"k": value}


# --- the history


def test_trailers_are_read_as_git_reads_them_and_prose_is_none(toy: Toy) -> None:
    toy.commit("one\n\nFinding: F-0002", {})
    toy.commit("two\n\nfinding: F-0003 and F-0004\nSigned-off-by: T", {})
    toy.commit("three\n\nFinding: F-0005\n\nbut this is the last paragraph", {})
    toy.commit("Finding: F-0006", {})
    with Repository(toy.root) as repository:
        found = [sorted(mention.findings) for mention in finding_history.mentions(repository)]
    assert found == [["F-0003", "F-0004"], ["F-0002"]]
