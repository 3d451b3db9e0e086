"""What a commit's tests demand less than those of its parent: static, by node id, nothing is run.

Real projects rewrite their tests all the time: several become one with parameters, one is split in two, a class moves
into another file. So a finding is `certain` only where the same test, or the same thing said about the same subject, is
plainly weaker; what may have moved elsewhere, or went away together with the product it tested, is doubtful and does
not block.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from holdtrue_gate import losses, pytestfile, symbols, testcode
from holdtrue_gate.config import Config
from holdtrue_gate.demands import Check
from holdtrue_gate.errors import CannotJudgeError
from holdtrue_gate.losses import Loss
from holdtrue_gate.plan import Plan, changed_paths, under
from holdtrue_gate.repo import Listing, Repository
from holdtrue_gate.syntax import snippet
from holdtrue_gate.testcode import Collection, Degree, Parameters, TestCode, TestModule

TRAILER = "Test-change"

# Kinds of findings, in the order in which a reader wants them.
KINDS = (
    "deleted",
    "skipped",
    "xfail",
    "lost-ids",
    "changed-expectation",
    "less-strict",
    "removed-assertion",
    "swallowed",
    "unreachable",
    "conditional",
    "widened-tolerance",
    "wider-exception",
    "dropped-match",
    "fewer-examples",
    "suppressed-health-check",
    "changed-interface",
)

# Shares of what makes a test distinct (rare words weigh most) that another one must have.
SAME_TEST = 0.7
PART_OF_IT = 0.25
RESEMBLES = 0.45
REPLACES = 0.1
# Below this share of the old words the test under the old name is another one.
REWRITTEN = 0.4
HYPOTHESIS_EXAMPLES = 100

# Bases from elsewhere that bring no tests.
_PLAIN_BASES = frozenset({"object", "TestCase", "IsolatedAsyncioTestCase", "RuleBasedStateMachine"})


@dataclass(frozen=True)
class Weakening:
    """One thing that a commit's tests demand less.

    `id`: node id without parameters, or a file or class for what holds for all of it. `kind`: one of `KINDS`. `before`,
    `after`: source, on one line. `location`: `file:line` in the commit, or in its parent for what is gone.
    `reason_given`: what the commit's message says. `certain`: false where it may be no weakening at all. `note`: what
    was seen.
    """

    id: str
    kind: str
    before: str
    after: str
    location: str
    reason_given: str | None = None
    certain: bool = True
    note: str = ""

    @property
    def blocks(self) -> bool:
        """Whether it speaks against the commit."""
        return self.certain and self.reason_given is None


@dataclass(frozen=True)
class Pair:
    """A test of the parent that the commit changed, and what it is there; `new` is None where it was deleted."""

    path: str
    old: TestCode
    new_path: str = ""
    new: TestCode | None = None

    @property
    def old_id(self) -> str:
        """Node id at the parent, without parameters."""
        return f"{self.path}::{self.old.qualname}"

    @property
    def new_id(self) -> str:
        """Node id at the commit, without parameters; empty where it was deleted."""
        return f"{self.new_path}::{self.new.qualname}" if self.new is not None else ""


@dataclass(frozen=True)
class Comparison:
    """The static half. `changed`: tests whose parent's version is worth a run. `unread`: files that are no valid Python
    for this interpreter."""

    weakened: tuple[Weakening, ...] = ()
    changed: tuple[Pair, ...] = ()
    unread: tuple[str, ...] = ()


def ordered(found: Iterable[Weakening]) -> tuple[Weakening, ...]:
    """By node id, kind and place, each once."""
    return tuple(sorted(set(found), key=lambda w: (w.id, KINDS.index(w.kind), w.location, w.before, w.after)))


# --- reasons

_SCOPED = re.compile(r"(?P<target>\S*(?:::.*?)?)(?<!:):\s+(?P<reason>\S.*)", re.DOTALL)


def reasons(trailers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The reasons of a message as (target, reason); the target is empty for a reason that covers every finding.

    A target has `::`, ends with `.py`, or is a name that begins with test or Test; anything else before a colon is part
    of the reason.
    """
    found = []
    for key, value in trailers:
        if key.lower() != TRAILER.lower() or not value.strip():
            continue
        match = _SCOPED.fullmatch(value.strip())
        target = match["target"] if match else ""
        if match and ("::" in target or target.endswith(".py") or re.fullmatch(r"[Tt]est\w*", target)):
            found.append((target, match["reason"].strip()))
        elif not re.fullmatch(r"\S+::\S+:?|[Tt]est\w*:", value.strip()):
            # A node id without a word behind it gives no reason.
            found.append(("", value.strip()))
    return found


def _covers(target: str, id_: str) -> bool:
    if not target:
        return True
    plain, wanted = id_.partition("[")[0], target.partition("[")[0]
    if plain == wanted or plain.startswith(wanted + "::"):
        return True
    return "::" not in wanted and wanted in plain.split("::")[1:]


def explained(found: Iterable[Weakening], given: Sequence[tuple[str, str]]) -> tuple[Weakening, ...]:
    """The findings with the reasons that cover them; one that names the test goes before one for all."""
    by_target = sorted(given, key=lambda pair: not pair[0])
    told = []
    for item in found:
        reason = next((reason for target, reason in by_target if _covers(target, item.id)), None)
        told.append(replace(item, reason_given=reason))
    return ordered(told)


# --- what pytest collects


def _words(value: object, otherwise: tuple[str, ...]) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(value.split()) or otherwise
    if isinstance(value, list):
        return tuple(str(item) for item in value) or otherwise
    return otherwise


def collection_of(text: Callable[[str], bytes | None]) -> Collection:
    """What the settings at the project's root say pytest collects; `text` gives the bytes of a file."""
    told = pytestfile.read(text)
    source = text(told.file) if told.file is not None else None
    table = (pytestfile.table(told.file, source) if told.file is not None and source is not None else None) or {}
    default = Collection()
    return Collection(
        _words(table.get("python_files"), default.files),
        _words(table.get("python_classes"), default.classes),
        _words(table.get("python_functions"), default.functions),
    )


# --- the product that went away


@dataclass(frozen=True)
class Gone:
    """What the product no longer has: public names, flags and parameters, and dotted names of modules."""

    names: frozenset[str] = frozenset()
    modules: frozenset[str] = frozenset()

    def took(self, code: TestCode, module: TestModule) -> str:
        """The part of the product without which this test cannot be; empty when there is none."""
        lost = self.modules & module.imports
        if lost:
            return min(lost)
        # One-letter parameters are everywhere.
        used = {word for word in self.names & {w.strip("'\"") for w in code.words} if len(word) > 2}
        return min(used) if used else ""

    def touches(self, words: frozenset[str]) -> bool:
        """Whether one of the words is gone."""
        return any(word.strip("'\"") in self.names for word in words if len(word) > 2)


def _imported(sources: Iterable[bytes | None]) -> frozenset[str]:
    """Names that the product takes from elsewhere: what it no longer uses need not be mocked any more."""
    found: set[str] = set()
    for source in sources:
        for row in re.findall(rb"^[ \t]*(?:from|import)[ \t]+(.+)", source or b"", re.MULTILINE):
            found |= {name.decode() for name in re.findall(rb"[A-Za-z_]\w*", row)}
    return frozenset(found - {"import", "as"})


def lost_names(sides: Sequence[tuple[bytes | None, bytes | None]]) -> frozenset[str]:
    """Names in the old sources of the product and in none of the new ones; each pair is (old, new) of one file."""
    names = symbols.added((after, before) for before, after in sides)
    return names | (_imported(before for before, _ in sides) - _imported(after for _, after in sides))


def _modules(paths: Iterable[str]) -> frozenset[str]:
    found: set[str] = set()
    for path in paths:
        if path.endswith(".py"):
            parts = path.removesuffix(".py").removesuffix("/__init__").split("/")
            found |= {".".join(parts[start:]) for start in range(len(parts))}
    return frozenset(found)


def gone_between(repository: Repository, base: Listing, head: Listing, product: Iterable[str]) -> Gone:
    """What the changed product files had at the parent and none of them has any more."""
    python = [path for path in product if path.endswith(".py")]
    sides = [(repository.text(base, path), repository.text(head, path)) for path in python]
    lost = _modules(path for path in python if path not in head)
    return Gone(lost_names(sides), lost - _modules(path for path in head if path.endswith(".py")))


class Classes(Mapping[str, Sequence[str]]):
    """Base names of the project's classes, read when somebody asks: few commits change what a test expects to be
    raised."""

    def __init__(self, texts: Iterable[bytes]) -> None:
        self._texts = texts

    @cached_property
    def _found(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for text in self._texts:
            for name, bases in re.findall(rb"^[ \t]*class[ \t]+(\w+)[ \t]*\(([^()]*)\)", text, re.MULTILINE):
                found[name.decode()] = tuple(
                    base.strip() for base in bases.decode("utf-8", "replace").split(",") if "=" not in base
                )
        return found

    def __getitem__(self, name: str) -> Sequence[str]:
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


# --- likeness


class _Likeness:
    """How much of what makes a test distinct another one has. A word that many tests share weighs little."""

    def __init__(self, tests: Iterable[TestCode]) -> None:
        self._uses = Counter(word for code in tests for word in code.words)

    def _weight(self, words: Iterable[str]) -> float:
        return sum(1.0 / max(1, self._uses[word]) for word in words)

    def share(self, old: TestCode, words: frozenset[str]) -> float:
        whole = self._weight(old.words)
        return self._weight(old.words & words) / whole if whole else 0.0


@dataclass
class _Pool:
    """Demands that are new in the commit: what a test lost may have moved here."""

    checks: list[Check] = field(default_factory=list)

    def holds(self, lost: Check) -> bool | None:
        """Whether the demand stands elsewhere now; None where it may."""
        answer: bool | None = False
        for check in self.checks:
            if check.effective < lost.effective or check.family != lost.family:
                continue
            if check.form == lost.form or (check.shape == lost.shape and lost.words):
                return True
            if lost.family in ("raises", "warns"):
                if check.types == lost.types and 2 * len(check.words & lost.words) >= len(lost.words):
                    answer = None if answer is False else answer
            elif check.outline == lost.outline:
                answer = True if lost.words and lost.words & check.words else None if answer is False else answer
        return answer


# --- one test on both sides


def _span(parameters: Sequence[Parameters]) -> int | None:
    count = 1
    for one in parameters:
        if one.rows is None:
            return None
        count *= len(one.rows)
    return count


class _Comparer:
    def __init__(
        self,
        old: Mapping[str, TestModule],
        new: Mapping[str, TestModule],
        collection: Collection,
        gone: Gone,
        bases: Mapping[str, Sequence[str]],
    ) -> None:
        self.old, self.new, self.collection, self.gone, self.bases = old, new, collection, gone, bases
        self.old_tests = self._tests(old)
        self.new_tests = self._tests(new)
        self.likeness = _Likeness(self.old_tests.values())
        self.fresh = {id_: code for id_, code in self.new_tests.items() if id_ not in self.old_tests}
        self.taken: set[str] = set()
        self.found: list[Weakening] = []
        self.losses: list[tuple[str, str, Loss, bool]] = []
        self.pool = _Pool()
        self.pairs: list[Pair] = []

    def _tests(self, modules: Mapping[str, TestModule]) -> dict[str, TestCode]:
        return {
            f"{path}::{qualname}": code
            for path, module in modules.items()
            if self.collection.takes_file(path)
            for qualname, code in module.tests.items()
        }

    def run(self) -> Comparison:
        deleted: list[str] = []
        for id_, code in self.old_tests.items():
            if id_ in self.new_tests:
                self._same(id_, code, id_, self.new_tests[id_])
            else:
                deleted.append(id_)
        self._place(deleted)
        for id_, code in self.fresh.items():
            # What never runs has taken nothing over.
            if id_ not in self.taken and code.degree is not Degree.ALWAYS:
                self.pool.checks.extend(code.checks)
        self._others()
        self._ignored()
        self._settle_losses()
        unread = sorted(
            path
            for modules in (self.old, self.new)
            for path, module in modules.items()
            if not module.readable and (self.collection.takes_file(path) or path.rpartition("/")[2] == "conftest.py")
        )
        return Comparison(ordered(self.found), tuple(self.pairs), tuple(dict.fromkeys(unread)))

    # the same test on both sides

    def _same(self, old_id: str, old: TestCode, new_id: str, new: TestCode, *, certain: bool = True) -> None:
        if (old.exact, old.degree, old.parameters, old.search) == (new.exact, new.degree, new.parameters, new.search):
            return
        self._skips(old, new_id, new)
        self._parameters(old, new_id, new, certain=certain)
        self._search(old, new_id, new, certain=certain)
        if old.exact != new.exact or old.parameters != new.parameters:
            path, new_path = old_id.partition("::")[0], new_id.partition("::")[0]
            self.pairs.append(Pair(path, old, new_path, new))
        if old.body != new.body or old.exact != new.exact:
            share = self.likeness.share(old, new.words)
            self._checks(old_id, old, new_id, new, certain=certain and not (len(old.words) > 3 and share < REWRITTEN))

    def _checks(self, old_id: str, old: TestCode, new_id: str, new: TestCode, *, certain: bool) -> None:
        lost, gained = losses.compare(old.checks, new.checks, bases=self.bases, rewritten=not certain)
        if new.degree is not Degree.ALWAYS:
            self.pool.checks.extend(gained)
        self.losses.extend((old_id, new_id, loss, self._helped(new_id, new, loss)) for loss in lost)

    def _helped(self, new_id: str, new: TestCode, loss: Loss) -> bool:
        """Whether a helper or fixture that the test reaches demands what it lost."""
        module = self.new.get(new_id.partition("::")[0], testcode.EMPTY)
        helpers = {code.name: code for code in (*module.helpers.values(), *module.fixtures.values())}
        waiting, seen = list(new.calls), set[str]()
        while waiting:
            name = waiting.pop()
            if name in seen or name not in helpers:
                continue
            seen.add(name)
            waiting.extend(helpers[name].calls)
            if _Pool(list(helpers[name].checks)).holds(loss.before) is not False:
                return True
        return False

    def _skips(self, old: TestCode, new_id: str, new: TestCode) -> None:
        if new.degree <= old.degree:
            return
        path = new_id.partition("::")[0]
        cause = max((skip for skip in new.skips if skip.degree is new.degree), key=lambda skip: not skip.doubtful)
        id_ = f"{path}::{cause.scope}" if cause.scope else path
        note = "it no longer has to pass" if cause.xfail else "it no longer runs"
        if cause.degree is Degree.SOMETIMES:
            note += " everywhere"
        before = old.source if cause.scope == new.qualname else ""
        kind = "xfail" if cause.xfail else "skipped"
        self._say(id_, kind, before, cause.source, f"{path}:{cause.line}", not cause.doubtful, note)

    def _parameters(self, old: TestCode, new_id: str, new: TestCode, *, certain: bool) -> None:
        path = new_id.partition("::")[0]
        unmatched = list(new.parameters)
        missing: list[Parameters] = []
        for before in old.parameters:
            after = next((p for p in unmatched if p.names == before.names and p.names is not None), None)
            if after is None:
                missing.append(before)
                continue
            unmatched.remove(after)
            if before.rows is None or after.rows is None:
                continue
            for row in sorted((after.skipped - before.skipped) & set(before.rows)):
                where, told = f"{path}:{after.line}", after.sources[row]
                self._say(new_id, "skipped", before.sources[row], told, where, True, "these parameters no longer run")
            lost = list((Counter(before.rows) - Counter(after.rows)).elements())
            fewer = len(before.rows) - len(after.rows)
            if lost and fewer > 0:
                self._lost_rows(old, new_id, before, after, lost, fewer, certain=certain)
        before_count, after_count = _span(missing), _span(unmatched)
        if missing and before_count is not None and after_count is not None and after_count < before_count:
            # The rows may have become a loop, or tests of their own.
            elsewhere = new.loops or bool(unmatched) or self._moved_rows(missing)
            note = f"{before_count} parameters became {after_count}"
            where = f"{path}:{unmatched[0].line if unmatched else new.line}"
            after_source = unmatched[0].source if unmatched else ""
            self._say(new_id, "lost-ids", missing[0].source, after_source, where, certain and not elsewhere, note)

    def _moved_rows(self, missing: Sequence[Parameters]) -> bool:
        words = {text for one in missing for text in one.sources.values()}
        return any(any(word.strip("'\"") in w for word in words) for code in self.fresh.values() for w in code.words)

    def _lost_rows(
        self,
        old: TestCode,
        new_id: str,
        before: Parameters,
        after: Parameters,
        lost: Sequence[str],
        fewer: int,
        *,
        certain: bool,
    ) -> None:
        path = new_id.partition("::")[0]
        told = snippet(", ".join(dict.fromkeys(before.sources[row] for row in lost)))
        literals = set(re.findall(r"(?:str|bytes|int|float):('[^']*'|\"[^\"]*\"|[\w.+-]+)", " ".join(lost)))
        moved = any(literals and literals <= code.words for id_, code in self.fresh.items() if id_ != new_id)
        went = self.gone.touches(frozenset(re.findall(r"\w+|'[^']*'", " ".join(lost))))
        note = f"{fewer} of {len(before.rows or ())} parameters are gone"
        note += ", with the product's part" if went else ", perhaps into another test" if moved else ""
        sure = certain and not moved and not went
        self._say(new_id, "lost-ids", told, after.source, f"{path}:{after.line}", sure, note)

    def _search(self, old: TestCode, new_id: str, new: TestCode, *, certain: bool) -> None:
        path, before, after = new_id.partition("::")[0], old.search, new.search
        if not before.given:
            return
        where = f"{path}:{after.line if after.given else new.line}"
        if not after.given:
            self._say(new_id, "fewer-examples", "@given", "", where, False, "it is no longer searched")
            return
        old_count = before.max_examples or HYPOTHESIS_EXAMPLES
        new_count = after.max_examples or HYPOTHESIS_EXAMPLES
        if new_count < old_count:
            told = before.max_examples is not None and after.max_examples is not None
            note = f"{new_count} examples instead of {old_count}" + (
                "" if told else " (unless a profile says otherwise)"
            )
            old_source, new_source = (s.sources.get("max_examples", "") for s in (before, after))
            self._say(new_id, "fewer-examples", old_source, new_source, where, certain and told, note)
        lost = [example for example in before.examples if example not in after.examples]
        if lost and len(after.examples) < len(before.examples):
            sources = snippet(", ".join(before.sources[example] for example in lost))
            gained = any(example not in before.examples for example in after.examples)
            self._say(
                new_id, "fewer-examples", sources, "", where, certain and not gained, "explicit examples are gone"
            )
        silenced = sorted(after.suppressed - before.suppressed)
        if silenced:
            source = after.sources.get("suppressed", "")
            note = f"{', '.join(silenced)} is no longer heeded"
            self._say(new_id, "suppressed-health-check", "", source, where, False, note)

    # tests that are not where they were

    def _place(self, deleted: Sequence[str]) -> None:
        """Finds where each went: the exact copies first, so that no likeness takes a place from them."""
        waiting = list(deleted)
        named = defaultdict(list)
        for id_, code in self.fresh.items():
            named[code.name].append(id_)

        def take(same: str, *, name: bool) -> None:
            for id_ in list(waiting):
                code = self.old_tests[id_]
                for new_id, new in self.fresh.items():
                    if new_id in self.taken or getattr(new, same) != getattr(code, same):
                        continue
                    if name and new.name != code.name:
                        continue
                    self.taken.add(new_id)
                    waiting.remove(id_)
                    self._same(id_, code, new_id, new)
                    break

        for name in (True, False):
            take("exact", name=name)
            take("body", name=name)
        for id_ in list(waiting):
            code = self.old_tests[id_]
            names = [new for new in named[code.name] if new not in self.taken]
            if names:
                best = max(names, key=lambda new: self.likeness.share(code, self.fresh[new].words))
                share = self.likeness.share(code, self.fresh[best].words)
                if len(names) == 1 or share >= SAME_TEST:
                    self.taken.add(best)
                    waiting.remove(id_)
                    self._same(id_, code, best, self.fresh[best], certain=share >= SAME_TEST)
        for id_ in waiting:
            self._gone(id_, self.old_tests[id_])

    def _words(self, id_: str, code: TestCode) -> frozenset[str]:
        """What a test is about, with the helpers of its file that are new in the commit."""
        path = id_.partition("::")[0]
        helpers = self.new.get(path, testcode.EMPTY).helpers
        old = self.old.get(path, testcode.EMPTY).helpers
        fresh = [h.words for name, h in helpers.items() if name not in old and h.name in code.calls]
        return code.words.union(*fresh)

    def _candidates(self, old: TestCode) -> list[tuple[float, str, TestCode]]:
        """New tests, and old ones that took something of it in, by likeness."""
        found = []
        for id_, code in self.new_tests.items():
            words = self._words(id_, code)
            previous = self.old_tests.get(id_)
            if previous is not None:
                grown = words - previous.words
                if not grown & old.words:
                    continue
            found.append((self.likeness.share(old, words), id_, code))
        return sorted(found, key=lambda item: (-item[0], item[1]))

    def _gone(self, id_: str, old: TestCode) -> None:
        path = id_.partition("::")[0]
        candidates = self._candidates(old)
        best = candidates[0] if candidates else None
        if best is not None and best[0] >= SAME_TEST:
            self._merged(id_, old, [best])
            return
        parts = [candidate for candidate in candidates if candidate[0] >= PART_OF_IT]
        union = frozenset[str]().union(*(self._words(i, code) for _, i, code in parts))
        if len(parts) > 1 and self.likeness.share(old, union) >= SAME_TEST:
            self._merged(id_, old, parts)
            return
        module = self.old[path]
        took = self.gone.took(old, module)
        certain, note = True, "no test like it is left"
        if took:
            certain, note = False, f"{took} went away with it"
        elif best is not None and best[0] >= RESEMBLES:
            certain, note = False, f"perhaps part of {best[1]}"
        elif self._successor(id_, candidates):
            certain, note = False, f"perhaps replaced by {self._successor(id_, candidates)}"
        elif old.degree is Degree.ALWAYS:
            certain, note = False, "it was skipped or expected to fail"
        elif self._twin(id_, old):
            certain, note = False, f"{self._twin(id_, old)} does the same"
        elif self._inherited(id_, old):
            certain, note = False, "its class may still inherit one of this name"
        elif path in self.new and not self.new[path].readable:
            certain, note = False, "the file cannot be read any more"
        self._say(id_, "deleted", old.source, "", f"{path}:{old.line}", certain, note)
        self.pairs.append(Pair(path, old))

    def _merged(self, id_: str, old: TestCode, into: Sequence[tuple[float, str, TestCode]]) -> None:
        checks = [check for _, _, code in into for check in code.checks]
        lost, _ = losses.compare(old.checks, checks, bases=self.bases, rewritten=True)
        new_id, code = into[0][1], into[0][2]
        for loss in lost:
            # What parameters made of a demand is not known to the syntax: only plain steps down are worth a word.
            if loss.after is not None and loss.kind not in ("conditional", "removed-assertion"):
                self.losses.append((id_, new_id, loss, False))
        if code.degree > old.degree:
            self._skips(old, new_id, code)

    def _successor(self, id_: str, candidates: Sequence[tuple[float, str, TestCode]]) -> str:
        """A new test that has something of this one and stands where it stood: after the same neighbour."""
        path = id_.partition("::")[0]
        before = [other for other in self.old_tests if other.startswith(path + "::")]
        kept = [other for other in before[: before.index(id_)] if other in self.new_tests]
        after = [other for other in self.new_tests if other.startswith(path + "::")]
        place: list[str] = []
        for other in after[after.index(kept[-1]) + 1 if kept and kept[-1] in after else 0 :]:
            if other not in self.fresh:
                break
            place.append(other)
        shares = {new_id: share for share, new_id, _ in candidates}
        # One for one is a replacement also where little of it is left.
        enough = REPLACES if len(place) == 1 else PART_OF_IT
        old = self.old_tests[id_]
        for other in place:
            # Small numbers are shared by tests that have nothing to do with each other.
            shared = old.words & self._words(other, self.fresh[other])
            if shares.get(other, 0.0) >= enough and any(
                not word.strip("-").replace(".", "").isdigit() for word in shared
            ):
                return other
        return ""

    def _twin(self, id_: str, old: TestCode) -> str:
        return next(
            (other for other, code in self.new_tests.items() if other != id_ and code.body == old.body and code.checks),
            "",
        )

    def _inherited(self, id_: str, old: TestCode) -> bool:
        path, _, qualname = id_.partition("::")
        parts = qualname.split("::")
        if len(parts) < 2 or path not in self.new:
            return False
        bases, waiting, seen = self.new[path].bases, [parts[-2]], set[str]()
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            for base in bases.get(name, ()):
                if f"{base}::{parts[-1]}" in self.new[path].tests or f"{base}::{parts[-1]}" in self.new[path].helpers:
                    return True
                plain = base.rpartition(".")[2]
                if base not in bases and plain not in _PLAIN_BASES:
                    return True
                waiting.append(base)
        return False

    # what is no test and makes tests strict all the same

    def _others(self) -> None:
        for path, before in self.old.items():
            after = self.new.get(path, testcode.EMPTY)
            collected = self.collection.takes_file(path)
            old_side = {**before.helpers, **({} if collected else before.tests)}
            new_side = {**after.helpers, **({} if collected else after.tests)}
            for name, code in old_side.items():
                if name in new_side and code.exact != new_side[name].exact and code.checks:
                    id_ = f"{path}::{name}"
                    share = self.likeness.share(code, new_side[name].words)
                    sure = len(code.words) <= 3 or share >= REWRITTEN
                    self._checks(id_, code, id_, new_side[name], certain=sure)
            for name, code in before.fixtures.items():
                if name in after.fixtures and code != after.fixtures[name]:
                    id_ = f"{path}::{name}"
                    self._checks(id_, code, id_, after.fixtures[name], certain=True)
                    self._parameters(code, id_, after.fixtures[name], certain=True)
        called = frozenset[str]().union(
            *(
                code.calls
                for module in self.new.values()
                for side in (module.tests, module.helpers, module.fixtures)
                for code in side.values()
            )
        )
        for path, after in self.new.items():
            before = self.old.get(path, testcode.EMPTY)
            helpers = [*after.helpers.values()]
            if not self.collection.takes_file(path):
                helpers += after.tests.values()
            fresh = [code for code in helpers if code.qualname not in before.helpers and code.name in called]
            fresh += [code for code in after.fixtures.values() if code.qualname not in before.fixtures]
            self.pool.checks.extend(check for code in fresh for check in code.checks)

    def _ignored(self) -> None:
        for path, after in self.new.items():
            if path.rpartition("/")[2] != "conftest.py":
                continue
            before = self.old.get(path, testcode.EMPTY)
            for entry in sorted(set(after.ignored) - set(before.ignored)):
                folder = path.removesuffix("conftest.py")
                note = "it is no longer collected"
                self._say(
                    folder + entry, "skipped", "", f"collect_ignore: {entry}", f"{path}:1", path in self.old, note
                )

    # findings

    def _settle_losses(self) -> None:
        for old_id, new_id, loss, helped in self.losses:
            certain, note = loss.certain, loss.note
            if loss.after is None:
                elsewhere = True if helped else self.pool.holds(loss.before)
                if elsewhere:
                    continue
                if elsewhere is None and certain:
                    certain, note = False, note + " here; another test may demand it now"
            elif loss.kind == "less-strict" and not certain and self.pool.holds(loss.before):
                continue
            if certain and self.gone.touches(loss.before.words):
                certain, note = False, note + "; the product's part went away with it"
            path, old_path = new_id.partition("::")[0], old_id.partition("::")[0]
            where = f"{path}:{loss.after.line}" if loss.after is not None else f"{old_path}:{loss.before.line}"
            after = loss.after.source if loss.after is not None else ""
            self._say(new_id, loss.kind, loss.before.source, after, where, certain, note)

    def _say(self, id_: str, kind: str, before: str, after: str, location: str, certain: bool, note: str) -> None:
        self.found.append(Weakening(id_, kind, before, after, location, None, certain, note))


def compare(
    old: Mapping[str, TestModule],
    new: Mapping[str, TestModule],
    *,
    collection: Collection | None = None,
    gone: Gone | None = None,
    bases: Mapping[str, Sequence[str]] | None = None,
) -> Comparison:
    """Compares the changed test-side files of two sides, by path; a file that one side does not have is left out there."""
    return _Comparer(old, new, collection or Collection(), gone or Gone(), bases or {}).run()


# --- commits


def between(repository: Repository, whole_base: Listing, whole_head: Listing, config: Config) -> Comparison:
    """Compares two whole listings of a repository, as far as they lie in the project. Raises CannotJudgeError when this
    clone lacks a file."""
    base, head = under(whole_base, repository.prefix), under(whole_head, repository.prefix)
    changed = changed_paths(base, head)
    tests, ignored = config.test_rules, config.ignored_rules
    test_side = [path for path in changed if tests.matches(path) and path.endswith(".py")]
    if not test_side:
        return Comparison()
    product = [path for path in changed if not tests.matches(path) and not ignored.matches(path)]
    collection = collection_of(lambda path: repository.text(head, path))
    read = {
        side: {
            path: testcode.parse(text, collection)
            for path in test_side
            if (text := repository.text(listing, path)) is not None
        }
        for side, listing in (("old", base), ("new", head))
    }
    texts = (
        text
        for path in head
        if path.endswith(".py") and (text := repository.text(head, path)) is not None and b"class " in text
    )
    return compare(
        read["old"],
        read["new"],
        collection=collection,
        gone=gone_between(repository, base, head, product),
        bases=Classes(texts),
    )


def of_merge(first: Comparison, others: Sequence[Comparison | None]) -> Comparison:
    """What a merge itself weakened, certain only where it is weaker than every parent: what came with a branch was
    judged there. None stands for a parent that this clone does not have."""

    def key(item: Weakening) -> tuple[str, str, str, str]:
        return item.id, item.kind, item.before, item.after

    known = [None if other is None else {key(item) for item in other.weakened} for other in others]
    told = []
    for item in first.weakened:
        everywhere = all(keys is not None and key(item) in keys for keys in known)
        told.append(item if everywhere else replace(item, certain=False, note=item.note + "; came with the merge"))
    return replace(first, weakened=ordered(told))


def of_commit(repository: Repository, sha: str, config: Config) -> Comparison:
    """What a commit weakens against its parents; nothing for a first commit. Raises CannotJudgeError (`history-missing`)
    when this clone lacks the parent."""
    commit = repository.commit(sha)
    if not commit.parents:
        return Comparison()
    if not repository.has_commit(commit.parents[0]):
        raise CannotJudgeError(
            "history-missing",
            f"the parent {commit.parents[0][:12]} is not in this clone",
            "Fetch it (`git fetch --deepen=1`, or --unshallow), then try again.",
        )
    head = repository.listing(sha)
    first = between(repository, repository.listing(commit.parents[0]), head, config)
    if len(commit.parents) == 1:
        return first
    others = [
        between(repository, repository.listing(parent), head, config) if repository.has_commit(parent) else None
        for parent in commit.parents[1:]
    ]
    return of_merge(first, others)


def of_plan(repository: Repository, plan: Plan) -> Comparison:
    """The same for a commit that is planned."""
    return of_commit(repository, plan.commit.sha, plan.config)
