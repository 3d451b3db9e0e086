"""What stops a release: pure rules over what others found out, and one answer over all of them.

Each rule gives reasons. A reason is a no, a doubt (the gate could not find out), or a warning; a no outweighs every doubt,
and a doubt outweighs every pass. All reasons are told at once, worst first, each with what to do.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from holdtrue_gate import decision
from holdtrue_gate.findings import FOLDER, Finding
from holdtrue_gate.project import Collected
from holdtrue_gate.proof import Proof, State
from holdtrue_gate.release_policy import Policy
from holdtrue_gate.sabotage import CAUGHT, NOT_CAUGHT
from holdtrue_gate.spec import Spec
from holdtrue_gate.trace import Remark, Trace, selects

SCHEMA = "holdtrue.gate.release/1"

WARN = "warn"

# Which no is worse: harm that is known, then what nobody has shown, then the state of the house.
_WEIGHTS = (
    "open-finding",
    "expired-acceptance",
    "finding-gone",
    "not-proved",
    "test-gone",
    "sabotage-not-caught",
    "trace",
    "foreign-wheel",
    "dirty-tree",
    "tag",
)

WORK_TREE = "work tree"
HISTORY = "history of findings"
TRACE = "trace"
TAG = "tag"
WHEEL = "wheel"


@dataclass(frozen=True)
class Reason:
    """One thing that stands against a release. `outcome` is fail, cannot-judge or warn; `check` is what it is about."""

    check: str
    code: str
    outcome: str
    message: str
    hint: str = ""
    severity: str = ""

    def as_dict(self) -> dict[str, object]:
        """The shape that `--json` prints."""
        return {
            "check": self.check,
            "code": self.code,
            "outcome": self.outcome,
            "message": self.message,
            "hint": self.hint,
        }


@dataclass(frozen=True)
class PlantedBug:
    """What became of one planted bug; `status` is caught, not-caught or cannot-judge."""

    invariant: str
    name: str
    status: str
    why: str = ""


@dataclass(frozen=True)
class Evidence:
    """Where an answer comes from when somebody brings it along: a file by its name and SHA-256."""

    name: str
    sha256: str


@dataclass(frozen=True)
class Wheel:
    """The wheel that is to be released: its file name, its SHA-256, and the version that its metadata gives."""

    file: str
    sha256: str
    version: str


@dataclass(frozen=True)
class Release:
    """A finished examination of one commit. `checks` names everything that was looked at, in order."""

    project: str
    version: str | None
    commit: str
    tree_sha256: str
    tag: str | None
    policy: Policy
    checks: tuple[str, ...]
    reasons: tuple[Reason, ...]
    findings: tuple[Finding, ...] = ()
    proofs: Mapping[str, Proof] = field(default_factory=dict)
    bugs: tuple[PlantedBug, ...] = ()
    sabotage_report: Evidence | None = None
    wheel: Wheel | None = None
    settings: Evidence | None = None

    @property
    def result(self) -> str:
        """`pass`, `fail` or `cannot-judge`."""
        return decision.overall(
            reason.outcome for reason in self.reasons if reason.outcome in (decision.FAIL, decision.CANNOT_JUDGE)
        )

    def outcome_of(self, check: str) -> str:
        """`pass`, or the worst outcome of the reasons about this check."""
        found = {reason.outcome for reason in self.reasons if reason.check == check}
        for outcome in (decision.FAIL, decision.CANNOT_JUDGE, WARN):
            if outcome in found:
                return outcome
        return decision.PASS

    def as_dict(self) -> dict[str, object]:
        """What `--json` prints: the same bytes for the same commit and the same answers."""
        return {
            "schema": SCHEMA,
            "result": self.result,
            "project": self.project,
            "version": self.version,
            "commit": self.commit,
            "tree_sha256": self.tree_sha256,
            "tag": self.tag,
            "policy": self.policy.as_dict(),
            "checks": [{"name": check, "outcome": self.outcome_of(check)} for check in self.checks],
            "reasons": [reason.as_dict() for reason in self.reasons],
            "findings": [
                {
                    "id": finding.id,
                    "title": finding.title,
                    "category": finding.category,
                    "severity": finding.severity,
                    "status": finding.status,
                    "expiry": finding.expiry.isoformat() if finding.expiry else None,
                    "proof": self.proofs[finding.id].as_dict() if finding.id in self.proofs else None,
                }
                for finding in self.findings
            ],
            "sabotage": {
                "report": {"name": self.sabotage_report.name, "sha256": self.sabotage_report.sha256}
                if self.sabotage_report
                else None,
                "bugs": [
                    {"invariant": bug.invariant, "name": bug.name, "status": bug.status, "why": bug.why}
                    for bug in self.bugs
                ],
            },
            "wheel": {"name": self.wheel.file, "sha256": self.wheel.sha256, "version": self.wheel.version}
            if self.wheel
            else None,
        }


def ordered(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    """Worst first: every no before every doubt before every warning; then by kind, severity, and what it is about."""
    outcomes = (decision.FAIL, decision.CANNOT_JUDGE, WARN)

    def key(reason: Reason) -> tuple[int, int, str, list[tuple[int, str]], str, str]:
        group = _group(reason.code)
        weight = _WEIGHTS.index(group) if group in _WEIGHTS else len(_WEIGHTS)
        natural = [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", reason.check)]
        return (
            outcomes.index(reason.outcome),
            weight,
            reason.severity or "Z",
            natural,
            reason.code,
            reason.message,
        )

    return tuple(sorted(dict.fromkeys(reasons), key=key))


def _group(code: str) -> str:
    return code.partition(":")[0]


# --- findings


def about(finding: Finding) -> str:
    """The name of a finding's check."""
    return f"finding {finding.id}"


def status_reasons(findings: Iterable[Finding], policy: Policy, today: datetime.date) -> list[Reason]:
    """Open findings that the policy blocks, and acceptances that have run out."""
    reasons = []
    for one in findings:
        what = f"{one.category}, severity {one.severity}: {one.title}"
        if one.is_expired(today):
            reasons.append(
                Reason(
                    about(one),
                    "expired-acceptance",
                    decision.FAIL,
                    f"was accepted through {one.expiry} and is open again ({what})",
                    f"Mend it, or `gate finding accept {one.id} --reason TEXT --expiry DATE` once more.",
                    one.severity,
                )
            )
        elif one.status == "open":
            blocks = policy.blocks(one)
            reasons.append(
                Reason(
                    about(one),
                    "open-finding",
                    decision.FAIL if blocks else WARN,
                    f"is open ({what})",
                    f"Mend it with a test and the trailer `Finding: {one.id}`, then `gate finding close {one.id}`; or "
                    f"accept it until a day: `gate finding accept {one.id} --reason TEXT --expiry DATE`."
                    if blocks
                    else "",
                    one.severity,
                )
            )
        elif one.status == "accepted":
            reasons.append(
                Reason(
                    about(one),
                    "accepted-finding",
                    WARN,
                    f"is accepted through {one.expiry} ({what}): {one.reason}",
                    severity=one.severity,
                )
            )
    return reasons


def proof_reasons(findings: Iterable[Finding], proofs: Mapping[str, Proof]) -> list[Reason]:
    """Fixed findings without a proof."""
    reasons = []
    for one in findings:
        if one.status != "fixed":
            continue
        proof = proofs.get(one.id)
        if proof is not None and proof.state is State.PROVED:
            continue
        hint = f"Give the commit of the fix the trailer `Finding: {one.id}` and a test that fails without it."
        if proof is None:
            reasons.append(
                Reason(
                    about(one), "not-proved", decision.CANNOT_JUDGE, "its proof was not looked for", "", one.severity
                )
            )
            continue
        if proof.commit is not None:
            hint = f"`gate check {proof.commit[:10]}` says more."
        reasons.append(
            Reason(
                about(one),
                "not-proved",
                decision.FAIL if proof.state is State.NOT_PROVED else decision.CANNOT_JUDGE,
                f"is fixed without a proof: {proof.why}",
                hint if proof.state is State.NOT_PROVED or proof.commit else "Fetch the whole history.",
                one.severity,
            )
        )
    return reasons


def test_reasons(findings: Iterable[Finding], collected: Collected) -> list[Reason]:
    """Tests of fixed findings that pytest does not collect today: nothing would notice the fault coming back."""
    reasons = []
    for one in findings:
        gone = [] if one.status != "fixed" else [test for test in one.tests if not _is_there(test, collected)]
        if not gone:
            continue
        broken = [what for what in collected.broken if _may_hide(what, gone)]
        if collected.failure or broken:
            told = collected.failure or f"{broken[0]}: {collected.broken[broken[0]]}"
            reasons.append(
                Reason(
                    about(one),
                    "test-not-collected",
                    decision.CANNOT_JUDGE,
                    f"its tests cannot be collected: {told}",
                    "Make pytest collect them in this environment.",
                    one.severity,
                )
            )
        else:
            reasons.append(
                Reason(
                    about(one),
                    "test-gone",
                    decision.FAIL,
                    f"is fixed and its test is gone: pytest does not collect {', '.join(gone)}",
                    f"Bring it back, or correct `tests` in {one.file}.",
                    one.severity,
                )
            )
    return reasons


def _is_there(entry: str, collected: Collected) -> bool:
    return any(selects(entry, node) for node in collected.nodes)


def _may_hide(broken: str, entries: Sequence[str]) -> bool:
    """Whether something that cannot be imported is on the way to one of these tests."""
    file = broken.partition("::")[0]
    return (
        not file.endswith(".py") or file.endswith("conftest.py") or any(e.partition("::")[0] == file for e in entries)
    )


def history_reasons(
    findings: Iterable[Finding], named: Iterable[str], folders: Iterable[str], policy: Policy
) -> list[Reason]:
    """Findings that the history knows, by trailer or folder, and that are no longer there: deleting one closes none."""
    known = {one.id for one in findings} | set(policy.withdrawn)
    reasons = []
    by_trailer, by_folder = set(named) - known, set(folders) - known
    for id_ in sorted(by_trailer | by_folder):
        how = "a commit has its trailer" if id_ in by_trailer else f"the history has its folder in {FOLDER}/"
        reasons.append(
            Reason(
                HISTORY,
                "finding-gone",
                decision.FAIL,
                f"{id_} is no finding any more, and {how}",
                f'Bring it back, or say that it never was one: `withdrawn = ["{id_}"]` in [tool.gate.release].',
            )
        )
    return reasons


# --- invariants


def about_spec(id_: str) -> str:
    """The name of an invariant's check."""
    return f"invariant {id_}"


def trace_reasons(trace: Trace) -> list[Reason]:
    """Everything in which specs, code and tests do not name each other."""

    def reason(remark: Remark, outcome: str) -> Reason:
        check = about_spec(remark.invariant) if remark.invariant else TRACE
        hint = "" if outcome == WARN else "`gate trace` says the same, quickly."
        return Reason(check, f"trace:{remark.code}", outcome, remark.message.rstrip("."), hint)

    return [
        *(reason(remark, decision.FAIL) for remark in trace.problems),
        *(reason(remark, decision.CANNOT_JUDGE) for remark in trace.unknown),
        # A failpoint that no spec uses is nobody's promise; what was never reviewed is worth telling.
        *(reason(remark, WARN) for remark in trace.warnings if remark.invariant),
    ]


def sabotage_reasons(specs: Iterable[Spec], bugs: Iterable[PlantedBug]) -> list[Reason]:
    """Planted bugs that the properties of their invariant did not catch, or that nobody tried."""
    tried = {(bug.invariant, bug.name): bug for bug in bugs}
    reasons = []
    for spec in specs:
        for planted in spec.sabotage:
            bug = tried.get((spec.id, planted.name))
            if bug is None:
                outcome, why = decision.CANNOT_JUDGE, "was not tried"
            elif bug.status == CAUGHT:
                continue
            elif bug.status == NOT_CAUGHT:
                outcome, why = decision.FAIL, f"is not caught: {bug.why}"
            else:
                outcome, why = decision.CANNOT_JUDGE, f"could not be tried: {bug.why}"
            reasons.append(
                Reason(
                    about_spec(spec.id),
                    "sabotage-not-caught",
                    outcome,
                    f"planted bug {planted.name} {why}",
                    f"`gate sabotage {spec.id}` tries it again.",
                    spec.severity,
                )
            )
    return reasons


# --- the house


def tree_reasons(changes: Sequence[str]) -> list[Reason]:
    """What differs between the user's tree and the commit that is judged."""
    if not changes:
        return []
    shown = ", ".join(changes[:5]) + (f" and {len(changes) - 5} more" if len(changes) > 5 else "")
    return [
        Reason(
            WORK_TREE,
            "dirty-tree",
            decision.FAIL,
            f"the work tree is not the commit: {shown}",
            "Commit, remove or ignore what is there: a release is of a commit.",
        )
    ]


@dataclass(frozen=True)
class TagState:
    """What is known about a tag that is asked for. `at` is the commit where it is already, "" when it is elsewhere than on
    a commit, None when there is none. `version` is that of the project, `wheel_version` that of its wheel. `changelog`
    is the text of the changelog; None when there is none."""

    tag: str
    at: str | None
    commit: str
    version: str | None
    wheel_version: str | None = None
    changelog_file: str | None = None
    changelog: str | None = None


def tag_reasons(state: TagState, policy: Policy) -> list[Reason]:
    """A tag that is elsewhere, that is not the version's, or whose version the changelog does not name."""
    reasons = []

    def no(code: str, message: str, hint: str, outcome: str = decision.FAIL) -> None:
        reasons.append(Reason(TAG, f"tag:{code}", outcome, message, hint))

    if state.at is not None and state.at != state.commit:
        where = f"at {state.at[:10]}" if state.at else "on something that is no commit"
        no("elsewhere", f"the tag {state.tag} exists already {where}", "Choose the next version: a tag never moves.")
    version = state.version or state.wheel_version
    if version is None:
        no(
            "no-version",
            f"the project gives no version in [project], so {state.tag} cannot be compared",
            "Write `version` in [project], or give the wheel with --wheel FILE.",
            decision.CANNOT_JUDGE,
        )
        return reasons
    wanted = f"{policy.tag_prefix}{version}"
    if state.tag != wanted:
        no(
            "version",
            f"the tag is {state.tag} and the version is {version}",
            f"Use --tag {wanted}, or set the version.",
        )
    if state.changelog is None:
        if policy.changelog is not None:
            no("no-changelog", f"there is no {policy.changelog}", "Write it, or correct `changelog`.")
        else:
            no("no-changelog", "there is no changelog", "", WARN)
        return reasons
    heading = changelog_heading(state.changelog, version)
    if heading is None:
        no(
            "changelog",
            f"no heading of {state.changelog_file} names {version}",
            f"Write the heading of the release, for example `## {version}`.",
        )
    elif "unreleased" in heading.lower():
        no(
            "unreleased",
            f"{state.changelog_file} still calls {version} unreleased: {heading}",
            "Write the date of the release there.",
        )
    return reasons


def changelog_heading(text: str, version: str) -> str | None:
    """The first heading, in Markdown or reStructuredText, that names the version; without its marks."""
    named = re.compile(rf"(?<![\w.+-])v?{re.escape(version)}(?![\w+-]|\.\w)")
    lines = text.splitlines()
    fenced = False
    for number, line in enumerate(lines):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        below = lines[number + 1].strip() if number + 1 < len(lines) else ""
        underlined = len(below) >= 3 and len(set(below)) == 1 and below[0] in "=-~^\"'`*+#"
        is_heading = not fenced and bool(line.strip()) and (re.match(r"#{1,6}\s", line) is not None or underlined)
        if is_heading and named.search(line):
            return line.strip().lstrip("#").strip()
    return None


def wheel_reasons(
    wheel: Wheel, name: str, project: str, version: str | None, members: Mapping[str, str], files: Mapping[str, str]
) -> list[Reason]:
    """A wheel that is not of this commit. `name` is the distribution's in its metadata; `members` its files and `files`
    those of the commit, each with its SHA-256."""
    reasons = []

    def no(code: str, message: str, hint: str, outcome: str = decision.FAIL) -> None:
        reasons.append(Reason(WHEEL, f"foreign-wheel:{code}", outcome, message, hint))

    build = "Build it from this commit: --build DIR does."
    if project and _normal(name) != _normal(project):
        no("name", f"{wheel.file} is of {name}, not of {project}", build)
    if version is not None and wheel.version != version:
        no("version", f"{wheel.file} is version {wheel.version} and the project is {version}", build)
    by_end: dict[str, set[str]] = {}
    for path, digest in files.items():
        parts = path.split("/")
        for start in range(len(parts)):
            by_end.setdefault("/".join(parts[start:]), set()).add(digest)
    inner = {path: sha for path, sha in members.items() if not path.partition("/")[0].endswith((".dist-info", ".data"))}
    other = sorted(path for path, sha in inner.items() if path in by_end and sha not in by_end[path])
    unknown = sorted(path for path in inner if path not in by_end)
    if other:
        no("source", f"{wheel.file} holds other source than the commit: {_some(other)}", build)
    if unknown:
        no("unknown-files", f"{wheel.file} holds files that the commit has not: {_some(unknown)}", "", WARN)
    return reasons


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _normal(name: str) -> str:
    """A distribution's name as packaging tools compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()
