"""The plan of a commit: its kind, what is product and what is test-side, which tests are new, and the two trees to
replay."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from holdtrue_gate import choice as choosing
from holdtrue_gate import config as settings
from holdtrue_gate import declared, doctests, merges, projectfile, pytestfile, symbols, verdict
from holdtrue_gate.choice import Choice as Choice
from holdtrue_gate.choice import Ground
from holdtrue_gate.config import Config
from holdtrue_gate.journal import RunRecord
from holdtrue_gate.pytestfile import PytestSettings
from holdtrue_gate.repo import Commit, Entry, Listing, Repository
from holdtrue_gate.verdict import NOTHING_DECLARED, Expectation, Layout, Looks, Reading, Verdict

_FIX_SUBJECT = re.compile(r"(?:fix|fixes|fixed)\b(?!-)", re.IGNORECASE)


class Kind(StrEnum):
    """What a commit claims to be."""

    FIX = "fix"
    FEATURE = "feature"
    TEST_ONLY = "test-only"
    OTHER = "other"


@dataclass(frozen=True)
class Plan:
    """Everything that the replays of one commit need. Paths are relative to the project.

    `product` and `test_side` are what the commit changes; of a merge, what it changes against every parent. `differs`:
    the product of the parent is another one than the commit's. `others` are the trees of a merge's further parents.
    `documented`: modules whose docstrings are judged. `absent`: what the parent has nothing of, by the id of its doctest.
    """

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
    differs: bool = False
    others: tuple[Mapping[str, Entry], ...] = ()
    documented: frozenset[str] = frozenset()
    absent: Mapping[str, str] = field(default_factory=dict)
    declared: Expectation = NOTHING_DECLARED

    def tree(self, side: str) -> dict[str, Entry]:
        """The whole listing of `head`, `parent` (product of the parent, tests of the commit) or `base` (the parent as
        it was)."""
        inner = {"head": self.head, "parent": self.overlay, "base": self.base}[side]
        around = self.around_head if side == "head" else self.around_base
        return {**around, **{self.prefix + path: entry for path, entry in inner.items()}}

    def looks_of(self, id_: str) -> Looks:
        """What the source of a node's test function says."""
        return self.looks.get(id_.partition("[")[0], Looks())

    def read(self, record: RunRecord, id_: str) -> Reading:
        """How one node id did in one replay."""
        found = verdict.read_run(record, id_, self.layout, self.expectation_of(id_), self.looks_of(id_))
        if found.verdict is Verdict.NOT_RUN and id_ in self.absent and record.session_exit is not None:
            what = self.absent[id_]
            return replace(
                found, verdict=Verdict.MISSING_API, reason=f"{what} does not exist at the parent", symbol=what
            )
        return found

    def expectation_of(self, id_: str) -> Expectation:
        """What the finding of a node declares; without one, what the commit's message does."""
        found = declared.of_node(id_, dict(self.expectations))
        return self.declared if found == NOTHING_DECLARED else found


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


def source_roots(config: Config, listing: Listing, told: Sequence[str] = ()) -> tuple[str, ...]:
    """Folders to put first on PYTHONPATH; `told` are those that the project's own files name."""
    if config.source is not None:
        return tuple(root.rstrip("/") or "." for root in config.source)
    wanted = [*told, "src", "."]
    return tuple(dict.fromkeys(r for r in wanted if r == "." or any(path.startswith(r + "/") for path in listing)))


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


# --- the plan


def configuration(repository: Repository, listing: Listing, overrides: Callable[[Config], Config]) -> Config:
    """`[tool.gate]` as a commit has it; without `tests` there, with what pytest is told about test files. Raises
    ConfigError."""
    config = overrides(settings.parse(repository.text(listing, "pyproject.toml")))
    told = pytestfile.read(lambda path: repository.text(listing, path))
    return replace(config, tests=(*config.tests, *_told_tests(config, told, listing)))


def _told_tests(config: Config, told: PytestSettings, listing: Listing) -> list[str]:
    """Rules for the test files that a project's own settings for pytest mean, where `[tool.gate]` says nothing."""
    if config.tests != settings.DEFAULT_TESTS:
        return []
    roots = [root.removeprefix("./").rstrip("/") for root in told.testpaths]
    roots = [root for root in roots if root not in ("", ".") and not any(c in root for c in "*?[")]
    found = [root for root in roots if _is_test_folder(root, told, listing)]
    # A pattern as wide as `*.py` says where the tests are only together with a folder.
    named = [pattern for pattern in told.python_files if len(re.sub(r"[^A-Za-z]", "", pattern)) > len("py") + 2]
    globs = [glob for glob in told.doctest_globs if glob != "test*.txt"]
    for pattern in (*named, *globs):
        found += [f"{root}/**/{pattern}" for root in roots] if roots else [pattern]
    return found


def _is_test_folder(root: str, told: PytestSettings, listing: Listing) -> bool:
    """Whether a folder of `testpaths` holds tests and what they need: not when most of it is code beside its tests."""
    names = [path.rpartition("/")[2] for path in listing if path.startswith(root + "/") and path.endswith(".py")]
    names = [name for name in names if name not in ("__init__.py", "conftest.py")]
    patterns = told.python_files or ("test_*.py", "*_test.py")
    tests = [name for name in names if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]
    return bool(tests) and 2 * len(tests) >= len(names)


def _support(repository: Repository, base: Listing, head: Listing) -> set[str]:
    """Files that are no test but decide how pytest runs: laid over the parent when their pytest part changed."""
    found = set()
    for name in ("pyproject.toml", "setup.cfg"):
        before, after = repository.text(base, name), repository.text(head, name)
        old = pytestfile.table(name, before) if before is not None else None
        if old != (pytestfile.table(name, after) if after is not None else None):
            found.add(name)
    return found


def _same_code(repository: Repository, path: str, sides: tuple[Listing, Listing], *, docstrings: bool) -> bool:
    """Whether a Python file does the same on both sides: comments and layout are no change of the product."""
    if not path.endswith(".py"):
        return False
    before, after = (repository.text(side, path) for side in sides)
    if before is None or after is None:
        return False
    bare = doctests.bare(before, docstrings=docstrings)
    return bare is not None and bare == doctests.bare(after, docstrings=docstrings)


@dataclass(frozen=True)
class _Documented:
    choice: Choice = field(default_factory=Choice)
    files: Mapping[str, Entry] = field(default_factory=dict)
    modules: frozenset[str] = frozenset()
    absent: Mapping[str, str] = field(default_factory=dict)


def _documented(repository: Repository, base: Listing, head: Listing, changed: Iterable[str]) -> _Documented:
    """The doctests of changed modules, and the parent's modules with the commit's docstrings."""
    added: list[str] = []
    altered: list[str] = []
    files: dict[str, Entry] = {}
    modules: set[str] = set()
    absent: dict[str, str] = {}
    for path in changed:
        before, now = repository.text(base, path), repository.text(head, path)
        if now is None or path.rpartition("/")[2] in ("setup.py", "__main__.py", "conftest.py"):
            continue
        fresh, other, lacking = choosing.of_docstrings(path, before, now)
        if not (fresh or other):
            continue
        added += fresh
        altered += other
        absent |= lacking
        modules.add(path)
        made = doctests.spliced(before, now) if before is not None else None
        if made is not None and made != before:
            files[path] = Entry(base[path].mode, repository.hold(made))
    return _Documented(Choice(tuple(added), tuple(altered)), files, frozenset(modules), absent)


def make(repository: Repository, commit: Commit, parent: str | None, overrides: Callable[[Config], Config]) -> Plan:
    """The plan of `commit` against `parent` (None: there is none, everything is new). Raises GateError."""
    prefix = repository.prefix
    whole_head = repository.listing(commit.sha)
    whole_base = repository.listing(parent) if parent is not None else {}
    head, base = under(whole_head, prefix), under(whole_base, prefix)
    config = configuration(repository, head, overrides)
    told = pytestfile.read(lambda path: repository.text(head, path))
    tests, ignored = config.test_rules, config.ignored_rules
    roots = source_roots(
        config, head, (*told.pythonpath, *projectfile.source_folders(repository.text(head, "pyproject.toml")))
    )
    ground = Ground(tests.matches, roots, told)
    doc = told.doctest_modules
    changed = changed_paths(base, head)
    test_side = [path for path in changed if tests.matches(path)]
    product = [
        path
        for path in changed
        if not tests.matches(path)
        and not ignored.matches(path)
        and not _same_code(repository, path, (base, head), docstrings=not doc)
    ]
    chosen, looks = choosing.choose(repository, base, head, test_side, ground)
    others = tuple(under(repository.listing(sha), prefix) for sha in commit.parents if sha != parent) if parent else ()
    own_product = product
    for other in others:
        theirs = [path for path in changed_paths(other, head) if tests.matches(path)]
        chosen = chosen.common(choosing.choose(repository, other, head, theirs, ground)[0])
        test_side = [path for path in test_side if path in theirs]
    if others:
        own_product = merges.own(repository, commit, head, product)
    documented = _Documented()
    if doc and not others:
        in_reach = [path for path in changed if path.endswith(".py") and pytestfile.reaches(told, path)]
        documented = _documented(repository, base, head, in_reach)
        chosen = Choice(
            (*chosen.added, *documented.choice.added),
            (*chosen.changed, *documented.choice.changed),
            chosen.widened,
            chosen.texts,
        )
    support = _support(repository, base, head) if parent is not None else set[str]()
    names = first_party(roots, [head, base])
    test_names = {
        path.rpartition("/")[2].removesuffix(".py") for path in head if path.endswith(".py") and tests.matches(path)
    }
    new_files = frozenset(path for path in product if path not in base)
    pairs = [(repository.text(base, path), repository.text(head, path)) for path in product if path.endswith(".py")]
    overlay = overlaid(base, head, lambda path: tests.matches(path) or path in support)
    overlay |= {path: entry for path, entry in documented.files.items() if not tests.matches(path)}
    has_tests = bool(test_side) or bool(documented.modules)
    return Plan(
        commit=commit,
        parent=parent,
        kind=kind_of(commit, own_product, ["tests"] if has_tests else []),
        config=config,
        has_finding=has_finding(commit),
        product=tuple(own_product),
        test_side=tuple(test_side),
        choice=chosen,
        head=head,
        overlay=overlay,
        base=base,
        prefix=prefix,
        around_head=outside(whole_head, prefix),
        around_base=outside(whole_base, prefix),
        first_party=names,
        layout=Layout(
            tests,
            config.checker_rules,
            names | test_names | _packages(head),
            new_files | symbols.added(pairs),
            symbols.versions(pairs) if len(product) == len(pairs) else frozenset(),
        ),
        source=roots,
        expectations=declared.collect(head, lambda path: repository.text(head, path)),
        looks=looks,
        differs=bool(product),
        others=others,
        documented=documented.modules,
        absent=documented.absent,
        declared=declared.of_commit(commit.trailers, commit.sha),
    )


def _packages(listing: Listing) -> frozenset[str]:
    """Top packages anywhere in the tree: a module below one of them that cannot be imported is no library."""
    folders = {path.removesuffix("/__init__.py") for path in listing if path.endswith("/__init__.py")}
    return frozenset(f.rpartition("/")[2] for f in folders if f.rpartition("/")[0] not in folders)
