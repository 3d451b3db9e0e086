"""What a replay told: the journal's lines as data, and the reader that makes them. No rule is applied here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Frame:
    """One traceback frame. `file` is relative to the tree when `inside`, else as the interpreter named it. `doctest`
    says that it is an example of a docstring or text, whatever file holds it."""

    file: str
    line: int
    function: str
    inside: bool = True
    hidden: bool = False
    doctest: bool = False


@dataclass(frozen=True)
class Owner:
    """Whose attribute was missing; `kind` is none, module, class or instance."""

    kind: str
    module: str
    name: str
    file: str | None = None


@dataclass(frozen=True)
class Raised:
    """An exception as the probe saw it, with its cause, context and group members."""

    type: str
    mro: tuple[str, ...] = ()
    message: str = ""
    name: str | None = None
    name_from: str | None = None
    code: object = None
    owner: Owner | None = None
    frames: tuple[Frame, ...] = ()
    remote: tuple[Frame, ...] = ()
    members: tuple[Raised, ...] = ()
    cause: Raised | None = None
    context: Raised | None = None

    def is_a(self, *qualified_names: str) -> bool:
        """Whether the exception's class or one of its bases has one of these qualified names."""
        return self.type in qualified_names or any(name in qualified_names for name in self.mro)

    @property
    def short_type(self) -> str:
        """The type as a person writes it: builtins without their module."""
        return self.type.removeprefix("builtins.")


@dataclass(frozen=True)
class Phase:
    """The report of setup, call or teardown; `outcome` is passed, failed or skipped."""

    when: str
    outcome: str
    seconds: float = 0.0
    raised: Raised | None = None
    skip: str | None = None
    xfail: str | None = None
    detail: str | None = None
    output: str = ""


@dataclass
class NodeRun:
    """One node id in one run. `finished` is false when the process ended inside it; `line` is where the test begins.

    `reads` holds the sources of the tree that were opened, `readers` the file whose code opened each.
    """

    id: str
    phases: list[Phase] = field(default_factory=list)
    finished: bool = False
    entered: str | None = None
    reads: list[str] = field(default_factory=list)
    readers: dict[str, str] = field(default_factory=dict)
    line: int | None = None

    @property
    def failed(self) -> list[Phase]:
        """The phases that failed, in order."""
        return [phase for phase in self.phases if phase.outcome == "failed"]

    @property
    def seconds(self) -> float:
        """Time spent in all phases."""
        return sum(phase.seconds for phase in self.phases)


@dataclass
class RunRecord:
    """One replay: what its journal said and how its process ended.

    `timed_out` says that the gate ended the process, `ended_for` why. `session_exit` is None when the session never
    came to its end; `returncode` is the process' own (negative: a signal). `sources` holds, by `file:line`, the lines of
    the tree around the frames that a reading may name: (line number, text). `lines` is the journal itself.
    """

    started: bool = False
    session: bool = False
    collected: list[str] = field(default_factory=list)
    collection_done: bool = False
    collect_errors: dict[str, Raised | None] = field(default_factory=dict)
    collect_skips: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, NodeRun] = field(default_factory=dict)
    open_node: str | None = None
    session_exit: int | None = None
    foreign: dict[str, str] = field(default_factory=dict)
    neutralised: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    returncode: int | None = None
    timed_out: bool = False
    ended_for: str = ""
    seconds: float = 0.0
    output: str = ""
    lines: tuple[bytes, ...] = field(default=(), repr=False, compare=False)
    sources: dict[str, tuple[tuple[int, str], ...]] = field(default_factory=dict)

    @property
    def unfinished(self) -> list[str]:
        """Collected node ids that never began, because the process ended or the session was broken off before them."""
        return [id_ for id_ in self.collected if id_ not in self.nodes]


def _frame(data: Mapping[str, Any]) -> Frame:
    return Frame(
        str(data["file"]),
        int(data["line"]),
        str(data["function"]),
        bool(data["in"]),
        bool(data["hidden"]),
        bool(data.get("doctest")),
    )


def _raised(data: Mapping[str, Any] | None) -> Raised | None:
    if data is None:
        return None
    owner = data.get("owner")
    return Raised(
        type=data["type"],
        mro=tuple(data["mro"]),
        message=data.get("message") or "",
        name=data.get("name"),
        name_from=data.get("name_from"),
        code=data.get("code"),
        owner=Owner(**owner) if owner else None,
        frames=tuple(_frame(frame) for frame in data["frames"]),
        remote=tuple(_frame(frame) for frame in data["remote"]),
        members=tuple(member for member in map(_raised, data["members"]) if member is not None),
        cause=_raised(data.get("cause")),
        context=_raised(data.get("context")),
    )


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _take(record: RunRecord, event: Mapping[str, Any]) -> None:
    kind, id_ = event.get("e"), str(event.get("id"))
    if kind == "start":
        record.started = True
    elif kind == "session":
        record.session = True
        record.neutralised = dict(event["neutralised"])
    elif kind == "collect-error":
        record.collect_errors[id_] = _raised(event["raised"])
    elif kind == "collect-skip":
        record.collect_skips[id_] = event.get("skip") or ""
    elif kind == "collected":
        record.collected.extend(event["ids"])
        record.collection_done = True
    elif kind == "begin":
        record.nodes[id_] = NodeRun(id_, line=_whole(event.get("line")))
        record.open_node = id_
    elif kind == "phase-begin":
        record.nodes.setdefault(id_, NodeRun(id_)).entered = event["when"]
    elif kind == "phase":
        node = record.nodes.setdefault(id_, NodeRun(id_))
        node.phases.append(
            Phase(
                when=event["when"],
                outcome=event["outcome"],
                seconds=float(event["seconds"]),
                raised=_raised(event["raised"]),
                skip=event["skip"],
                xfail=event["xfail"],
                detail=event["detail"],
                output=str(event.get("output") or ""),
            )
        )
    elif kind == "read":
        if id_ in record.nodes:
            record.nodes[id_].reads.append(event["file"])
            if event.get("by"):
                record.nodes[id_].readers[event["file"]] = str(event["by"])
    elif kind == "end":
        record.nodes.setdefault(id_, NodeRun(id_)).finished = True
        record.open_node = None
    elif kind == "foreign":
        record.foreign[event["module"]] = event["file"]
    elif kind == "note":
        record.notes.append(event["text"])
    elif kind == "finish":
        record.session_exit = int(event["exit"])


def read(lines: Iterable[bytes | str]) -> RunRecord:
    """The record of a journal. A torn last line (the process died inside the write) is dropped; so is a line that is no
    event."""
    record = RunRecord()
    for line in lines:
        try:
            event = json.loads(line)
            if isinstance(event, dict):
                _take(record, event)
        except (ValueError, KeyError, TypeError):
            continue
    return record
