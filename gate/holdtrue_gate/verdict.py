"""Verdicts: pure rules from what replays told to how a new test fails without its fix. No I/O here.

The order of the rules is the order of the functions that `read_run` calls; the first that speaks wins.

1. the head must be green in every run, else `head-red` or `flaky`;
2. the process: our limit -> `hang`; ended inside the node -> `crash`; no session, or journal and exit disagree ->
`environment`; 3. provenance: first-party code from elsewhere -> `environment`, whatever else was seen; 4. skipped,
expected to fail, not collected -> `not-run`; 5. an exception anywhere in the chain that says the parent lacks what the
test uses -> `missing-api` or `environment`; 6. an assertion whose last own frame is test-side -> `own-assertion`, in
the product -> `product-assertion`; 7. a declared exception -> `declared-exception`; in setup or teardown ->
`fixture-error`; else -> `undeclared-exception`; 8. green at the parent -> `vacuous`; 9. different verdicts over the
runs -> `flaky`, or `own-probabilistic` when a rate was declared and reached; 10. an own assertion that only looks for a
new name, a new option's exit status or a new version, or whose test read product source -> `suspect`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from holdtrue_gate.journal import Frame, NodeRun, Phase, Raised, RunRecord
from holdtrue_gate.patterns import PathRules


class Verdict(StrEnum):
    """How a new test fails without the product change of its commit."""

    OWN_ASSERTION = "own-assertion"
    OWN_PROBABILISTIC = "own-probabilistic"
    DECLARED_EXCEPTION = "declared-exception"
    MISSING_API = "missing-api"
    VACUOUS = "vacuous"
    UNDECLARED_EXCEPTION = "undeclared-exception"
    PRODUCT_ASSERTION = "product-assertion"
    FIXTURE_ERROR = "fixture-error"
    HANG = "hang"
    CRASH = "crash"
    NOT_RUN = "not-run"
    FLAKY = "flaky"
    SUSPECT = "suspect"
    HEAD_RED = "head-red"
    ENVIRONMENT = "environment"


PROOF = frozenset({Verdict.OWN_ASSERTION, Verdict.OWN_PROBABILISTIC, Verdict.DECLARED_EXCEPTION})

# Several failures in one run: the verdict is never better than its weakest doubt, so the first of these that occurs speaks.
_WEAKEST_FIRST = (
    Verdict.ENVIRONMENT,
    Verdict.FLAKY,
    Verdict.HANG,
    Verdict.CRASH,
    Verdict.NOT_RUN,
    Verdict.MISSING_API,
    Verdict.FIXTURE_ERROR,
    Verdict.PRODUCT_ASSERTION,
    Verdict.UNDECLARED_EXCEPTION,
    Verdict.SUSPECT,
    Verdict.DECLARED_EXCEPTION,
    Verdict.OWN_ASSERTION,
    Verdict.VACUOUS,
)

_IMPORT = "builtins.ImportError"
_ATTRIBUTE = "builtins.AttributeError"
_TYPE = "builtins.TypeError"
_NAME = "builtins.NameError"
_EXIT = "builtins.SystemExit"
_WARNING = "builtins.Warning"
_ASSERTION = "builtins.AssertionError"
_OUTCOME = "_pytest.outcomes.OutcomeException"
_DOCTEST = "doctest.DocTestFailure"
_COLLECT_WRAPPERS = (
    "_pytest.nodes.Collector.CollectError",
    "_pytest.nodes.CollectError",
    "_pytest.config.ConftestImportFailure",
)
_CANNOT_IMPORT = re.compile(r"cannot import name '([^']+)'")
_BINDING = re.compile(
    r"unexpected keyword argument|takes .*positional argument|missing \d+ required"
    r"|takes no (?:keyword )?arguments|takes exactly one argument|got multiple values|is an invalid keyword argument"
)
_PARAMETER = re.compile(r"unexpected keyword argument '([^']+)'|'([^']+)' is an invalid keyword argument")
# Exceptions that came through a pickle have lost whose attribute it was; their words are the interpreter's own.
_NO_ATTRIBUTE = re.compile(
    r"(?:module|type object|Mock object|'[^']*' object)(?: '([^']*)')? has no attribute '([^']+)'"
)
_CALLEE = re.compile(r"^([\w.<>]+)\(\)")
_NO_SUCH = re.compile(r"no such (?:table|column|function|index): (?:\w+\.)*([\w$]+)|has no column named ([\w$]+)")
_LOOKUP_FILES = ("_pytest/monkeypatch.py", "unittest/mock.py", "mock/mock.py")
_EXIT_STATUS = frozenset({".returncode", ".exit_code"})
_UNITTEST_FIXTURES = frozenset(
    {"setUp", "setUpClass", "setUpModule", "tearDown", "tearDownClass", "tearDownModule", "asyncSetUp", "asyncTearDown"}
)
OUTPUT_CHARS = 4000
_SIGNAL_NAMES = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}


@dataclass(frozen=True)
class Layout:
    """What the rules must know of a repository: which paths are test-side, which names are its own, which names the
    commit adds.

    `first_party` holds dotted module names; a module is first-party when one of them is its name, a package above it, or
    a module below it (a namespace that the repository shares). `added` holds names that the product change brings:
    module and class level names, parameters, `--flags`, names of environment variables, SQL identifiers, paths of new
    files. `versions` holds names of constants by which the change only counts up a version.
    """

    tests: PathRules
    checkers: PathRules = field(default_factory=lambda: PathRules(()))
    first_party: frozenset[str] = frozenset()
    added: frozenset[str] = frozenset()
    versions: frozenset[str] = frozenset()

    def is_test(self, frame: Frame) -> bool:
        """Whether a frame is code of the tests, of a registered checker, or an example of a doctest."""
        return frame.inside and (frame.doctest or self.tests.matches(frame.file) or self.checkers.matches(frame.file))

    def is_first_party(self, module: str) -> bool:
        """Whether a module belongs to the repository, or a package of it below."""
        return any(
            module == name or module.startswith(name + ".") or name.startswith(module + ".")
            for name in self.first_party
        )

    def adds(self, module: str) -> bool:
        """Whether the commit brings a module, by the path of its new file."""
        path = module.replace(".", "/")
        ends = (f"{path}.py", f"{path}/__init__.py")
        return any(name == end or name.endswith("/" + end) for name in self.added for end in ends)


@dataclass(frozen=True)
class Expectation:
    """What a finding declares of its test at the parent. `exceptions` are exact qualified names; `detects` is (k, n)
    for races."""

    exceptions: frozenset[str] = frozenset()
    hang: bool = False
    crash: bool = False
    detects: tuple[int, int] | None = None


NOTHING_DECLARED = Expectation()


@dataclass(frozen=True)
class Looks:
    """What the test's source says: names it looks for by hasattr and the like; by line range, the literals of its
    assertions and, with a leading dot, the names and attributes in them; and all its literals."""

    existence: frozenset[str] = frozenset()
    assertions: tuple[tuple[int, int, frozenset[str]], ...] = ()
    literals: frozenset[str] = frozenset()


NO_LOOKS = Looks()


@dataclass(frozen=True)
class Reading:
    """One run of one node, judged. `vacuous` means: passed. `location` is `file:line` relative to the tree.

    For the reader of a report, and of no weight for a verdict: `line` is where the test begins, `source` the lines
    around the location as (number, text), `output` the end of what a red run printed.
    """

    verdict: Verdict
    exception: str | None = None
    message: str = ""
    location: str | None = None
    phase: str | None = None
    reason: str = ""
    symbol: str | None = None
    seconds: float = 0.0
    line: int | None = None
    source: tuple[tuple[int, str], ...] = ()
    output: str = ""

    @property
    def green(self) -> bool:
        """Whether the node passed in every phase."""
        return self.verdict is Verdict.VACUOUS


@dataclass(frozen=True)
class Judgement:
    """The verdict on one new test, with the runs it rests on; `side` is where the verdict was found, head or parent."""

    id: str
    verdict: Verdict
    proof: bool
    exception: str | None
    message: str
    location: str | None
    reason: str
    side: str
    head: tuple[Reading, ...] = ()
    parent: tuple[Reading, ...] = ()
    symbol: str | None = None
    changed: bool = False


# --- exceptions


def chain(raised: Raised) -> Iterator[Raised]:
    """The exception, then its causes and contexts, outermost first; contexts count even when `from None` hid them."""
    waiting = [raised]
    while waiting:
        current = waiting.pop(0)
        yield current
        waiting.extend(link for link in (current.cause, current.context) if link is not None)


def _own_frames(frames: Sequence[Frame]) -> list[Frame]:
    return [frame for frame in frames if frame.inside and not frame.hidden]


def _spot(frame: Frame | None) -> str | None:
    return f"{frame.file}:{frame.line}" if frame is not None else None


def _last_own(raised: Raised) -> Frame | None:
    """Where the failure is: the last frame of this project. A worker's own traceback outranks the frame that only re-
    raised it."""
    for link in chain(raised):
        remote = _own_frames(link.remote)
        if remote:
            return remote[-1]
    own = _own_frames(raised.frames)
    if own:
        return own[-1]
    # A wrapper that pytest raised around the real one has no frame of ours; the real one has.
    for link in chain(raised):
        own = _own_frames(link.frames)
        if own:
            return own[-1]
    return None


def _where(raised: Raised) -> tuple[Frame, ...]:
    """The frames in which it was raised: of a worker, where the exception came from one as text."""
    cause = raised.cause
    return raised.remote or (cause.remote if cause is not None else ()) or raised.frames


def _raised_in_test(raised: Raised, layout: Layout) -> bool:
    """Whether the innermost frame of all, whoever owns it, is test code."""
    visible = _where(raised)
    return bool(visible) and layout.is_test(visible[-1])


def _reading(
    verdict: Verdict, raised: Raised, phase: str, reason: str, symbol: str | None = None, frame: Frame | None = None
) -> Reading:
    return Reading(verdict, raised.short_type, raised.message, _spot(frame or _last_own(raised)), phase, reason, symbol)


def _missing_import(link: Raised, outermost: bool, phase: str, layout: Layout) -> Reading | None:
    if not link.is_a(_IMPORT):
        return None
    named = _CANNOT_IMPORT.search(link.message)
    symbol = link.name_from or (named.group(1) if named else None)
    if link.name is None and symbol is None:
        return None  # raised by hand: behaviour, not a failed import
    module = link.name or ""
    own = _own_frames(_where(link))
    if own and not layout.is_test(own[-1]) and not (symbol in layout.added or layout.adds(module)):
        # The parent's own code imports what this commit does not bring either: that is the bug, not what the test uses.
        return None if layout.is_first_party(module) or not outermost else _not_installed(link, phase, module)
    if layout.is_first_party(module):
        what = f"{module}.{symbol}" if symbol else module
        masked = "" if outermost else ", although the test turned that into another failure"
        return _reading(Verdict.MISSING_API, link, phase, f"{what} does not exist at the parent{masked}", what)
    return _not_installed(link, phase, module) if outermost else None


def _not_installed(link: Raised, phase: str, module: str) -> Reading:
    return _reading(
        Verdict.ENVIRONMENT, link, phase, f"the module {module!r} is not installed for this interpreter", module
    )


def _told_attribute(link: Raised, phase: str, layout: Layout) -> Reading | None:
    """A missing attribute known by its words alone: behind a pickle, a mock made after the product, a `__getattr__`."""
    told = _NO_ATTRIBUTE.search(link.message)
    name = link.name or (told.group(2) if told else None)
    if name is None or name not in layout.added:
        return None
    frames = _where(link)
    own = _own_frames(frames)
    mocked = bool(frames) and frames[-1].file.replace("\\", "/").endswith(_LOOKUP_FILES)
    asked = bool(own) and own[-1].function in ("__getattr__", "__getattribute__")
    in_test = bool(frames) and layout.is_test(frames[-1])
    if asked or in_test or (mocked and own and layout.is_test(own[-1])):
        what = f"{told.group(1)}.{name}" if told and told.group(1) else name
        return _reading(Verdict.MISSING_API, link, phase, f"{what} does not exist at the parent", what)
    return None


def _missing_attribute(link: Raised, phase: str, layout: Layout) -> Reading | None:
    if not link.is_a(_ATTRIBUTE):
        return None
    owner = link.owner
    if owner is not None and owner.kind != "none":
        ours = owner.file is not None or layout.is_first_party(owner.module)
        if ours and _raised_in_test(link, layout):
            what = f"{owner.name}.{link.name}"
            return _reading(Verdict.MISSING_API, link, phase, f"{what} does not exist at the parent", what)
        mock = owner.module.partition(".")[0] in ("unittest", "mock")
        return _told_attribute(link, phase, layout) if ours or mock else None
    if owner is None and (told := _told_attribute(link, phase, layout)) is not None:
        return told
    last = _last_own(link)
    by_lookup = bool(link.frames) and link.frames[-1].file.replace("\\", "/").endswith(_LOOKUP_FILES)
    if owner is None and by_lookup and last is not None and layout.is_test(last):
        return _reading(
            Verdict.MISSING_API,
            link,
            phase,
            "the test replaces an attribute that does not exist at the parent",
            link.message,
        )
    return None


def _missing_parameter(link: Raised, phase: str, layout: Layout) -> Reading | None:
    if not (link.is_a(_TYPE) and _BINDING.search(link.message)):
        return None
    named, callee = _PARAMETER.search(link.message), _CALLEE.match(link.message)
    symbol = (named.group(1) or named.group(2)) if named else callee.group(1) if callee else None
    # A wrong call is raised in the caller's frame: the callee never gets one. A wrapper of the product that passes on
    # what it is given is such a caller too, when the commit adds the parameter.
    if not (_raised_in_test(link, layout) or (named and symbol in layout.added)):
        return None
    sure = "the commit adds it" if symbol in layout.added else "the signature differs at the parent"
    return _reading(
        Verdict.MISSING_API,
        link,
        phase,
        f"the call does not fit the parent's signature ({symbol or 'unnamed'}: {sure})",
        symbol,
    )


def _missing_name(link: Raised, phase: str, layout: Layout, looks: Looks) -> Reading | None:
    if link.is_a(_NAME) and link.name in layout.added:
        return _reading(
            Verdict.MISSING_API, link, phase, f"the name {link.name} does not exist at the parent", link.name
        )
    if link.is_a("builtins.FileNotFoundError") and link.name in layout.added:
        return _reading(
            Verdict.MISSING_API, link, phase, f"the file {link.name} does not exist at the parent", link.name
        )
    if "Error" in link.type and (match := _NO_SUCH.search(link.message)):
        symbol = match.group(1) or match.group(2)
        if symbol in layout.added:
            return _reading(Verdict.MISSING_API, link, phase, f"the schema has no {symbol} at the parent", symbol)
    if link.is_a(_EXIT) and link.code in (2, "2"):
        flags = sorted(name for name in looks.literals & layout.added if name.startswith("-"))
        if flags:
            return _reading(
                Verdict.MISSING_API, link, phase, f"the command line does not know {flags[0]} at the parent", flags[0]
            )
    return None


def _missing(raised: Raised, phase: str, layout: Layout, looks: Looks) -> Reading | None:
    """Rule 5: the parent lacks what the test uses, however deep in the chain that shows."""
    wrapper = raised.is_a(*_COLLECT_WRAPPERS)
    for index, link in enumerate(chain(raised)):
        outermost = index == 0 or (wrapper and index == 1)
        found = (
            _missing_import(link, outermost, phase, layout)
            or _missing_attribute(link, phase, layout)
            or _missing_parameter(link, phase, layout)
            or _missing_name(link, phase, layout, looks)
        )
        if found is not None:
            return found
    return None


def _instrument(raised: Raised, phase: str) -> Reading | None:
    """Errors of the test's own tools: hypothesis, pytest-timeout."""
    module, _, name = raised.type.rpartition(".")
    if module == "hypothesis.errors":
        if name.startswith("Flaky"):
            return _reading(Verdict.FLAKY, raised, phase, "hypothesis saw the same example fail and pass")
        return _reading(Verdict.FIXTURE_ERROR, raised, phase, "hypothesis could not run the test as written")
    # A limit that passed is no failure of the test's words, whatever the code under test made of it afterwards.
    for link in chain(raised):
        if link.is_a(_OUTCOME) and link.frames and link.frames[-1].file.endswith("pytest_timeout.py"):
            return _reading(Verdict.HANG, link, phase, "the test's own time limit passed")
        if any(frame.file.endswith("pytest_timeout.py") for frame in link.frames) and "pytest-timeout" in link.message:
            return _reading(Verdict.HANG, link, phase, "the test's own time limit passed")
    return None


def _real(raised: Raised) -> Raised:
    """The exception behind the wrapper that pytest raises around an import that failed."""
    if raised.is_a(*_COLLECT_WRAPPERS):
        return raised.cause or raised.context or raised
    return raised


def _declared(raised: Raised, expected: Expectation) -> bool:
    return raised.type in expected.exceptions or raised.short_type in expected.exceptions


def read_exception(
    raised: Raised, phase: str, layout: Layout, expected: Expectation = NOTHING_DECLARED, looks: Looks = NO_LOOKS
) -> Reading:
    """Rules 5 to 7 on one exception; `phase` is collect, setup, call or teardown. A group gets the weakest verdict of
    its leaves."""
    tool = _instrument(raised, phase)
    if tool is not None:
        return tool
    if raised.members:
        # A member that nobody raised has no frames: it is where its group is.
        members = [member if member.frames else replace(member, frames=raised.frames) for member in raised.members]
        readings = [read_exception(member, phase, layout, expected, looks) for member in members]
        return min(readings, key=lambda reading: _WEAKEST_FIRST.index(reading.verdict))
    missing = _missing(raised, phase, layout, looks)
    if missing is not None:
        return missing
    raised = _real(raised)
    frame = _last_own(raised)
    assertion = raised.is_a(_ASSERTION, _OUTCOME, _DOCTEST)
    in_fixture = phase == "setup" or any(f.function in _UNITTEST_FIXTURES for f in _own_frames(raised.frames))
    oracle = frame is not None and frame.inside and layout.checkers.matches(frame.file)
    if assertion and phase != "collect" and (not in_fixture or oracle):
        if frame is not None and layout.is_test(frame):
            return _reading(Verdict.OWN_ASSERTION, raised, phase, "fails with its own assertion", frame=frame)
        if frame is not None and not _declared(raised, expected):
            return _reading(
                Verdict.PRODUCT_ASSERTION,
                raised,
                phase,
                "an assertion inside the product failed, not one of the test",
                frame=frame,
            )
    if _declared(raised, expected):
        return _reading(Verdict.DECLARED_EXCEPTION, raised, phase, "raises what its finding declares", frame=frame)
    if phase == "collect" and raised.is_a(_WARNING) and raised.frames and not raised.frames[-1].inside:
        # An installed library warns of what was in order when the commit was made, and the project makes errors of it.
        reason = (
            "its file could not be imported: an installed library warns, and the project's settings make it an error"
        )
        return _reading(Verdict.ENVIRONMENT, raised, phase, reason, frame=frame)
    if phase == "collect":
        return _reading(Verdict.UNDECLARED_EXCEPTION, raised, phase, "its file could not be imported", frame=frame)
    if in_fixture or phase == "teardown":
        where = "teardown" if phase == "teardown" else "setup"
        return _reading(
            Verdict.FIXTURE_ERROR,
            raised,
            phase,
            f"failed in {where}, before or after the test's own words",
            frame=frame,
        )
    return _reading(
        Verdict.UNDECLARED_EXCEPTION, raised, phase, "raises an exception that nobody declared", frame=frame
    )


# --- one run


def classify_red(
    node: NodeRun, layout: Layout, expected: Expectation = NOTHING_DECLARED, looks: Looks = NO_LOOKS
) -> Reading:
    """How one node failed in one run: the weakest of its failed phases (subtests report several).

    `reading.verdict` is OWN_ASSERTION when the test's own assertion spoke; VACUOUS when no phase failed.
    `reading.exception`, `.phase` and
    `.location` (`file:line`) say what, when and where.
    """
    readings = []
    for phase in node.failed:
        if phase.raised is not None and _unexpected_success(phase.raised):
            readings.append(Reading(Verdict.NOT_RUN, phase=phase.when, reason="is expected to fail, and passed"))
        elif phase.raised is not None:
            readings.append(read_exception(phase.raised, phase.when, layout, expected, looks))
        elif (phase.detail or "").startswith(("[XPASS", "Unexpected success")):
            readings.append(Reading(Verdict.NOT_RUN, phase=phase.when, reason="is expected to fail, and passed"))
        elif not _summarises(phase, node):
            readings.append(
                Reading(Verdict.ENVIRONMENT, phase=phase.when, reason="was reported failed without an exception")
            )
    seconds = round(node.seconds, 4)
    if not readings:
        return Reading(Verdict.VACUOUS, reason="passes", seconds=seconds)
    return replace(min(readings, key=lambda reading: _WEAKEST_FIRST.index(reading.verdict)), seconds=seconds)


def _unexpected_success(raised: Raised) -> bool:
    """pytest fails an `unittest.expectedFailure` that passed: no frame of ours is in that."""
    return raised.is_a(_OUTCOME) and raised.message.startswith("Unexpected success") and not _own_frames(raised.frames)


def _summarises(phase: Phase, node: NodeRun) -> bool:
    """pytest reports a test with failed subtests once more, without an exception of its own."""
    return any(other is not phase and other.raised is not None for other in node.failed)


def _died(record: RunRecord, node: NodeRun | None) -> Reading:
    code = record.returncode
    if record.ended_for:
        how = record.ended_for
    elif record.session_exit is not None:
        how = "ended the session from inside"
    elif code is not None and code < 0:
        how = f"killed by {_SIGNAL_NAMES.get(-code, f'signal {-code}')}"
    else:
        how = f"ended the process itself with exit status {code}"
    return Reading(
        Verdict.CRASH,
        how,
        phase=node.entered if node else None,
        reason=f"the process did not survive this test ({how})",
    )


def _process(record: RunRecord, id_: str, node: NodeRun | None) -> Reading | None:
    """Rule 2."""
    if node is not None and not node.finished:
        if record.timed_out:
            why = record.ended_for or "did not end within its limit"
            return Reading(Verdict.HANG, phase=node.entered, reason=why)
        return _died(record, node)
    if node is None and not record.collection_done and not _collect_error(record, id_):
        if record.timed_out or record.ended_for:
            return Reading(Verdict.ENVIRONMENT, reason=f"collecting the tests {record.ended_for or 'did not end'}")
        why = "pytest did not start" if not record.session else "pytest ended before it had collected the tests"
        return Reading(
            Verdict.ENVIRONMENT, reason=f"{why} (exit status {record.returncode})", message=_last_line(record.output)
        )
    failures = any(run.failed for run in record.nodes.values()) or bool(record.collect_errors)
    # A test that broke the session off also chose its exit status.
    whole = record.open_node is None
    if whole and ((record.session_exit == 0 and failures) or (record.session_exit == 1 and not failures)):
        return Reading(
            Verdict.ENVIRONMENT, reason=f"the reports and the session's exit status {record.session_exit} disagree"
        )
    if record.session_exit == 3:
        return Reading(
            Verdict.ENVIRONMENT, reason="pytest reported an internal error", message=_last_line(record.output)
        )
    return None


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if "rror" in line]
    return (errors or lines or [""])[-1][:300]


def _collect_error(record: RunRecord, id_: str) -> str | None:
    """The id under which collecting this node went wrong: its class, file, a folder above, or a conftest on the way."""
    file = id_.partition("::")[0]
    for error in record.collect_errors:
        folder = error.rpartition("/")[0]
        above = id_ == error or id_.startswith((error + "::", error + "/")) or error in ("", ".")
        conftest = error.endswith("conftest.py") and (not folder or file.startswith(folder + "/"))
        if above or conftest:
            return error
    return None


def _not_run(record: RunRecord, id_: str, node: NodeRun | None) -> Reading | None:
    """Rule 4."""
    if node is None:
        for skipped, why in record.collect_skips.items():
            if id_ == skipped or id_.startswith(skipped + "::"):
                return Reading(Verdict.NOT_RUN, reason=f"its file is skipped ({why})")
        if id_ in record.collected:
            return Reading(Verdict.NOT_RUN, reason="was collected but never began")
        return Reading(Verdict.NOT_RUN, reason="was not collected")
    for phase in node.phases:
        if phase.xfail is not None:
            return Reading(
                Verdict.NOT_RUN, phase=phase.when, reason=f"is marked xfail ({phase.xfail or 'no reason given'})"
            )
        # A skipped subtest is no skipped test: the others have failed or passed.
        others = any(other.outcome == "passed" and other.when == phase.when for other in node.phases)
        if phase.outcome == "skipped" and not node.failed and not others:
            return Reading(Verdict.NOT_RUN, phase=phase.when, reason=f"is skipped ({phase.skip or 'no reason given'})")
    return None


def read_run(
    record: RunRecord, id_: str, layout: Layout, expected: Expectation = NOTHING_DECLARED, looks: Looks = NO_LOOKS
) -> Reading:
    """Rules 2 to 8 and 10 on one run of one node id."""
    node = record.nodes.get(id_)
    reading = _judged(record, id_, node, layout, expected, looks)
    return replace(
        reading,
        line=node.line if node else None,
        source=record.sources.get(reading.location or "", ()),
        output="" if reading.green else _output(record, node),
    )


def _output(record: RunRecord, node: NodeRun | None) -> str:
    """What a red run printed: pytest's capture of the last phase that failed, else the end of the process' own output."""
    captured = [phase.output for phase in node.failed if phase.output] if node else []
    if captured:
        return captured[-1][-OUTPUT_CHARS:]
    alive = node is not None and node.finished
    return "" if alive else record.output.strip()[-OUTPUT_CHARS:]


def _judged(
    record: RunRecord, id_: str, node: NodeRun | None, layout: Layout, expected: Expectation, looks: Looks
) -> Reading:
    process = _process(record, id_, node)
    if process is not None:
        return process
    if record.foreign:
        module, file = next(iter(sorted(record.foreign.items())))
        return Reading(
            Verdict.ENVIRONMENT,
            reason=f"the code under test is not the tree's: {module} was loaded from {file}",
            symbol=module,
        )
    if node is None and (error := _collect_error(record, id_)) is not None:
        raised = record.collect_errors[error]
        if raised is None:
            return Reading(Verdict.ENVIRONMENT, phase="collect", reason=f"{error} could not be collected")
        return read_exception(raised, "collect", layout, expected, looks)
    not_run = _not_run(record, id_, node)
    if not_run is not None:
        return not_run
    assert node is not None
    return _suspected(classify_red(node, layout, expected, looks), node, layout, looks)


def _suspected(reading: Reading, node: NodeRun, layout: Layout, looks: Looks) -> Reading:
    """Rule 10."""
    if reading.verdict is not Verdict.OWN_ASSERTION:
        return reading
    # Product that reads a file of its own (a template, a plug-in it copies) is behaviour; only the test's reading counts.
    read = sorted(
        file
        for file in node.reads
        if not layout.tests.matches(file) and layout.tests.matches(node.readers.get(file, "tests/"))
    )
    if read:
        return replace(
            reading, verdict=Verdict.SUSPECT, reason=f"the test reads product source ({read[0]})", symbol=read[0]
        )
    looked = sorted(looks.existence & layout.added)
    if looked:
        return replace(
            reading, verdict=Verdict.SUSPECT, reason=f"the test asks whether {looked[0]} exists", symbol=looked[0]
        )
    file, _, number = (reading.location or ":0").rpartition(":")
    # What stands in another file is not among the assertions that are known by their lines.
    line = int(number) if file == node.id.partition("::")[0] else 0
    for first, last, literals in looks.assertions:
        if not first <= line <= last:
            continue
        versions = sorted(name for name in layout.versions if "." + name in literals)
        if versions:
            return replace(
                reading,
                verdict=Verdict.SUSPECT,
                reason=f"the test only asks for the new value of {versions[0]}",
                symbol=versions[0],
            )
        flags = sorted(name for name in literals & layout.added if name.startswith("-"))
        if not flags and literals & _EXIT_STATUS:
            # The option stands elsewhere in the test; what failed only says that the parent refused it.
            flags = sorted(name for name in looks.literals & layout.added if name.startswith("-"))
        if flags:
            return replace(
                reading,
                verdict=Verdict.SUSPECT,
                reason=f"the test only looks for the new option {flags[0]}",
                symbol=flags[0],
            )
    return reading


# --- all runs


def wilson_low(hits: int, runs: int, z: float = 1.96) -> float:
    """Lower end of the Wilson score interval for a rate (Wilson 1927), 95 % two-sided by default."""
    if runs == 0:
        return 0.0
    rate = hits / runs
    centre = rate + z * z / (2 * runs)
    spread = z * math.sqrt(rate * (1 - rate) / runs + z * z / (4 * runs * runs))
    return max(0.0, (centre - spread) / (1 + z * z / runs))


def _head(id_: str, head: Sequence[Reading]) -> Judgement | None:
    """Rule 1: what the head says, when it is not simply green."""

    def judgement(verdict: Verdict, reading: Reading, reason: str) -> Judgement:
        return Judgement(
            id_,
            verdict,
            False,
            reading.exception,
            reading.message,
            reading.location,
            reason,
            "head",
            tuple(head),
            (),
            reading.symbol,
        )

    if not head:
        return Judgement(id_, Verdict.NOT_RUN, False, None, "", None, "was not collected at the commit", "head")
    red = [reading for reading in head if not reading.green]
    if not red:
        return None
    failing = [reading for reading in red if reading.verdict is not Verdict.NOT_RUN]
    first = (failing or red)[0]
    doubt = next((reading for reading in red if reading.verdict is Verdict.ENVIRONMENT), None)
    if doubt is None and len(red) == len(head) and not failing:
        doubt = first
    if doubt is not None:
        return judgement(doubt.verdict, doubt, f"at the commit itself: {doubt.reason}")
    if not failing:
        return judgement(
            Verdict.FLAKY, first, f"at the commit itself, in {len(red)} of {len(head)} runs: {first.reason}"
        )
    if len(failing) < len(head):
        return judgement(Verdict.FLAKY, first, f"fails at the commit itself in {len(failing)} of {len(head)} runs")
    return judgement(Verdict.HEAD_RED, first, f"fails at the commit itself: {first.reason}")


def judge(
    id_: str,
    head: Sequence[Reading],
    parent: Sequence[Reading],
    expected: Expectation = NOTHING_DECLARED,
    *,
    changed: bool = False,
) -> Judgement:
    """The verdict on one node id from its runs at the commit (`head`) and at the parent with the commit's test side
    (`parent`).

    `parent` may be shorter than `head`: a first run that already rules proof out needs no repeat. `changed` is kept for
    the report: the id existed before and its test, parameters or fixtures changed.
    """
    found = _head(id_, head)
    if found is not None:
        return replace(found, parent=tuple(parent), changed=changed)
    kinds = Counter(reading.verdict for reading in parent)

    def judgement(verdict: Verdict, reading: Reading, reason: str, proof: bool | None = None) -> Judgement:
        proved = verdict in PROOF if proof is None else proof
        return Judgement(
            id_,
            verdict,
            proved,
            reading.exception,
            reading.message,
            reading.location,
            reason,
            "parent",
            tuple(head),
            tuple(parent),
            reading.symbol,
            changed,
        )

    if not parent:
        return Judgement(
            id_,
            Verdict.NOT_RUN,
            False,
            None,
            "",
            None,
            "was not run at the parent",
            "parent",
            tuple(head),
            (),
            None,
            changed,
        )
    first = parent[0]
    for verdict in (Verdict.ENVIRONMENT, Verdict.FLAKY):
        doubt = next((reading for reading in parent if reading.verdict is verdict), None)
        if doubt is not None:
            return judgement(verdict, doubt, doubt.reason)
    own = [reading for reading in parent if reading.verdict in (Verdict.OWN_ASSERTION, Verdict.DECLARED_EXCEPTION)]
    if len(kinds) == 1:
        if first.verdict is Verdict.HANG:
            return judgement(first.verdict, first, first.reason, proof=expected.hang)
        if first.verdict is Verdict.CRASH:
            return judgement(first.verdict, first, first.reason, proof=expected.crash)
        reason = "passes at the parent too" if first.verdict is Verdict.VACUOUS else first.reason
        return judgement(first.verdict, first, reason)
    if expected.detects is not None and set(kinds) <= {
        Verdict.OWN_ASSERTION,
        Verdict.DECLARED_EXCEPTION,
        Verdict.VACUOUS,
    }:
        needed, of = expected.detects
        low = wilson_low(len(own), len(parent))
        rate = f"{len(own)} of {len(parent)} runs, rate at least {low:.2f} (Wilson, 95 %)"
        if len(own) * of >= needed * len(parent):
            return judgement(Verdict.OWN_PROBABILISTIC, own[0], f"fails with its own assertion in {rate}")
        return judgement(Verdict.FLAKY, own[0], f"fails in {rate}; its finding declares {needed}/{of}")
    red = next((reading for reading in parent if not reading.green), first)
    told = ", ".join(f"{count} x {verdict}" for verdict, count in sorted(kinds.items()))
    return judgement(Verdict.FLAKY, red, f"is not the same in every run at the parent ({told})")
