"""What holds hunks together: a name that one brings and another uses. Pure; nothing is run.

A hunk taken back alone may leave source that cannot work: it does not parse, a name is used that nobody defines, an import
finds nothing. Such a tree says nothing about the hunk, so it is taken back together with those it belongs to. Two kinds are
told apart: what is certainly broken, and what may be, as an attribute or a keyword is but a word until it is looked up.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from holdtrue_gate import meaning
from holdtrue_gate.hunks import Diff, Hunk, HunkKind, Version

Files = Mapping[str, Version]


@dataclass(frozen=True)
class Break:
    """Something that cannot work: `kind` is syntax, undefined or import; `name` what is missing in the file `path`."""

    kind: str
    path: str
    name: str


def _module_parts(path: str) -> list[str]:
    parts = path.rpartition(".")[0].split("/")
    return parts[:-1] if parts[-1] == "__init__" else parts


def _is_module(path: str, module: str) -> bool:
    """Whether a path may hold a module of this dotted name, whatever the source root is."""
    wanted = module.split(".")
    return bool(module) and _module_parts(path)[-len(wanted) :] == wanted


def _absolute(path: str, level: int, module: str) -> str:
    if not level:
        return module
    package = path.rpartition("/")[0].split("/")
    kept = package[: len(package) - level + 1]
    return ".".join([*kept, *([module] if module else [])])


class Bonds:
    """The hunks of one change, and what each set of them breaks when it is taken back."""

    def __init__(self, diff: Diff, parent: Files, head: Files, unchanged: Iterable[str] = ()) -> None:
        """`unchanged`: paths of the other files of the head, which an import may mean."""
        self.diff = diff
        self._parent, self._head = parent, head
        self._others = [path for path in unchanged if meaning.is_python(path)]
        self._by_number = {hunk.number: hunk for hunk in diff.hunks}
        self._at_head = self._broken(head)
        self._uses_at_head, self._uses_at_parent = self._uses(head), self._uses(parent)
        self._names_at_head, self._names_at_parent = self._names(head), self._names(parent)
        self._defined_at_head = self._defined(head)
        self._words = {
            hunk.number: meaning.words((*hunk.new_lines, *hunk.old_lines, hunk.file.encode("utf-8", "surrogateescape")))
            for hunk in diff.hunks
        }

    # --- what source says

    @staticmethod
    def _python(files: Files) -> Iterable[tuple[str, bytes]]:
        return ((path, v.data) for path, v in files.items() if meaning.is_python(path) and v.is_text)

    def _uses(self, files: Files) -> Counter[str]:
        return sum((meaning.uses(data) for _, data in self._python(files)), Counter())

    def _defined(self, files: Files) -> frozenset[str]:
        return frozenset(itertools.chain.from_iterable(meaning.defined(data) for _, data in self._python(files)))

    def _names(self, files: Files) -> frozenset[str]:
        # A name that a module imports can be asked of it too.
        bound = itertools.chain.from_iterable(meaning.imported(data) for _, data in self._python(files))
        return self._defined(files) | frozenset(bound)

    def _broken(self, files: Files) -> frozenset[Break]:
        found: set[Break] = set()
        for path, data in self._python(files):
            if meaning.parsed(data) is None:
                found.add(Break("syntax", path, path))
                continue
            found |= {Break("undefined", path, name) for name in meaning.undefined(data)}
            for level, module, name in meaning.imports(data):
                whole = _absolute(path, level, module)
                if not self._found(files, whole, name):
                    found.add(Break("import", path, name or whole.rpartition(".")[2]))
        return frozenset(found)

    def _found(self, files: Files, module: str, name: str | None) -> bool:
        """Whether an import of a changed module finds what it asks for; any other import is not ours to doubt."""
        if any(_is_module(path, module) for path in self._others):
            return True
        known = [path for path in (*self._head, *self._parent) if _is_module(path, module)]
        if not known:
            return True
        here = [path for path in files if _is_module(path, module)]
        if not here:
            # A folder without an __init__.py is a package too.
            return name is not None and any(_is_module(path, f"{module}.{name}") for path in (*files, *self._others))
        if name is None:
            return True
        inside = f"{module}.{name}"
        return any(meaning.exports(files[path].data, name) for path in here) or any(
            _is_module(path, inside) for path in (*files, *self._others)
        )

    # --- sets of hunks

    def certain(self, numbers: Collection[int]) -> frozenset[Break]:
        """What cannot work once these hunks are taken back, and did before."""
        return self._broken(self.diff.without(numbers)) - self._at_head

    def likely(self, numbers: Collection[int]) -> frozenset[str]:
        """Attributes and keywords that are still used and that nothing in the changed files defines any more; and
        functions that lost their end, which both the head and the parent have."""
        files = self.diff.without(numbers)
        names, uses = self._names(files), self._uses(files)
        brought = {name for name in self._names_at_head - names if uses[name] > self._uses_at_parent[name]}
        dropped = {name for name in self._names_at_parent - names if uses[name] > self._uses_at_head[name]}
        return frozenset(brought | dropped | self._without_end(files))

    def _without_end(self, files: Files) -> set[str]:
        found: set[str] = set()
        for path, data in self._python(files):
            whole = [meaning.endings(side[path].data) for side in (self._head, self._parent) if path in side]
            if len(whole) == 2:
                found |= {
                    name.rpartition(".")[2]
                    for name, ends in meaning.endings(data).items()
                    if not ends and all(side.get(name) for side in whole)
                }
        return found

    def vanished(self, numbers: Collection[int]) -> frozenset[str]:
        """Names that the changed files define at the head and not once these hunks are taken back; of a file that goes,
        its module's name too."""
        files = self.diff.without(numbers)
        gone = {_module_parts(path)[-1] for path in self._head if path not in files and _module_parts(path)}
        return (self._defined_at_head - self._defined(files)) | gone

    def only_new(self, numbers: Collection[int]) -> bool:
        """Whether these hunks bring new definitions and change nothing that the parent had."""
        return all(self._is_new(self._by_number[number]) for number in numbers)

    def _is_new(self, hunk: Hunk) -> bool:
        if hunk.kind is HunkKind.ADDED:
            return True
        if hunk.kind is not HunkKind.LINES or any(line.strip() for line in hunk.old_lines):
            return False
        if not meaning.is_python(hunk.file):
            return False
        old = self._parent[hunk.old_file].data
        return meaning.only_new(*hunk.head, old, self._head[hunk.file].data)

    def only_old(self, numbers: Collection[int]) -> bool:
        """Whether taking these hunks back only brings definitions again that nothing in the changed files names."""
        files = self.diff.without(numbers)
        brought: set[str] = set()
        for number in numbers:
            hunk = self._by_number[number]
            if hunk.kind is not HunkKind.LINES or any(line.strip() for line in hunk.new_lines):
                return False
            if not meaning.is_python(hunk.file):
                return False
            old, new = self._parent[hunk.old_file].data, self._head[hunk.file].data
            if not meaning.only_new(*hunk.parent, new, old):
                return False
            brought |= set(meaning.definitions(old)) - set(meaning.definitions(new))
        # A method may be called by a base class that does not name it here.
        if any("." in name for name in brought):
            return False
        counts = Counter(itertools.chain.from_iterable(meaning.identifiers(v.data) for v in files.values()))
        return all(counts[name] <= 1 for name in brought)

    def silent(self, hunk: Hunk) -> str:
        """Why a hunk cannot change what any test sees; "" when it can."""
        if hunk.file.endswith(".pyi") or hunk.file.rpartition("/")[2] == "py.typed":
            return "types for a checker, which are never run"
        if hunk.kind is not HunkKind.LINES:
            return ""
        if not any(line.strip() for line in (*hunk.new_lines, *hunk.old_lines)) and not meaning.is_python(hunk.file):
            return ""
        if not meaning.is_python(hunk.file):
            return ""
        head = self._head[hunk.file].data
        without = self.diff.reversed([hunk.number])[hunk.file]
        if without is None or not meaning.same(head, without.data):
            return ""
        lines = (*hunk.new_lines, *hunk.old_lines)
        if not any(line.strip() for line in lines):
            return "only blank lines"
        if all(not line.strip() or line.lstrip().startswith(b"#") for line in lines):
            return "only comments"
        return "only comments, docstrings, annotations or layout"

    def closed(self, numbers: Collection[int], among: Collection[int]) -> frozenset[int]:
        """A small set that holds these hunks and breaks nothing for certain; as far as it got, when there is none."""
        chosen = frozenset(numbers)
        for _ in range(len(among) + 1):
            broken = self.certain(chosen)
            if not broken:
                break
            more = self._mending(chosen, broken, among)
            if not more:
                break
            chosen |= more
        return chosen

    def _mending(self, chosen: frozenset[int], broken: frozenset[Break], among: Collection[int]) -> frozenset[int]:
        found: set[int] = set()
        for item in sorted(broken, key=lambda b: (b.kind, b.path, b.name)):
            if item.kind == "syntax":
                found |= set(self.near(chosen, among, 1, item.path))
                continue
            mentioning = self.mentioning([item.name], chosen, among)
            here = [n for n in mentioning if self._by_number[n].file == item.path] or mentioning
            one = next((n for n in here if item not in self.certain(chosen | {n})), None)
            found |= {one} if one is not None else set(here or self.near(chosen, among, 1, item.path))
        return frozenset(found)

    def mentioning(self, names: Iterable[str], chosen: Collection[int], among: Collection[int]) -> list[int]:
        """Other hunks in whose lines one of these names stands."""
        wanted = {name.rpartition(".")[2] for name in names}
        return [n for n in among if n not in chosen and wanted & self._words[n]]

    def near(self, chosen: Collection[int], among: Collection[int], count: int, path: str | None = None) -> list[int]:
        """The `count` other hunks that lie nearest to the chosen ones, in their files (or in `path`)."""
        own = [self._by_number[n] for n in chosen]
        files = {hunk.file for hunk in own} if path is None else {path}
        others = [self._by_number[n] for n in among if n not in chosen and self._by_number[n].file in files]

        def distance(hunk: Hunk) -> int:
            return min((hunk.distance(mine) for mine in own if mine.file == hunk.file), default=0)

        return [hunk.number for hunk in sorted(others, key=lambda h: (distance(h), h.number))[:count]]
