"""The plan of a commit: its kind, what is product and what is test-side, which tests are new, and the two trees to
replay."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from holdtrue_gate import config as settings
from holdtrue_gate import declared, symbols, testsource
from holdtrue_gate.config import Config
from holdtrue_gate.repo import Commit, Entry, Listing, Repository
from holdtrue_gate.testsource import Fixture, TestFile
from holdtrue_gate.verdict import Expectation, Layout, Looks

_FIX_SUBJECT = re.compile(r"(?:fix|fixes|fixed)\b(?!-)", re.IGNORECASE)


class Kind(StrEnum):
    """What a commit claims to be."""

    FIX = "fix"
    FEATURE = "feature"
    TEST_ONLY = "test-only"
    OTHER = "other"


@dataclass(frozen=True)
class Choice:
    """Which tests are new, as prefixes of node ids.

    `added`: files, classes and functions that the parent does not have. `changed`: functions whose source or fixtures
    changed.
    `widened`: functions of which only the parametrisation changed; among their ids those absent at the parent are new.
    """

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    widened: tuple[str, ...] = ()

    @property
    def prefixes(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.added, *self.changed, *self.widened)

    @property
    def files(self) -> tuple[str, ...]:
        """The files they lie in, sorted."""
        return tuple(sorted({prefix.partition("::")[0] for prefix in self.prefixes}))


@dataclass(frozen=True)
class Plan:
    """Everything that the replays of one commit need. Paths are relative to the project."""

    commit: Commit
    parent: str | None
    kind: Kind
    config: Config
    has_finding: bool = False
    product: tuple[str, ...] = ()
    test_side: tuple[str, ...] = ()
    choice: Choice = field(default_factory=Choice)
    head: Mapping[str, Entry] = field(default_factory=dict)
    overlay: Mapping[str, Entry] = field(default_factory=dict)
    base: Mapping[str, Entry] = field(default_factory=dict)
    prefix: str = ""
    around_head: Mapping[str, Entry] = field(default_factory=dict)
    around_base: Mapping[str, Entry] = field(default_factory=dict)
    first_party: frozenset[str] = frozenset()
    layout: Layout = field(default_factory=lambda: Layout(Config().test_rules))
    source: tuple[str, ...] = (".",)
    expectations: Mapping[str, Expectation] = field(default_factory=dict)
    looks: Mapping[str, Looks] = field(default_factory=dict)

    def tree(self, side: str) -> dict[str, Entry]:
        """The whole listing of `head`, `parent` (product of the parent, tests of the commit) or `base` (the parent as
        it was)."""
        inner = {"head": self.head, "parent": self.overlay, "base": self.base}[side]
        around = self.around_head if side == "head" else self.around_base
        return {**around, **{self.prefix + path: entry for path, entry in inner.items()}}

    def looks_of(self, id_: str) -> Looks:
        """What the source of a node's test function says."""
        return self.looks.get(id_.partition("[")[0], Looks())

    def expectation_of(self, id_: str) -> Expectation:
        """What the finding of a node declares."""
        return declared.of_node(id_, dict(self.expectations))


def has_finding(commit: Commit) -> bool:
    """Whether the message carries a `Finding:` trailer."""
    return any(key == "finding" and value for key, value in commit.trailers)


def kind_of(commit: Commit, product: Iterable[str], test_side: Iterable[str]) -> Kind:
    """`other` without product or test change; `fix` by trailer or by the first word of the subject; else by what
    changed."""
    has_product, has_tests = any(True for _ in product), any(True for _ in test_side)
    if not has_product and not has_tests:
        return Kind.OTHER
    if has_finding(commit) or _FIX_SUBJECT.match(commit.subject):
        return Kind.FIX
    return Kind.FEATURE if has_product else Kind.TEST_ONLY


def changed_paths(old: Listing, new: Listing) -> list[str]:
    """Paths that differ, sorted; a rename is a removal and an addition."""
    return sorted(path for path in {*old, *new} if old.get(path) != new.get(path))


def under(listing: Listing, prefix: str) -> dict[str, Entry]:
    """The part of a listing below a project's folder, with paths relative to it."""
    return (
        {path[len(prefix) :]: entry for path, entry in listing.items() if path.startswith(prefix)}
        if prefix
        else dict(listing)
    )


def outside(listing: Listing, prefix: str) -> dict[str, Entry]:
    """The rest of a listing, for a project in a folder of a larger repository."""
    return {path: entry for path, entry in listing.items() if not path.startswith(prefix)} if prefix else {}


def overlaid(base: Listing, head: Listing, rules: Callable[[str], bool]) -> dict[str, Entry]:
    """The parent with the commit's test side: product from `base`, everything test-side from `head`, deletions too."""
    product = {path: entry for path, entry in base.items() if not rules(path)}
    return product | {path: entry for path, entry in head.items() if rules(path)}


def source_roots(config: Config, listing: Listing) -> tuple[str, ...]:
    """Folders to put first on PYTHONPATH."""
    if config.source is not None:
        return tuple(root.rstrip("/") or "." for root in config.source)
    return ("src", ".") if any(path.startswith("src/") for path in listing) else (".",)


def first_party(roots: Iterable[str], listings: Iterable[Listing]) -> frozenset[str]:
    """Dotted names that must come from the tree: packages and modules at the source roots, in namespace folders one
    level deeper each."""
    found: set[str] = set()
    for listing in listings:
        packages = {path.rpartition("/")[0] for path in listing if path.rpartition("/")[2] == "__init__.py"}
        for root in roots:
            lead = "" if root == "." else root + "/"
            for path in listing:
                if not path.endswith(".py") or not path.startswith(lead):
                    continue
                parts = path[len(lead) :].split("/")
                for depth in range(1, len(parts)):
                    if lead + "/".join(parts[:depth]) in packages:
                        found.add(".".join(parts[:depth]))
                        break
                else:
                    found.add(".".join([*parts[:-1], parts[-1].removesuffix(".py")]))
    return frozenset(name for name in found if all(part.isidentifier() for part in name.split(".")))


# --- which tests are new


class _Files:
    """Parsed test files of one side."""

    def __init__(self, repository: Repository, listing: Listing) -> None:
        self._repository, self._listing = repository, listing
        self._parsed: dict[str, TestFile] = {}

    def text(self, path: str) -> bytes | None:
        return self._repository.text(self._listing, path)

    def parsed(self, path: str) -> TestFile:
        if path not in self._parsed:
            self._parsed[path] = testsource.parse(self.text(path))
        return self._parsed[path]

    def fixtures(self, path: str, conftests: Iterable[str]) -> dict[str, Fixture]:
        """Fixtures that a file sees: those of the conftests given (outer first), then its own."""
        found: dict[str, Fixture] = {}
        for conftest in conftests:
            # An autouse fixture of a conftest is reached by every test below it: far too wide to call them all changed.
            found |= {name: Fixture(f.own, f.requests) for name, f in self.parsed(conftest).fixtures.items()}
        return found | dict(self.parsed(path).fixtures)


def _conftests_above(path: str, conftests: Iterable[str]) -> list[str]:
    above = [c for c in conftests if path.startswith(c.removesuffix("conftest.py"))]
    return sorted(above, key=len)


def _touched(path: str, names: frozenset[str], head: _Files) -> bool:
    text = head.text(path) or b""
    return any(name.encode() in text for name in names)


def choose(
    repository: Repository, base: Listing, head: Listing, changed: Iterable[str]
) -> tuple[Choice, dict[str, Looks]]:
    """The new tests among the changed test-side paths, and what their sources look for."""
    changed = [path for path in changed if path.endswith(".py")]
    old, new = _Files(repository, base), _Files(repository, head)
    conftests = [path for path in changed if path.rpartition("/")[2] == "conftest.py"]
    files = {path for path in changed if path in head and path not in conftests}
    for conftest in conftests:
        before, after = old.parsed(conftest).fixtures, new.parsed(conftest).fixtures
        names = frozenset(name for name in {*before, *after} if before.get(name) != after.get(name))
        folder = conftest.removesuffix("conftest.py")
        reachable = {*names, *(n for n, f in after.items() if f.requests & names)}
        files |= {
            path
            for path in head
            if path.startswith(folder)
            and path.endswith(".py")
            and path not in conftests
            and path in base
            and _touched(path, frozenset(reachable), new)
        }
    gone = [path for path in changed if path not in head]
    moved = {(f.qualname, f.own, f.parameters) for path in gone for f in old.parsed(path).functions.values()}
    added: list[str] = []
    altered: list[str] = []
    widened: list[str] = []
    looks: dict[str, Looks] = {}
    for path in sorted(files):
        above = _conftests_above(path, conftests)
        now, before_file = new.parsed(path), old.parsed(path)
        if path not in base and not moved:
            added.append(path)
        for function in now.functions.values():
            prefix = f"{path}::{function.qualname}"
            looks[prefix] = Looks(function.existence, function.assertions, function.literals)
            if path not in base:
                if moved and (function.qualname, function.own, function.parameters) not in moved:
                    added.append(prefix)
                continue
            previous = before_file.functions.get(function.qualname)
            if previous is None:
                added.append(prefix)
                continue
            reached = testsource.reach(function.requests, new.fixtures(path, above))
            reached_before = testsource.reach(previous.requests, old.fixtures(path, above))
            if function.own != previous.own or reached != reached_before:
                altered.append(prefix)
            elif function.parameters != previous.parameters:
                widened.append(prefix)
        if path in base:
            added.extend(f"{path}::{name}" for name in sorted((now.classes - before_file.classes) & now.foreign_bases))
    return Choice(tuple(added), tuple(altered), tuple(widened)), looks


# --- the plan


def configuration(repository: Repository, listing: Listing, overrides: Callable[[Config], Config]) -> Config:
    """`[tool.gate]` as a commit has it. Raises ConfigError."""
    return overrides(settings.parse(repository.text(listing, "pyproject.toml")))


def _support(repository: Repository, base: Listing, head: Listing) -> list[str]:
    """Files that are no test but decide how pytest runs: laid over the parent when their pytest part changed."""
    before, after = repository.text(base, "pyproject.toml"), repository.text(head, "pyproject.toml")
    found = ["pyproject.toml"] if settings.pytest_table(before) != settings.pytest_table(after) else []
    old_setup, new_setup = repository.text(base, "setup.cfg") or b"", repository.text(head, "setup.cfg") or b""
    if old_setup != new_setup and b"[tool:pytest]" in old_setup + new_setup:
        found.append("setup.cfg")
    return found


def make(repository: Repository, commit: Commit, parent: str | None, overrides: Callable[[Config], Config]) -> Plan:
    """The plan of `commit` against `parent` (None: there is none, everything is new). Raises GateError."""
    prefix = repository.prefix
    whole_head = repository.listing(commit.sha)
    whole_base = repository.listing(parent) if parent is not None else {}
    head, base = under(whole_head, prefix), under(whole_base, prefix)
    config = configuration(repository, head, overrides)
    tests, ignored = config.test_rules, config.ignored_rules
    changed = changed_paths(base, head)
    test_side = [path for path in changed if tests.matches(path)]
    product = [path for path in changed if not tests.matches(path) and not ignored.matches(path)]
    choice, looks = choose(repository, base, head, test_side)
    support = set(_support(repository, base, head)) if parent is not None else set[str]()
    roots = source_roots(config, head)
    names = first_party(roots, [head, base])
    test_names = {
        path.rpartition("/")[2].removesuffix(".py") for path in head if path.endswith(".py") and tests.matches(path)
    }
    new_files = frozenset(path for path in product if path not in base)
    new_names = new_files | symbols.added(
        (repository.text(base, path), repository.text(head, path)) for path in product if path.endswith(".py")
    )
    return Plan(
        commit=commit,
        parent=parent,
        kind=kind_of(commit, product, test_side),
        config=config,
        has_finding=has_finding(commit),
        product=tuple(product),
        test_side=tuple(test_side),
        choice=choice,
        head=head,
        overlay=overlaid(base, head, lambda path: tests.matches(path) or path in support),
        base=base,
        prefix=prefix,
        around_head=outside(whole_head, prefix),
        around_base=outside(whole_base, prefix),
        first_party=names,
        layout=Layout(tests, config.checker_rules, names | test_names, new_names),
        source=roots,
        expectations=declared.collect(head, lambda path: repository.text(head, path)),
        looks=looks,
    )
