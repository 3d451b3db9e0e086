"""`gate release`: examines the commit that is checked out, and says whether it may be released.

Everything is about the commit, out of git: specs, findings, tests and planted bugs come from a private copy of it. The
rules are in `release`; this module brings them what they need, in an order in which quick answers are told first.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdtrue_gate import (
    decision,
    finding_history,
    findings,
    release_policy,
    sabotage,
    sabotage_report,
    spec,
    tracing,
    treedigest,
    wheel,
)
from holdtrue_gate import project as projects
from holdtrue_gate import release as rules
from holdtrue_gate.check import Options
from holdtrue_gate.errors import CannotJudgeError, UsageError
from holdtrue_gate.finding_commands import today
from holdtrue_gate.findings import Finding
from holdtrue_gate.lab import scratch
from holdtrue_gate.options import directory_option, guarded, json_option, report_option
from holdtrue_gate.output import MARKS, Reports, document, emit, exit_with, interruptible, line, safe
from holdtrue_gate.project import Collected, Project
from holdtrue_gate.proof import Proof
from holdtrue_gate.release import Evidence, PlantedBug, Reason, Release, TagState, Wheel
from holdtrue_gate.release_policy import Policy
from holdtrue_gate.replay import find_python
from holdtrue_gate.repo import GIT_LIMIT_S, Repository, clean_environment
from holdtrue_gate.spec import Spec
from holdtrue_gate.workcopy import copy_revision

if TYPE_CHECKING:
    from rich.console import Console

Tell = Callable[[str], None]

_SIGNS = {decision.FAIL: ("✘", "red"), decision.CANNOT_JUDGE: ("?", "yellow"), rules.WARN: ("·", "cyan")}
_JOBS = max(1, min(os.cpu_count() or 1, 8))


@dataclass(frozen=True)
class Wish:
    """What the command line asks for."""

    directory: Path
    tag: str | None = None
    wheel: Path | None = None
    build: Path | None = None
    sabotage: Path | None = None
    jobs: int = _JOBS
    python: Path | None = None
    cache: bool = True


@click.command("release")
@click.option("--tag", metavar="T", help="Make the annotated tag T on the commit when it passes.")
@click.option(
    "--attest",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write an unsigned in-toto statement to FILE, whether it passes or not.",
)
@click.option("--url", metavar="URL", help="Where this run can be looked at; goes into the statement.")
@click.option(
    "--wheel",
    "wheel_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The wheel that is to be released: it must be of this commit, and goes into the statement.",
)
@click.option(
    "--build",
    "build_folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Build the wheel of the commit into FOLDER, without a network.",
)
@click.option(
    "--sabotage",
    "sabotage_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Take the planted bugs from the JSON report of `gate sabotage --rev HEAD` instead of planting them again.",
)
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1, 256),
    default=_JOBS,
    metavar="N",
    help="Commits judged at once (default: cores).",
)
@click.option(
    "--python",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="PATH",
    help="Interpreter that replays the fixes (default: as `gate check`).",
)
@click.option("--no-cache", is_flag=True, help="Replay every fix again, and keep nothing.")
@directory_option
@json_option
@report_option
@guarded
def release_command(
    tag: str | None,
    attest: Path | None,
    url: str | None,
    wheel_file: Path | None,
    build_folder: Path | None,
    sabotage_file: Path | None,
    jobs: int,
    python: Path | None,
    no_cache: bool,
    directory: Path,
    as_json: bool,
    reports: Reports,
) -> None:
    """Say whether the commit that is checked out may be released.

    It may not with an open data, trust or concurrency finding (or what [tool.gate.release] says), an acceptance that has
    run out, a fixed finding that no commit proves or whose test is gone, an invariant without an enforcer, a collected
    property or a caught planted bug, or a work tree that is not the commit. With --tag also the version and the changelog
    must say what the tag says.

    All reasons are listed at once, worst first. Progress goes to stderr. The replays of the fixes are taken from the
    cache of `gate check` where neither the commit nor the environment has changed.

    Nothing is written into the repository, with one exception: --tag makes an annotated tag, after everything else has
    passed. A tag that exists is never moved, and nothing is pushed.
    """
    if wheel_file is not None and build_folder is not None:
        raise UsageError("two-wheels", "--wheel and --build exclude each other", "Give one of them.")
    if python is not None:
        found = shutil.which(str(python))
        if found is None:
            raise UsageError(
                "no-interpreter", f"{python} is not a program that can be run", "Give a Python interpreter."
            )
        # Absolute, but not resolved: a link into a virtual environment is what makes it that environment.
        python = Path(found).absolute()
    wish = Wish(directory, tag, wheel_file, build_folder, sabotage_file, jobs, python, not no_cache)
    with interruptible(), _progress() as tell:
        release = examine(wish, tell)
    data = release.as_dict()
    emit(data, lambda console: _print(console, release), as_json, reports)
    if attest is None and build_folder is not None:
        attest = build_folder / "gate-release.intoto.json"
    if attest is not None:
        _attest(attest, release, (document(data) + "\n").encode("utf-8", "backslashreplace"), url)
    if release.result == decision.PASS and tag is not None:
        _make_tag(directory, tag, release, quiet=as_json)
    exit_with(release.result)


def _attest(path: Path, release: Release, report: bytes, url: str | None) -> None:
    from holdtrue_gate.report import intoto

    try:
        path.write_bytes(intoto.render(release, report, url))
    except OSError as error:
        raise UsageError(
            "report-unwritable", f"the statement {path} cannot be written: {error.strerror}", "Choose another file."
        ) from error


# --- the examination


class _Reasons:
    """Reasons as they come; each is told at once, because the last of them may be minutes away."""

    def __init__(self, tell: Tell) -> None:
        self.all: list[Reason] = []
        self._tell = tell

    def add(self, found: list[Reason]) -> None:
        self.all += found
        for reason in found:
            if reason.outcome != rules.WARN:
                self._tell(f"{_SIGNS[reason.outcome][0]} {reason.check}: {safe(reason.message)}")


def examine(wish: Wish, tell: Tell = lambda _text: None) -> Release:
    """Examine HEAD. Writes nothing but the wheel that was asked for. Raises GateError."""
    with Repository(wish.directory) as repository, scratch() as folder:
        head = repository.resolve("HEAD")
        listing = repository.listing(head)
        pyproject = repository.text(listing, f"{repository.prefix}pyproject.toml")
        policy = release_policy.parse(pyproject)
        tag_at = None if wish.tag is None else _tag_commit(repository, wish.tag)
        tree_sha256 = treedigest.of_commit(repository, head)
        copy = folder / "copy" / (repository.root.name or "tree")
        copy.parent.mkdir()
        copy_revision(repository, head, copy)
        project = Project.at(copy, checkout=repository.root / repository.prefix)
        specs = spec.load(copy) if (copy / spec.FOLDER).is_dir() else []
        found = findings.load(copy, {one.id for one in specs} if specs else None)
        brought = sabotage_report.read(wish.sabotage, head, tree_sha256) if wish.sabotage else None

        reasons = _Reasons(tell)
        checks = [rules.WORK_TREE, rules.HISTORY, *map(rules.about, found), *(rules.about_spec(s.id) for s in specs)]
        reasons.add(rules.tree_reasons(_changes(repository)))
        reasons.add(rules.status_reasons(found, policy, today()))
        mentions = finding_history.mentions(repository, head)
        named = {id_ for mention in mentions for id_ in mention.findings}
        reasons.add(rules.history_reasons(found, named, finding_history.folders(repository, head), policy))
        version = _version(pyproject)
        content = _wheel(wish, repository, head, folder, project, reasons)
        made = Wheel(content.file, content.sha256, content.version) if content else None
        if content and made:
            files = _files_of(copy)
            reasons.add(rules.wheel_reasons(made, content.name, project.name, version, content.members, files))
        if wish.wheel is not None or wish.build is not None:
            checks.append(rules.WHEEL)
        if wish.tag is not None:
            checks.append(rules.TAG)
            name, text = _changelog(copy, policy)
            state = TagState(wish.tag, tag_at, head, version, made.version if made else None, name, text)
            reasons.add(rules.tag_reasons(state, policy))
        if specs:
            tell("specs, code and tests are compared")
            checks.append(rules.TRACE)
            reasons.add(rules.trace_reasons(tracing.run(project, specs).trace))
        fixed = [one for one in found if one.status == "fixed"]
        reasons.add(rules.test_reasons(fixed, _collected(project, fixed)))
        proofs, bugs = _long_work(wish, repository, head, project, specs, fixed, mentions, brought, tell)
        reasons.add(rules.proof_reasons(found, proofs))
        reasons.add(rules.sabotage_reasons(specs, bugs))
        if repository.resolve("HEAD") != head:
            raise CannotJudgeError("head-moved", "HEAD is another commit than at the beginning", "Run it again.")
        if not any(reason.code == "dirty-tree" for reason in reasons.all):
            reasons.add(rules.tree_reasons(_changes(repository)))
        return Release(
            project=project.name,
            version=version,
            commit=head,
            tree_sha256=tree_sha256,
            tag=wish.tag,
            policy=policy,
            checks=tuple(checks),
            reasons=rules.ordered(reasons.all),
            findings=tuple(found),
            proofs=proofs,
            bugs=bugs,
            sabotage_report=brought[0] if brought else None,
            wheel=made,
            settings=Evidence("pyproject.toml", treedigest.file_sha256(copy / "pyproject.toml")) if pyproject else None,
        )


def _long_work(
    wish: Wish,
    repository: Repository,
    head: str,
    project: Project,
    specs: list[Spec],
    fixed: list[Finding],
    mentions: list[finding_history.Mention],
    brought: tuple[Evidence, tuple[PlantedBug, ...]] | None,
    tell: Tell,
) -> tuple[dict[str, Proof], tuple[PlantedBug, ...]]:
    """The proofs, several at once, and then the planted bugs."""
    from holdtrue_gate import proving

    def judged(now: proving.Progress) -> None:
        why = "" if now.commit.result == decision.PASS else f": {safe(now.commit.reason)}"
        tell(f"fix {now.done}/{now.of} {now.commit.sha[:10]} {now.commit.result}{why}")

    wanted = [proving.Wanted(one.id, one.tests) for one in fixed]
    proofs: dict[str, Proof] = {}
    if wanted:
        # Each process replays head and parent one after the other: the cores are taken by the commits beside it.
        workers = min(wish.jobs, len(wanted))
        # Whether the fix is proved is asked here; what its commit made less strict was judged when it came in.
        jobs = wish.jobs if workers == 1 else 1
        options = Options(python=wish.python, cache=wish.cache, jobs=jobs, allow_weakened=True)
        directory, complete = repository.root / repository.prefix, not repository.is_shallow
        with proving.workers(workers) as pool:
            proofs = proving.prove(directory, wanted, mentions, options, pool, complete=complete, progress=judged)
    if brought is not None:
        return proofs, brought[1]
    if not any(one.sabotage for one in specs):
        return proofs, ()

    def planted(now: sabotage.Progress) -> None:
        tell(f"planted bug {now.step}/{now.steps - 1} {safe(now.message)}")

    outcomes = sabotage.run(Project.at(project.checkout), revision=head, progress=planted)
    return proofs, tuple(PlantedBug(one.invariant, one.bug, one.status, one.why) for one in outcomes)


def _collected(project: Project, fixed: list[Finding]) -> Collected:
    entries = [test for one in fixed for test in one.tests]
    with scratch() as folder:
        return projects.collect(project.job(project.root, folder, entries))


def _changes(repository: Repository) -> list[str]:
    """Paths that git calls changed or untracked, relative to the top of the repository."""
    answer = repository.ask(
        "status", "--porcelain=v1", "-z", "--untracked-files=normal", "--ignore-submodules=none", "--no-renames"
    )
    return [safe(os.fsdecode(entry[3:])) for entry in answer.split(b"\0") if len(entry) > 3]


def _tag_commit(repository: Repository, tag: str) -> str | None:
    """The commit of a tag; "" when it is on something else, None when there is no such tag. Raises UsageError."""
    try:
        if tag.startswith("-"):
            raise UsageError("bad-tag", f"{tag!r} is no name for a tag")
        repository.ask("check-ref-format", f"refs/tags/{tag}")
    except CannotJudgeError as error:
        raise UsageError("bad-tag", f"{tag!r} is no name for a tag", "For example v1.2.3.") from error
    names = repository.ask("for-each-ref", "--format=%(refname)", f"refs/tags/{tag}").decode("utf-8", "replace")
    if f"refs/tags/{tag}" not in names.splitlines():
        return None
    try:
        return repository.resolve(f"refs/tags/{tag}")
    except UsageError:
        return ""


def _version(pyproject: bytes | None) -> str | None:
    """`version` of [project] or [tool.poetry]; None when a build tool finds it out."""
    document = tomllib.loads(pyproject.decode("utf-8")) if pyproject else {}
    poetry = document.get("tool", {}).get("poetry", {}) if isinstance(document.get("tool"), dict) else {}
    for table in (document.get("project", {}), poetry):
        if isinstance(table, dict) and isinstance(table.get("version"), str):
            return str(table["version"])
    return None


def _changelog(copy: Path, policy: Policy) -> tuple[str | None, str | None]:
    for name in (policy.changelog,) if policy.changelog else release_policy.CHANGELOGS:
        if (copy / name).is_file() and not (copy / name).is_symlink():
            return name, (copy / name).read_bytes().decode("utf-8", "replace")
    return None, None


def _files_of(copy: Path) -> dict[str, str]:
    """The SHA-256 of every file of the commit by its path."""
    return {
        path.relative_to(copy).as_posix(): treedigest.file_sha256(path)
        for path in copy.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


def _wheel(
    wish: Wish, repository: Repository, head: str, folder: Path, project: Project, reasons: _Reasons
) -> wheel.Content | None:
    """The wheel that was given, or one that is built of a copy of its own: backends write into their source."""
    if wish.wheel is not None:
        return wheel.read(wish.wheel)
    if wish.build is None:
        return None
    source = folder / "build" / (repository.root.name or "tree")
    source.parent.mkdir()
    copy_revision(repository, head, source)
    epoch_s = int(repository.ask("show", "--no-patch", "--format=%ct", head).decode().strip())
    try:
        built = wheel.build(source, wish.build.resolve(), find_python(project.checkout, wish.python), epoch_s)
    except CannotJudgeError as error:
        reasons.add([Reason(rules.WHEEL, "wheel-not-built", decision.CANNOT_JUDGE, error.message, error.hint)])
        return None
    return wheel.read(built)


# --- the tag


def _make_tag(directory: Path, tag: str, release: Release, *, quiet: bool) -> None:
    """The one thing that the gate writes into a repository. Raises CannotJudgeError when git refuses."""
    with Repository(directory) as repository:
        at = _tag_commit(repository, tag)
    if at == release.commit:
        told = f"{tag} is there already, on this commit"
    elif at is not None:
        raise CannotJudgeError("tag-exists", f"the tag {tag} was made meanwhile, elsewhere", "A tag is never moved.")
    else:
        environment = clean_environment()
        # Who tags, and when, is the caller's to say.
        environment |= {key: value for key, value in os.environ.items() if key.startswith("GIT_COMMITTER_")}
        message = f"{release.project or tag} {release.version or tag}\n\nJudged by gate release.\n"
        command = ["git", "-c", "core.hooksPath=/dev/null", "-C", str(directory)]
        command += ["tag", "--annotate", f"--message={message}", "--", tag, release.commit]
        try:
            done = subprocess.run(
                command,
                env=environment,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=GIT_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise CannotJudgeError("tag-failed", "git tag did not answer") from error
        if done.returncode != 0:
            said = safe(done.stderr.decode("utf-8", "replace"))
            raise CannotJudgeError("tag-failed", f"git tag: {said}", "It passed; make the tag when git can.")
        told = f"tagged {tag}; push it with `git push origin {tag}`"
    click.echo(told, err=quiet)


# --- printing


@contextmanager
def _progress() -> Iterator[Tell]:
    """A spinner on a terminal's stderr, lines elsewhere: a log of CI shows where the time goes."""
    began = time.monotonic()
    if not sys.stderr.isatty():
        yield lambda text: click.echo(f"gate release: {time.monotonic() - began:5.0f} s  {text}", err=True)
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status("reading the commit") as status:
        yield lambda text: status.update(Text(text))


def _print(console: Console, release: Release) -> None:
    counts = dict.fromkeys((decision.PASS, rules.WARN, decision.FAIL, decision.CANNOT_JUDGE), 0)
    for check in release.checks:
        counts[release.outcome_of(check)] += 1
    version = f" {safe(release.version)}" if release.version else ""
    line(console, f"{safe(release.project) or 'project'}{version} at {release.commit[:10]}")
    for reason in release.reasons:
        sign, style = _SIGNS[reason.outcome]
        line(console, f"  {sign} {reason.check}: {safe(reason.message)}", style=style)
        if reason.hint:
            line(console, f"      {safe(reason.hint)}")
    proved = sum(proof.state == "proved" for proof in release.proofs.values())
    caught = sum(bug.status == sabotage.CAUGHT for bug in release.bugs)
    line(
        console,
        f"{proved} of {len(release.proofs)} fixes proved, {caught} of {len(release.bugs)} planted bugs caught; "
        f"{len(release.checks)} checks: {counts[decision.PASS]} pass, {counts[rules.WARN]} warn, "
        f"{counts[decision.FAIL]} no, {counts[decision.CANNOT_JUDGE]} cannot judge",
    )
    if release.wheel:
        line(console, f"wheel {safe(release.wheel.file)} sha256 {release.wheel.sha256}")
    console.print(f"gate release: {MARKS[release.result]}")
