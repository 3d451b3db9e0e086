"""Which tests of a commit are new: node ids that the parent does not have, and those whose function, parametrisation or
fixtures differ by AST from the parent's, whatever they reach: helpers and constants of any test-side file, fixtures of the
conftests above (autouse ones too), data files that they name. A moved test is not new."""

from __future__ import annotations

import fnmatch
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from holdtrue_gate import doctests, testsource
from holdtrue_gate.pytestfile import PytestSettings, reaches
from holdtrue_gate.repo import Listing, Repository
from holdtrue_gate.testsource import Closure, Fixture, Function, Import, TestFile
from holdtrue_gate.verdict import Looks

_LISTING_CALLS = frozenset({"iterdir", "listdir", "glob", "iglob", "rglob", "scandir", "walk"})
_MIN_WORD = 2


@dataclass(frozen=True)
class Choice:
    """Which tests are new, as prefixes of node ids.

    `added`: files, classes and functions that the parent does not have. `changed`: functions whose source or fixtures
    changed.
    `widened`: functions of which only the parametrisation changed; among their ids those absent at the parent are new.
    `texts`: files of doctests alone.
    """

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    widened: tuple[str, ...] = ()
    texts: frozenset[str] = frozenset()

    @property
    def prefixes(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.added, *self.changed, *self.widened)

    @property
    def files(self) -> tuple[str, ...]:
        """The files they lie in, sorted."""
        return tuple(sorted({prefix.partition("::")[0] for prefix in self.prefixes}))

    def common(self, other: Choice) -> Choice:
        """What is new against two parents: for a merge, whose tests of either side are not its own."""
        ranks = {p: rank for rank, ps in enumerate((other.added, other.changed, other.widened)) for p in ps}
        found: tuple[list[str], list[str], list[str]] = ([], [], [])
        for rank, prefixes in enumerate((self.added, self.changed, self.widened)):
            for prefix in prefixes:
                for theirs, their_rank in ranks.items():
                    finer = prefix if _covers(theirs, prefix) else theirs if _covers(prefix, theirs) else None
                    if finer is not None and finer not in found[max(rank, their_rank)]:
                        found[max(rank, their_rank)].append(finer)
        return Choice(tuple(found[0]), tuple(found[1]), tuple(found[2]), self.texts)


def _covers(prefix: str, other: str) -> bool:
    return prefix == other or other.startswith(prefix + "::")


@dataclass(frozen=True)
class Ground:
    """What both sides share: which paths are test-side, where imports start, what pytest is told."""

    is_test: Callable[[str], bool]
    roots: tuple[str, ...] = (".",)
    pytest: PytestSettings = field(default_factory=PytestSettings)

    def is_text_test(self, path: str) -> bool:
        """Whether pytest takes a text file for doctests."""
        if path.endswith(".py"):
            return False
        below = reaches(self.pytest, path)
        name = path.rpartition("/")[2]
        return below and any(fnmatch.fnmatch(path if "/" in glob else name, glob) for glob in self.pytest.doctest_globs)


class _Side:
    """The test side of one tree, parsed as far as it is asked for."""

    def __init__(self, repository: Repository, listing: Listing, ground: Ground, parsed: dict[str, TestFile]) -> None:
        self._repository, self.listing, self._ground = repository, listing, ground
        self._parsed = parsed
        self._reached: dict[tuple[str, frozenset[str]], tuple[str, frozenset[str], frozenset[str]]] = {}
        self._prints: dict[tuple[str, int], tuple[str, Closure]] = {}
        self._fixtures: dict[str, dict[str, list[tuple[str, Fixture]]]] = {}

    def text(self, path: str) -> bytes | None:
        return self._repository.text(self.listing, path)

    def parsed(self, path: str) -> TestFile:
        entry = self.listing.get(path)
        key = entry.sha if entry is not None else ""
        if key not in self._parsed:
            self._parsed[key] = testsource.parse(self.text(path))
        return self._parsed[key]

    def python(self) -> Iterator[str]:
        return (path for path in self.listing if path.endswith(".py") and self._ground.is_test(path))

    # --- imports

    def _module(self, path: str, module: str, level: int) -> str | None:
        """The test-side file of a module that `path` imports."""
        parts = path.split("/")[:-1]
        tail = module.replace(".", "/")
        if level:
            homes = ["/".join(parts[: len(parts) - level + 1])]
        else:
            # pytest puts the folder of a test file, or that above its packages, on the path: the nearest wins.
            homes = ["/".join(parts[:depth]) for depth in range(len(parts), -1, -1)]
            homes += [root for root in (*self._ground.roots, *self._ground.pytest.pythonpath) if root != "."]
        for home in homes:
            stem = "/".join(part for part in (home, tail) if part)
            for found in (f"{stem}.py", f"{stem}/__init__.py" if stem else "__init__.py"):
                if found in self.listing and self._ground.is_test(found):
                    return found
        return None

    def _targets(self, path: str, name: str) -> Iterator[tuple[str, str | None]]:
        """The files and names there that an imported name may stand for; name None means all of the file."""
        file = self.parsed(path)
        head, _, attribute = name.partition(".")
        found = file.imports.get(head)
        if found is None:
            for star in file.stars:
                home = self._module(path, star.module, star.level)
                if home is not None:
                    yield home, head
            return
        if found.name is None:
            home = self._module(path, found.module, found.level)
            if home is not None:
                yield home, attribute or None
            return
        below = self._module(path, f"{found.module}.{found.name}" if found.module else found.name, found.level)
        home = self._module(path, found.module, found.level)
        if below is not None:
            yield below, attribute or None
        elif home is not None:
            yield home, found.name

    def reach(self, path: str, names: Iterable[str]) -> tuple[str, frozenset[str], frozenset[str]]:
        """Fingerprint, literals and words of everything outside `path` that the imported names stand on."""
        key = (path, frozenset(names))
        if key in self._reached:
            return self._reached[key]
        waiting = [target for name in sorted(key[1]) for target in self._targets(path, name)]
        seen: set[tuple[str, str | None]] = set()
        parts: list[str] = []
        literals: set[str] = set()
        words: set[str] = set()
        while waiting:
            file, name = waiting.pop()
            if (file, name) in seen:
                continue
            seen.add((file, name))
            known = self.parsed(file)
            whole = name is None
            closure = known.closure(known.definitions if whole else [name or ""])
            if not whole and name not in known.definitions:
                waiting.extend(self._targets(file, name or ""))
                continue
            parts.append(f"{name}={closure.digest}")
            literals |= closure.literals
            words |= closure.words
            waiting.extend(target for used in closure.outside for target in self._targets(file, used))
        self._reached[key] = (_digest(*sorted(parts)), frozenset(literals), frozenset(words))
        return self._reached[key]

    def reaches_tests(self, path: str, closure: Closure) -> bool:
        """Whether some of it lies in another test-side file."""
        return any(True for name in closure.outside for _ in self._targets(path, name))

    # --- fixtures

    def _plugins(self, path: str) -> Iterator[str]:
        for name in self.parsed(path).plugins:
            home = self._module(path, name, 0)
            if home is not None:
                yield home

    def conftests(self, path: str) -> list[str]:
        """The conftests above a file, outermost first."""
        parts = path.split("/")[:-1]
        above = ["/".join([*parts[:depth], "conftest.py"]) for depth in range(len(parts) + 1)]
        return [conftest for conftest in above if conftest in self.listing and conftest != path]

    def fixtures(self, path: str) -> dict[str, list[tuple[str, Fixture]]]:
        """Every fixture that a file sees, by name, with the file that has it."""
        if path in self._fixtures:
            return self._fixtures[path]
        found: dict[str, list[tuple[str, Fixture]]] = {}
        for file in [*self.conftests(path), path]:
            homes = [*self._plugins(file), file]
            for home in homes:
                for name, fixture in self.parsed(home).fixtures.items():
                    found.setdefault(name, []).append((home, fixture))
            for alias in (*self.parsed(file).imports, *(["*"] if self.parsed(file).stars else [])):
                for home, name in self._imported_fixtures(file, alias):
                    found.setdefault(name, []).append((home, self.parsed(home).fixtures[name]))
        self._fixtures[path] = found
        return found

    def _imported_fixtures(self, path: str, alias: str) -> Iterator[tuple[str, str]]:
        if alias == "*":
            for star in self.parsed(path).stars:
                home = self._module(path, star.module, star.level)
                if home is not None:
                    yield from ((home, name) for name in self.parsed(home).fixtures)
            return
        for home, name in self._targets(path, alias):
            if name is not None and name in self.parsed(home).fixtures:
                yield home, name

    # --- fingerprints

    def home(self, path: str) -> str:
        """The outermost folder above a test that is test-side as a whole; its own folder where there is none."""
        parts = path.split("/")[:-1]
        for depth in range(1, len(parts) + 1):
            folder = "/".join(parts[:depth])
            if self._ground.is_test(folder):
                return folder + "/"
        return "/".join(parts) + "/" if parts else ""

    def _data(self, path: str, literals: frozenset[str], words: frozenset[str], data: Iterable[str]) -> list[str]:
        """The changed data files that some code names, as this side has them."""
        return [
            f"{file}={entry.sha if entry is not None else ''}"
            for file in data
            for entry in [self.listing.get(file)]
            if _names_data(file, self.home(path), literals, words)
        ]

    def print_of(self, path: str, closure: Closure, data: Iterable[str]) -> str:
        """Fingerprint of some code of a file with all that it reaches, changed data files too."""
        if not closure.digest:
            return ""
        key = (path, id(closure))
        if key in self._prints:
            return self._prints[key][0]
        outer, literals, words = (
            self.reach(path, closure.outside) if closure.outside else ("", frozenset(), frozenset())
        )
        named = self._data(path, closure.literals | literals, closure.words | words, data)
        made = _digest(closure.digest, outer, *named)
        self._prints[key] = (made, closure)  # the closure too: its id must stay its own
        return made

    def prints(self, path: str, function: Function, data: Iterable[str]) -> tuple[str, str]:
        """Fingerprints of a test: of what it does, and of how often it is run (parametrisation, parameters of fixtures,
        `pytest_generate_tests`)."""
        visible = self.fixtures(path)
        wanted = {*function.requests, *(name for name, ones in visible.items() if any(f.autouse for _, f in ones))}
        waiting, seen = sorted(wanted), set[str]()
        own: list[str] = []
        varied: list[str] = []
        while waiting:
            name = waiting.pop()
            if name in seen or name not in visible:
                continue
            seen.add(name)
            for home, fixture in visible[name]:
                own.append(f"{name}={self.print_of(home, fixture.own, data)}")
                if fixture.parameters.digest:
                    varied.append(f"{name}={self.print_of(home, fixture.parameters, data)}")
                waiting.extend(fixture.requests)
        generators = [
            self.print_of(conftest, self.parsed(conftest).generator, data) for conftest in self.conftests(path)
        ]
        mine = self.print_of(path, function.parametrisation, data)
        return (
            _digest(
                self.print_of(path, function.code, data), *sorted(own), *_kept_for(path, function, data, self.listing)
            ),
            _digest(mine, *sorted(varied), *filter(None, generators)),
        )

    def looks(self, function: Function) -> Looks:
        return Looks(function.existence, function.assertions, function.literals)


def _kept_for(path: str, function: Function, data: Iterable[str], listing: Listing) -> list[str]:
    """Changed files that a snapshot plugin keeps for a test: `__snapshots__/test_x.*` and `test_x/test_name*`, beside
    it."""
    folder, _, name = path.rpartition("/")
    stem = name.removesuffix(".py")
    lead = f"{folder}/" if folder else ""
    test = function.qualname.rpartition("::")[2]
    found = []
    for file in data:
        snapshot = file.startswith(f"{lead}__snapshots__/{stem}.") and any("snapshot" in r for r in function.requests)
        if snapshot or file.startswith(f"{lead}{stem}/{test}"):
            entry = listing.get(file)
            found.append(f"{file}={entry.sha if entry is not None else ''}")
    return found


def _names_data(file: str, home: str, literals: frozenset[str], words: frozenset[str]) -> bool:
    """`home` is the folder of the test side in which the test lies: a name alone means a file there, a path any file."""
    folders, name = file.split("/")[:-1], file.rpartition("/")[2]
    beside = file.startswith(home)
    for literal in literals:
        if "/" in literal and name in literal and file.endswith("/" + literal.lstrip("./")):
            return True
        if beside and name in literal and len(name) >= _MIN_WORD:
            return True
        if beside and "*" in literal and fnmatch.fnmatch(name, literal.rpartition("/")[2]):
            return True
        if (
            beside
            and words & _LISTING_CALLS
            and any(part in folders for part in literal.strip("./").split("/") if part)
        ):
            return True
    return False


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


# --- the files to look at


def _different(old: TestFile, new: TestFile) -> tuple[set[str], bool]:
    """Names of a changed file by which others may feel the change, and whether everything below a conftest does."""
    names = {
        name
        for name in {*old.definitions, *new.definitions}
        if old.definitions.get(name) != new.definitions.get(name)
        and (name in old.definitions or name in new.fixtures)
        and not name.startswith("test")
    }
    names |= {name for name in {*old.fixtures, *new.fixtures} if old.fixtures.get(name) != new.fixtures.get(name)}
    grown = len(names) > 0
    while grown:
        # What stands on them in the same file feels it too, under a name of its own.
        more = {
            name
            for side in (old, new)
            for name in {*side.definitions, *side.fixtures} - names
            if not name.startswith("test") and names & _leans(side, name)
        }
        grown = bool(more)
        names |= more
    auto = {
        name
        for name in {*old.fixtures, *new.fixtures}
        if any(name in side.fixtures and side.fixtures[name].autouse for side in (old, new))
    }
    wide = bool(names & auto) or old.generator != new.generator or old.plugins != new.plugins or old.stars != new.stars
    # What an autouse fixture calls changes it too.
    for side in (old, new):
        for name in auto & side.fixtures.keys():
            used = side.fixtures[name].own.outside | side.fixtures[name].requests
            wide = wide or bool(names & {part.partition(".")[0] for part in used})
    return names, wide


def _leans(file: TestFile, name: str) -> set[str]:
    """Names of a file that one of its definitions or fixtures uses."""
    definition, fixture = file.definitions.get(name), file.fixtures.get(name)
    used = set(definition.uses) if definition is not None else set()
    return {part.partition(".")[0] for part in used} | set(fixture.requests if fixture is not None else ())


def _reached(old: _Side, new: _Side, changed: Iterable[str], data: Iterable[str]) -> set[str]:
    """Unchanged test files that changed helpers, conftests or data may matter to: too many rather than too few."""
    words: set[str] = set()
    folders: list[str] = []
    for path in changed:
        names, wide = _different(old.parsed(path), new.parsed(path))
        words |= names
        if wide:
            # In a conftest for what lies below it; in a helper or plugin for whoever imports it.
            stem = path.removesuffix(".py").removesuffix("/__init__").rpartition("/")[2]
            folders.append(path.removesuffix("conftest.py")) if path.endswith("conftest.py") else words.add(stem)
    homes: dict[str, set[str]] = {}
    for path in data:
        # A name means a file of the same test side; the folders on the way may be listed.
        home = new.home(path)
        homes.setdefault(home, set()).update(path.removeprefix(home).split("/"))
        folders.append(path.rpartition("/")[0] + "/" if "/" in path else "")
    words = {word for word in words if len(word) >= _MIN_WORD}
    if not words and not folders:
        return set()
    rest = {path for path in new.python() if path not in changed and old.listing.get(path) == new.listing.get(path)}
    found = {path for path in rest if any(path.startswith(folder) for folder in folders)}
    for path in data:
        # Where a snapshot plugin keeps what it compares with: beside the test file, under its name.
        above, _, name = path.rpartition("/")
        stem = name.partition(".")[0] if above.endswith("__snapshots__") else above.rpartition("/")[2]
        beside = above.rpartition("/")[0]
        found |= {f"{beside}/{stem}.py" if beside else f"{stem}.py"} & rest
    for home, named in homes.items():
        found |= {path for path in rest - found if path.startswith(home) and _mentions(named, new.text(path))}
    waiting = True
    while waiting:
        hit = {path for path in rest - found if words and _mentions(words, new.text(path))}
        hit |= {path for path in found if path in rest}
        words = set()
        for path in hit:
            file = new.parsed(path)
            rest.discard(path)
            if path not in found or file.fixtures or file.definitions:
                # A helper, conftest or base class that is reached passes it on under its own names.
                passed = {name for name in file.definitions if not name.startswith("test")} | set(file.fixtures)
                if path.endswith("conftest.py") and any(f.autouse for f in file.fixtures.values()):
                    below = path.removesuffix("conftest.py")
                    found |= {other for other in rest if other.startswith(below)}
                if not path.rpartition("/")[2].startswith("test_"):
                    words |= {name for name in passed if len(name) >= _MIN_WORD}
                else:
                    words |= {name for name in passed if name in file.classes}
            found.add(path)
        waiting = bool(words)
    return found


def _mentions(words: Iterable[str], text: bytes | None) -> bool:
    return text is not None and any(os.fsencode(word) in text for word in words)


# --- the choice


def choose(
    repository: Repository, base: Listing, head: Listing, changed: Iterable[str], ground: Ground
) -> tuple[Choice, dict[str, Looks]]:
    """The new tests among the test-side paths that differ, and what their sources look for."""
    changed = list(changed)
    parsed: dict[str, TestFile] = {"": testsource.EMPTY}
    old, new = _Side(repository, base, ground, parsed), _Side(repository, head, ground, parsed)
    python = [path for path in changed if path.endswith(".py")]
    data = [path for path in changed if not path.endswith(".py") and not ground.is_text_test(path)]
    files = {path for path in python if path in head} | _reached(old, new, python, data)
    gone = _gone(old, new, python, data)
    picked = _Picked()
    for path in sorted(files):
        if path.rpartition("/")[2] != "conftest.py":
            _pick(path, old, new, data, gone, picked)
    texts = _texts(old, new, [path for path in changed if ground.is_text_test(path)], picked)
    return Choice(tuple(picked.added), tuple(picked.altered), tuple(picked.widened), texts), picked.looks


@dataclass
class _Picked:
    added: list[str] = field(default_factory=list)
    altered: list[str] = field(default_factory=list)
    widened: list[str] = field(default_factory=list)
    looks: dict[str, Looks] = field(default_factory=dict)


Gone = Counter[tuple[str, str]]


def _gone(old: _Side, new: _Side, python: Iterable[str], data: Iterable[str]) -> Gone:
    """Tests that a changed file had and has no longer: where one turns up elsewhere, it has only moved."""
    found: Gone = Counter()
    for path in python:
        now = new.parsed(path)
        for name, function in old.parsed(path).functions.items():
            if name not in now.functions and name.rpartition("::")[2].startswith("test"):
                found[old.prints(path, function, data)] += 1
    return found


def _pick(path: str, old: _Side, new: _Side, data: list[str], gone: Gone, picked: _Picked) -> None:
    now, before = new.parsed(path), old.parsed(path)
    fresh = path not in old.listing
    if now.broken:
        # Nothing can be said of a file that is no Python, but that it must be collected.
        if fresh or not before.broken:
            picked.added.append(path)
        return
    added: list[str] = []
    moved = False
    for function in now.functions.values():
        prefix = f"{path}::{function.qualname}"
        picked.looks[prefix] = new.looks(function)
        prints = new.prints(path, function, data)
        previous = before.functions.get(function.qualname)
        if previous is None:
            if gone[prints] > 0:
                gone[prints] -= 1
                moved = True
            else:
                added.append(prefix)
            continue
        earlier = old.prints(path, previous, data)
        if prints[0] != earlier[0]:
            picked.altered.append(prefix)
        elif prints[1] != earlier[1]:
            picked.widened.append(prefix)
    if fresh and not moved:
        picked.added.append(path)
        return
    picked.added.extend(added)
    for name, inherited in sorted(now.foreign_bases.items()):
        # Tests that a class inherits from another file are not seen in this one.
        if name not in before.classes:
            if not moved:
                picked.added.append(f"{path}::{name}")
        elif new.reaches_tests(path, inherited) and (
            new.prints(path, _inherited(name, inherited), data)
            != old.prints(path, _inherited(name, before.foreign_bases.get(name, Closure())), data)
        ):
            picked.altered.append(f"{path}::{name}")


def _inherited(name: str, closure: Closure) -> Function:
    """Stands for the tests that a class has from elsewhere."""
    return Function(name, closure, Closure(), frozenset())


def _texts(old: _Side, new: _Side, paths: Iterable[str], picked: _Picked) -> frozenset[str]:
    found = set()
    for path in paths:
        now, before = _examples(new.text(path)), _examples(old.text(path))
        if now and now != before:
            found.add(path)
            (picked.altered if before else picked.added).append(path)
    return frozenset(found)


def _examples(text: bytes | None) -> tuple[str, ...]:
    if text is None:
        return ()
    told = doctests.examples(text.decode("utf-8", "replace"))
    return ("unreadable",) if told is None else told


# --- doctests of modules


def module_ids(path: str, qualname: str) -> list[str]:
    """The node ids that pytest may give the doctest of a module's function, by where the imports of the project start."""
    parts = path.removesuffix(".py").removesuffix("/__init__").split("/")
    tail = f".{qualname}" if qualname else ""
    return [f"{path}::{'.'.join(parts[start:])}{tail}" for start in range(len(parts))]


def of_docstrings(path: str, before: bytes | None, now: bytes | None) -> tuple[list[str], list[str], Mapping[str, str]]:
    """Node ids of the new and of the changed doctests of one module; and, by id, what the parent does not have at all."""
    old, new = doctests.of_module(before), doctests.of_module(now)
    known = doctests.names(before)
    added: list[str] = []
    altered: list[str] = []
    absent: dict[str, str] = {}
    for name, told in new.items():
        ids = module_ids(path, name)
        if name not in old:
            added.extend(ids)
            if name not in known:
                absent |= dict.fromkeys(ids, name or path)
        elif old[name] != told:
            altered.extend(ids)
    return added, altered, absent


__all__ = ["Choice", "Ground", "Import", "choose", "module_ids", "of_docstrings"]
