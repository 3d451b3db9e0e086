"""The specs of the invariants: one TOML file each in `invariants/`, read and validated here and nowhere else.

`invariants/schema.json` says the same to editors. Every mistake of every file is reported at once. A spec may carry a
review stamp, the fingerprint of its normative text as it was last reviewed: when that text changes, the enforcer, the
properties and the planted bugs may no longer be about it, so the stamp is stale until somebody has looked again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from holdtrue_gate.fields import Form, ProblemsError, TableReader, read_toml

FOLDER = "invariants"

# What each word of a spec says to a person who has never seen the project.
CATEGORIES = {
    "data": "what was stored is lost, doubled, changed or contradicts itself",
    "trust": "something leaks, runs, or is claimed although it is not so",
    "concurrency": "processes or threads harm or hold up each other",
    "resource": "time, memory, disk or processes grow without a bound",
    "compatibility": "it works in one place and not in another",
}
SEVERITIES = {
    "A": "irreversible: loss, corruption, disclosure or execution of foreign code",
    "B": "a wrong or a silently missing result",
    "C": "a stall, starvation or an unbounded resource",
    "D": "portability",
}
CRASH_MODELS = {
    "none": "nothing is killed; the promise is about what running processes do",
    "process": "any process may be killed at any instant (SIGKILL); what it had handed to the operating system stays",
    "power": "the power may go at any instant; writes that were not yet synced to the disk may be lost",
}

ID = Form(r"^INV-[0-9]{3,}\Z", "write INV- and three digits, for example INV-001")
SLUG = Form(r"^[a-z0-9]+(-[a-z0-9]+)*\Z", "write lower-case words joined by hyphens")
FUNCTION = Form(
    r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*\Z",
    "write module:function, for example shop.stock:reserve or shop.stock:Shelf.reserve",
)
NODE_ID = Form(
    r"^(?!/)(?!([^:]*/)?\.\.?/)[^:\\\n]+\.py::[^\n]*\S\Z",
    "write a pytest node id, for example properties/test_x.py::test_name",
)
FILE_OR_NODE_ID = Form(
    r"^(?!/)(?!([^:]*/)?\.\.?/)[^:\\\n]+\.py(::[^\n]*\S)?\Z",
    "write a test file or a pytest node id, relative to the project",
)
FAILPOINT = Form(
    r"^[a-z][a-z0-9_]*(\.[a-z0-9_]+)*\Z", "write lower-case words joined by dots, for example writer.after_commit"
)
PATCH = Form(
    r"^(?!/)(?!([^:]*/)?\.\.?/)[^:\\\n]+\.patch\Z",
    f"write the path of a .patch file, for example {FOLDER}/sabotage/INV-001-x.patch",
)
SHA256 = Form(r"^[0-9a-f]{64}\Z", "let `gate trace --stamp` write it")


class SpecError(ProblemsError):
    """One or more specs cannot be used."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("spec-invalid", problems)


@dataclass(frozen=True)
class Sabotage:
    """A planted bug: a patch to the product, and the properties that must go red under it."""

    name: str
    patch: str
    caught_by: tuple[str, ...]


@dataclass(frozen=True)
class Spec:
    """One invariant. Paths are relative to the project and use `/`."""

    id: str
    slug: str
    category: str
    severity: str
    statement: str
    violated_by: str
    crash_model: str
    enforced_by: tuple[str, ...]
    properties: tuple[str, ...]
    failpoints: tuple[str, ...]
    sabotage: tuple[Sabotage, ...]
    reviewed_sha256: str | None
    file: str

    @property
    def name(self) -> str:
        """The slug in words: `acked-add-survives` reads "acked add survives"."""
        return self.slug.replace("-", " ")

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the text that a reviewer agreed to; how its lines are broken does not count."""
        normative = [self.statement, self.violated_by, self.crash_model, self.severity, self.category]
        text = json.dumps([" ".join(part.split()) for part in normative], ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode("utf-8")).hexdigest()

    @property
    def review(self) -> str:
        """`never`, `stale` or `current`."""
        if self.reviewed_sha256 is None:
            return "never"
        return "current" if self.reviewed_sha256 == self.fingerprint else "stale"

    def as_dict(self) -> dict[str, object]:
        """The shape that `--json` prints: the keys of the file, and where it stands."""
        return {
            "id": self.id,
            "slug": self.slug,
            "category": self.category,
            "severity": self.severity,
            "statement": self.statement,
            "violated_by": self.violated_by,
            "crash_model": self.crash_model,
            "enforced_by": list(self.enforced_by),
            "properties": list(self.properties),
            "failpoints": list(self.failpoints),
            "sabotage": [
                {"name": bug.name, "patch": bug.patch, "caught_by": list(bug.caught_by)} for bug in self.sabotage
            ],
            "review": {"state": self.review, "fingerprint": self.fingerprint},
            "file": self.file,
        }


def load(root: Path) -> list[Spec]:
    """Every spec of the project, ordered by id. Raises `SpecError` with all problems of all files."""
    problems: list[str] = []
    folder = root / FOLDER
    if not folder.is_dir():
        raise SpecError([f"{FOLDER}/: is no folder here; make it, with one spec a file, or name the project with -C."])
    specs: list[Spec] = []
    for path in sorted(folder.glob("*.toml")):
        spec = _read(path, problems)
        if spec is not None:
            specs.append(spec)
    if not specs and not problems:
        problems.append(f"{FOLDER}/: holds no spec; write one as {FOLDER}/INV-001-some-slug.toml.")
    problems += _repeated(specs)
    if problems:
        raise SpecError(problems)
    return sorted(specs, key=order)


def order(spec: Spec) -> tuple[int, str]:
    """By number: INV-1000 comes after INV-999."""
    return int(spec.id.removeprefix("INV-")), spec.id


def find(specs: list[Spec], id_: str) -> Spec:
    """The spec with this id (case does not matter), or one with this slug. Raises `SpecError` when there is none."""
    for spec in specs:
        if id_.upper() == spec.id or id_ == spec.slug:
            return spec
    known = ", ".join(spec.id for spec in specs)
    raise SpecError([f"{id_}: no spec has this id; the book holds {known}."])


def stamp(root: Path, spec: Spec) -> None:
    """Write the review stamp of the spec's present text into its file, leaving every other byte as it is."""
    path = root / spec.file
    text = path.read_bytes().decode("utf-8")
    newline = "\r\n" if "\r\n" in text else "\n"
    if spec.reviewed_sha256 is not None:
        stamped = re.sub(rf'(sha256\s*=\s*["\']){spec.reviewed_sha256}(["\'])', rf"\g<1>{spec.fingerprint}\g<2>", text)
    else:
        end = "" if text.endswith("\n") else newline
        stamped = f'{text}{end}{newline}[review]{newline}sha256 = "{spec.fingerprint}"{newline}'
    path.write_bytes(stamped.encode("utf-8"))
    problems: list[str] = []
    written = _read(path, problems)
    if written is None or written.review != "current" or written.fingerprint != spec.fingerprint:
        path.write_bytes(text.encode("utf-8"))
        raise SpecError(
            [f'{spec.file}: the stamp could not be written; add [review] with sha256 = "{spec.fingerprint}".']
        )


def _read(path: Path, problems: list[str]) -> Spec | None:
    where = f"{FOLDER}/{path.name}"
    before = len(problems)
    table = read_toml(path, where, problems)
    if table is None:
        return None
    reader = TableReader(table, where, problems)
    id_ = reader.text("id", ID)
    slug = reader.text("slug", SLUG)
    category = reader.choice("category", CATEGORIES)
    severity = reader.choice("severity", SEVERITIES)
    statement = reader.text("statement")
    violated_by = reader.text("violated_by")
    crash_model = reader.choice("crash_model", CRASH_MODELS)
    enforced_by = reader.texts("enforced_by", FUNCTION)
    properties = reader.texts("properties", NODE_ID)
    failpoints = reader.texts("failpoints", FAILPOINT, required=False)
    sabotage = tuple(_sabotage(bug) for bug in reader.tables("sabotage"))
    review = reader.table("review")
    reviewed = None
    if review is not None:
        reviewed = review.text("sha256", SHA256)
        review.finish()
    reader.finish()
    names = [bug.name for bug in sabotage if bug.name]
    for name in sorted({name for name in names if names.count(name) > 1}):
        reader.note(f"two planted bugs are called {name!r}; rename one.")
    if id_ and slug and path.name != f"{id_}-{slug}.toml":
        reader.note(f"the file must be called {id_}-{slug}.toml, after its id and slug; rename it.")
    if len(problems) > before:
        return None
    return Spec(
        id=id_,
        slug=slug,
        category=category,
        severity=severity,
        statement=statement,
        violated_by=violated_by,
        crash_model=crash_model,
        enforced_by=enforced_by,
        properties=properties,
        failpoints=failpoints,
        sabotage=sabotage,
        reviewed_sha256=reviewed,
        file=where,
    )


def _sabotage(reader: TableReader) -> Sabotage:
    bug = Sabotage(
        name=reader.text("name", SLUG),
        patch=reader.text("patch", PATCH),
        caught_by=reader.texts("caught_by", FILE_OR_NODE_ID, filled=True),
    )
    reader.finish()
    return bug


def _repeated(specs: list[Spec]) -> list[str]:
    problems: list[str] = []
    for key in ("id", "slug"):
        files: dict[str, list[str]] = defaultdict(list)
        for spec in specs:
            files[getattr(spec, key)].append(spec.file)
        problems += [
            f"{', '.join(names)}: have the same {key} {value!r}; give each its own."
            for value, names in files.items()
            if len(names) > 1
        ]
    return problems
