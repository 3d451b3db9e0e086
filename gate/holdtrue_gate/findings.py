"""The findings: one folder each in `regressions/`, holding `finding.toml` and the tests that show the fault.

A finding is open, fixed or accepted. Accepted needs a reason and an expiry, so that nobody has to remember to look
again. Every mistake of every file is reported at once; what a release makes of a finding is not decided here.
"""

from __future__ import annotations

import datetime
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from holdtrue_gate.fields import Form, ProblemsError, TableReader, read_toml
from holdtrue_gate.spec import CATEGORIES, FILE_OR_NODE_ID, ID, SEVERITIES

FOLDER = "regressions"
FILE = "finding.toml"
STATUSES = ("open", "fixed", "accepted")

FINDING_ID = Form(r"^F-[0-9]{4,}\Z", "write F- and four digits, for example F-0001")
EXPECTED = Form(
    r"^(assertion|hang|crash|[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*)\Z",
    "write assertion, hang, crash, or the exact type of an exception, for example sqlite3.IntegrityError",
)
DETECTS = Form(r"^[1-9][0-9]*/[1-9][0-9]*\Z", "write k/n, for example 19/20: red in at least k of n runs")
_DIRECTORY = re.compile(r"(?P<id>F-[0-9]{4,})-[a-z0-9]+(-[a-z0-9]+)*\Z")


class FindingError(ProblemsError):
    """One or more findings cannot be used."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("finding-invalid", problems)


@dataclass(frozen=True)
class Detects:
    """How often a test of a race shows it where the fault is: at least `at_least` of `runs`."""

    at_least: int
    runs: int

    def __str__(self) -> str:
        return f"{self.at_least}/{self.runs}"


@dataclass(frozen=True)
class Finding:
    """One fault that was found. `file` is relative to the project."""

    id: str
    title: str
    category: str
    severity: str
    invariant: str | None
    status: str
    reason: str | None
    expiry: datetime.date | None
    tests: tuple[str, ...]
    expected_at_parent: tuple[str, ...]
    detects: Detects | None
    file: str

    def is_expired(self, today: datetime.date) -> bool:
        """An accepted finding counts through its expiry day and is open again after it."""
        return self.status == "accepted" and self.expiry is not None and today > self.expiry

    def as_dict(self, today: datetime.date) -> dict[str, object]:
        """The shape that `--json` prints."""
        return {
            "id": self.id,
            "title": self.title,
            "category": self.category,
            "severity": self.severity,
            "invariant": self.invariant,
            "status": self.status,
            "reason": self.reason,
            "expiry": self.expiry.isoformat() if self.expiry else None,
            "expired": self.is_expired(today),
            "tests": list(self.tests),
            "expected_at_parent": list(self.expected_at_parent),
            "detects": str(self.detects) if self.detects else None,
            "file": self.file,
        }


def load(root: Path, invariants: set[str] | None = None) -> list[Finding]:
    """Every finding of the project, ordered by id; none when there is no such folder.

    With `invariants`, a finding that names another one is refused. Raises `FindingError` with all problems at once.
    """
    problems: list[str] = []
    found: list[Finding] = []
    folder = root / FOLDER
    for path in sorted(folder.glob("F-*")) if folder.is_dir() else []:
        finding = _read(path, root, problems, invariants)
        if finding is not None:
            found.append(finding)
    files: dict[str, list[str]] = defaultdict(list)
    for finding in found:
        files[finding.id].append(finding.file)
    problems += [
        f"{', '.join(names)}: have the same id {id_}; give each its own."
        for id_, names in files.items()
        if len(names) > 1
    ]
    if problems:
        raise FindingError(problems)
    return sorted(found, key=lambda finding: int(finding.id.removeprefix("F-")))


def _read(folder: Path, root: Path, problems: list[str], invariants: set[str] | None) -> Finding | None:
    where = (folder / FILE).relative_to(root).as_posix()
    before = len(problems)
    if not (folder / FILE).is_file():
        problems.append(f"{where}: is missing; every folder {FOLDER}/F-... holds one.")
        return None
    table = read_toml(folder / FILE, where, problems)
    if table is None:
        return None
    reader = TableReader(table, where, problems)
    id_ = reader.text("id", FINDING_ID)
    title = reader.text("title")
    category = reader.choice("category", CATEGORIES)
    severity = reader.choice("severity", SEVERITIES)
    invariant = reader.text("invariant", ID, required=False) or None
    status = reader.choice("status", STATUSES)
    reason = reader.text("reason", required=status == "accepted") or None
    expiry = reader.date("expiry", required=status == "accepted")
    tests = reader.texts("tests", FILE_OR_NODE_ID, required=status == "fixed", filled=status == "fixed")
    expected = reader.text_or_texts("expected_at_parent", EXPECTED, default="assertion")
    detects = _detects(reader)
    reader.finish()
    if expiry is not None and status in ("open", "fixed"):
        reader.note(f"`expiry` belongs to an accepted finding and this one is {status}; take it out.")
    if invariant and invariants is not None and invariant not in invariants:
        reader.note(f"`invariant` is {invariant}, which no spec has; correct it or write the spec.")
    match = _DIRECTORY.match(folder.name)
    if match is None or (id_ and match["id"] != id_):
        reader.note(f"the folder must be called {id_ or 'F-0001'}-some-slug, after its id; rename it.")
    if len(problems) > before:
        return None
    return Finding(
        id=id_,
        title=title,
        category=category,
        severity=severity,
        invariant=invariant,
        status=status,
        reason=reason,
        expiry=expiry,
        tests=tests,
        expected_at_parent=expected,
        detects=detects,
        file=where,
    )


def _detects(reader: TableReader) -> Detects | None:
    text = reader.text("detects", DETECTS, required=False)
    if not text:
        return None
    at_least, runs = (int(number) for number in text.split("/"))
    if at_least > runs:
        reader.note(f"`detects` is {text!r}; k cannot be more than n.")
        return None
    return Detects(at_least, runs)
