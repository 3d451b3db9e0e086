"""`gate weaken`: what commits, or the index before a commit, demand less of their tests than the parent did."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdtrue_gate import decision, weaken
from holdtrue_gate import plan as planning
from holdtrue_gate.check import Options, weakened_by
from holdtrue_gate.errors import CannotJudgeError, GateError, UsageError
from holdtrue_gate.options import directory_option, guarded, json_option, report_option
from holdtrue_gate.output import MARKS, Reports, emit, exit_with, interruptible, line, safe
from holdtrue_gate.replay_options import interpreter, replay_options
from holdtrue_gate.repo import Commit, Entry, Repository
from holdtrue_gate.report.json import weakened_as_dict
from holdtrue_gate.weaken import Comparison, Weakening

if TYPE_CHECKING:
    from rich.console import Console

SCHEMA = "holdtrue.gate.weaken/1"


@dataclass(frozen=True)
class Judged:
    """One commit, or the index (`sha` empty). `unread`: why its tests could not be compared."""

    sha: str
    subject: str
    weakened: tuple[Weakening, ...]
    unread: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def result(self) -> str:
        """One certain weakening without a reason outweighs what could not be read."""
        if any(item.blocks for item in self.weakened):
            return decision.FAIL
        return decision.CANNOT_JUDGE if self.unread else decision.PASS


@click.command("weaken")
@click.argument("revision", metavar="[REV|A..B]", default="HEAD")
@click.option("--staged", is_flag=True, help="Judge what is in the index against HEAD, for a hook before the commit.")
@click.option(
    "--message",
    "message",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="With --staged: the message of the commit to be, as git gives it to a commit-msg hook.",
)
@click.option("--replay", "replayed", is_flag=True, help="Also run the parent's version of each changed test.")
@directory_option
@replay_options
@json_option
@report_option
@guarded
def weaken_command(
    revision: str,
    staged: bool,
    message: Path | None,
    replayed: bool,
    directory: Path,
    runs: int | None,
    timeout_s: float | None,
    python: Path | None,
    as_json: bool,
    reports: Reports,
) -> None:
    """Name the tests that a commit deletes, skips or makes less strict.

    Reads source alone, so it is fast enough for a hook. With --replay the parent's version of each changed test also
    runs on the commit's product: where that fails and the new version does not, the commit changed what is expected.

    What is certain and has no reason ends with 1; what is doubtful is told and does not. The reason is a trailer of the
    commit, `Test-change: REASON` for all of it or `Test-change: NODEID: REASON` for one test; it may be repeated.
    """
    if staged and (replayed or revision != "HEAD"):
        raise UsageError("staged-alone", "--staged goes with neither a revision nor --replay", "Leave one of them out.")
    if message is not None and not staged:
        raise UsageError("message-alone", "--message goes with --staged", "A commit has its own message.")
    options = Options(runs=runs, timeout_s=timeout_s, python=interpreter(python))
    with interruptible(), Repository(directory) as repository:
        if staged:
            judged = [judge_index(repository, message)]
        else:
            judged = [judge_commit(repository, sha, options, replayed) for sha in repository.commits(revision)]
    data = {
        "schema": SCHEMA,
        "range": "index" if staged else revision,
        "result": decision.overall(one.result for one in judged),
        "commits": [as_dict(one) for one in judged],
    }
    emit(data, lambda console: show(console, judged, str(data["result"])), as_json, reports)
    exit_with(str(data["result"]))


def as_dict(one: Judged) -> dict[str, Any]:
    """One commit as plain data."""
    return {
        "sha": one.sha or None,
        "subject": one.subject,
        "result": one.result,
        "weakened": [weakened_as_dict(item) for item in one.weakened],
        "unread": list(one.unread),
        "notes": list(one.notes),
    }


def _told(found: Comparison) -> tuple[str, ...]:
    return tuple(f"{path} is no valid Python for this interpreter" for path in found.unread)


def judge_commit(repository: Repository, sha: str, options: Options, replayed: bool) -> Judged:
    """What one commit weakens. Raises GateError; a parent that is not in this clone is told in `unread`."""
    commit = repository.commit(sha)
    try:
        config = planning.configuration(repository, _listing(repository, sha), options.override)
        found = weaken.of_commit(repository, sha, config)
    except CannotJudgeError as error:
        if error.code != "history-missing":
            raise
        return Judged(sha, commit.subject, (), (f"{error.message}. {error.hint}",))
    notes: tuple[str, ...] = ()
    weakened = found.weakened
    if replayed and commit.parents:
        plan = planning.make(repository, commit, commit.parents[0], options.override)
        with ThreadPoolExecutor(options.jobs) as executor:
            answer = weakened_by(repository, plan, found, options, executor)
        weakened, notes = answer.weakened, answer.notes
    return Judged(sha, commit.subject, weaken.explained(weakened, weaken.reasons(commit.trailers)), _told(found), notes)


def _listing(repository: Repository, sha: str) -> dict[str, Entry]:
    return planning.under(repository.listing(sha), repository.prefix)


# --- the index


def _index_file(repository: Repository) -> Path | None:
    """The index that git made for this commit: `git commit FILE` and `git commit -a` give the hook one of its own."""
    given = os.environ.get("GIT_INDEX_FILE")
    if not given:
        return None
    path = (Path.cwd() / given).resolve()
    # The caller's variable may be about another repository altogether.
    inside = repository.git_directory.resolve() in path.parents
    return path if inside and path.is_file() else None


def index_listing(repository: Repository) -> dict[str, Entry]:
    """Every file of the index by its path. Raises CannotJudgeError (`unmerged`) while a conflict is open."""
    index = _index_file(repository)
    found: dict[str, Entry] = {}
    for row in repository.index(index).split(b"\0"):
        if not row:
            continue
        meta, _, path = row.partition(b"\t")
        mode, blob, stage = meta.decode().split(" ")
        if stage != "0":
            raise CannotJudgeError("unmerged", "the index holds an open conflict", "Resolve it, then try again.")
        found[os.fsdecode(path)] = Entry(mode, blob)
    return found


def judge_index(repository: Repository, message: Path | None) -> Judged:
    """What the index weakens against HEAD; in a repository without a commit nothing can be weaker."""
    text = _message(message)
    subject = text.subject or "(the index)"
    try:
        head = repository.resolve("HEAD")
    except GateError:
        return Judged("", subject, ())
    index = index_listing(repository)
    config = planning.configuration(repository, planning.under(index, repository.prefix), lambda one: one)
    found = weaken.between(repository, repository.listing(head), index, config)
    if (repository.git_directory / "MERGE_HEAD").exists():
        found = weaken.of_merge(found, [None])
    return Judged("", subject, weaken.explained(found.weakened, weaken.reasons(text.trailers)), _told(found))


def _message(file: Path | None) -> Commit:
    """The message to be, without git's comments and what `commit -v` shows below the scissors."""
    text = file.read_text(encoding="utf-8", errors="replace") if file is not None else ""
    text = text.partition("# ------------------------ >8 ------------------------")[0]
    return Commit("", "", (), "\n".join(row for row in text.splitlines() if not row.startswith("#")))


# --- for a person


def show(console: Console, judged: Sequence[Judged], result: str) -> None:
    """The findings, certain ones first."""
    for one in judged:
        if not one.weakened and not one.unread and len(judged) > 1:
            continue
        line(console, f"{one.sha[:10]}  {safe(one.subject)}".strip(), style="bold")
        for item in sorted(one.weakened, key=lambda item: not item.blocks):
            mark = "✘" if item.blocks else "·" if item.reason_given is not None else "?"
            line(console, f"  {mark} {item.kind}  {safe(item.id)}  {safe(item.location)}")
            if item.before:
                line(console, f"      - {safe(item.before)}")
            if item.after:
                line(console, f"      + {safe(item.after)}")
            why = f"reason given: {item.reason_given}" if item.reason_given is not None else item.note
            line(console, f"      {'' if item.certain else 'in doubt: '}{safe(why)}")
        for told in (*one.unread, *one.notes):
            line(console, f"  ! {safe(told)}")
    blocking = sum(item.blocks for one in judged for item in one.weakened)
    others = sum(not item.blocks for one in judged for item in one.weakened)
    console.print(f"gate weaken: {MARKS[result]}", end="  ")
    line(console, f"{blocking} without a reason, {others} explained or doubtful")
    if blocking:
        line(console, "  Make the tests as strict as they were, or say why in the message: Test-change: REASON")
