"""`gate trace`: do the specs, the code and the tests still name each other, in both directions?

Pure rules over what others read: the specs, the marks in the source, the tests that pytest collects, the patches, and
the failpoints that a run reached. What could not be found out is `unknown` and never counts as agreement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from holdtrue_gate import patches
from holdtrue_gate.marks import Marks
from holdtrue_gate.project import Collected
from holdtrue_gate.spec import Sabotage, Spec

SCHEMA = "holdtrue.gate.trace/1"


@dataclass(frozen=True)
class Remark:
    """One disagreement. `code` is stable; `invariant` is None when it is about none in particular."""

    code: str
    message: str
    invariant: str | None = None

    def as_dict(self) -> dict[str, str | None]:
        return {"code": self.code, "invariant": self.invariant, "message": self.message}


@dataclass
class Trace:
    """What a trace found. `problems` fail it, `unknown` means that it cannot judge, `warnings` do neither."""

    problems: list[Remark] = field(default_factory=list)
    unknown: list[Remark] = field(default_factory=list)
    warnings: list[Remark] = field(default_factory=list)

    @property
    def result(self) -> str:
        if self.problems:
            return "fail"
        return "cannot-judge" if self.unknown else "pass"


def check_specs(specs: list[Spec], trace: Trace) -> None:
    """Each invariant has an enforcer, a property and a planted bug, and its text is the one that was reviewed."""
    for spec in specs:
        for empty, code, advice in (
            (not spec.enforced_by, "no-enforcer", "name the function that keeps it in `enforced_by`"),
            (not spec.properties, "no-property", "name a test that attacks it in `properties`"),
            (not spec.sabotage, "no-sabotage", "plant a bug that its properties catch, as a [[sabotage]]"),
        ):
            if empty:
                trace.problems.append(Remark(code, f"{spec.file}: {advice}.", spec.id))
        if spec.review == "stale":
            trace.problems.append(
                Remark(
                    "stale-review",
                    f"{spec.file}: the text changed after its last review. Check that its enforcers, properties and "
                    f"planted bugs are still about it, then run `gate trace --stamp {spec.id}`.",
                    spec.id,
                )
            )
        elif spec.review == "never":
            trace.warnings.append(
                Remark(
                    "never-reviewed",
                    f"{spec.file}: was never stamped as reviewed; run `gate trace --stamp {spec.id}` when it was.",
                    spec.id,
                )
            )


def check_marks(specs: list[Spec], marks: Marks, trace: Trace) -> None:
    """Specs and `@enforces` name each other; every failpoint of a spec stands in the code."""
    trace.problems += [Remark("unreadable-mark", message) for message in marks.problems]
    by_id = {spec.id: spec for spec in specs}
    for spec in specs:
        for name in spec.enforced_by:
            function = marks.functions.get(name)
            if function is None:
                trace.problems.append(
                    Remark(
                        "unknown-function", f"{spec.file}: there is no function {name}.{_near(name, marks)}", spec.id
                    )
                )
            elif spec.id not in function.enforces:
                trace.problems.append(
                    Remark(
                        "unmarked-function",
                        f"{function.place}: {name} is named by {spec.file} and is not marked "
                        f'@enforces("{spec.id}"); mark it, or take it out of the spec.',
                        spec.id,
                    )
                )
        for point in spec.failpoints:
            if point not in marks.failpoints:
                trace.problems.append(
                    Remark(
                        "unknown-failpoint",
                        f'{spec.file}: no failpoints.hit("{point}") stands in the code.',
                        spec.id,
                    )
                )
    for function in marks.functions.values():
        for id_ in function.enforces:
            if id_ not in by_id:
                trace.problems.append(
                    Remark(
                        "unknown-invariant",
                        f"{function.place}: {function.name} enforces {id_}, which no spec has.",
                        id_,
                    )
                )
            elif function.name not in by_id[id_].enforced_by:
                trace.problems.append(
                    Remark(
                        "unlisted-function",
                        f'{function.place}: {function.name} is marked @enforces("{id_}") and {by_id[id_].file} does '
                        "not list it in `enforced_by`; add it there, or take the mark away.",
                        id_,
                    )
                )
    used = {point for spec in specs for point in spec.failpoints}
    for point, places in marks.failpoints.items():
        if point not in used:
            trace.warnings.append(Remark("unused-failpoint", f"{places[0]}: no spec strikes at the failpoint {point}."))


def check_patches(
    root: Path, specs: list[Spec], is_product: Callable[[str], bool], trace: Trace
) -> dict[tuple[str, str], bool]:
    """Each planted bug is a patch of product files only that applies to the tree. Answers which (id, name) do."""
    applies: dict[tuple[str, str], bool] = {}
    for spec in specs:
        for bug in spec.sabotage:
            remark = _patch_problem(root, spec, bug, is_product)
            applies[spec.id, bug.name] = remark is None
            if remark is not None:
                trace.problems.append(remark)
    return applies


def _patch_problem(root: Path, spec: Spec, bug: Sabotage, is_product: Callable[[str], bool]) -> Remark | None:
    patch = root / bug.patch
    if not patch.is_file():
        return Remark("patch-missing", f"{spec.file}: planted bug {bug.name}: there is no file {bug.patch}.", spec.id)
    reason = patches.why_not_applicable(root, patch)
    if reason:
        return Remark("patch-does-not-apply", f"{bug.patch}: does not apply to the tree: {reason}.", spec.id)
    foreign = [file for file in patches.touched_files(patch) if not is_product(file)]
    if foreign:
        return Remark(
            "patch-touches-tests",
            f"{bug.patch}: changes {', '.join(foreign)}; a planted bug changes product files only.",
            spec.id,
        )
    return None


def check_nodes(specs: list[Spec], collected: Collected, trace: Trace) -> None:
    """Every property, and everything that is to catch a planted bug, is a test that pytest collects."""
    if collected.failure:
        trace.unknown.append(Remark("collection-broke", f"{collected.failure}."))
        return
    for what, why in collected.broken.items():
        trace.unknown.append(Remark("collection-broke", f"{what or 'the tests'}: pytest cannot import it: {why}"))
    for spec in specs:
        wanted = [(node, "properties") for node in spec.properties]
        wanted += [(node, f"planted bug {bug.name}") for bug in spec.sabotage for node in bug.caught_by]
        for node, where in wanted:
            if not _is_collected(node, collected) and not _may_be_broken(node, collected):
                trace.problems.append(
                    Remark("property-not-collected", f"{spec.file}: {where}: pytest does not collect {node}.", spec.id)
                )


def _is_collected(entry: str, collected: Collected) -> bool:
    return any(selects(entry, node) for node in collected.nodes)


def _may_be_broken(entry: str, collected: Collected) -> bool:
    """Whether something on the way to this test could not be imported: its file, a class in it, or a conftest."""
    file = entry.partition("::")[0]
    return any(
        what.partition("::")[0] == file or not what.endswith(".py") or what.endswith("conftest.py")
        for what in collected.broken
    )


def selects(entry: str, node_id: str) -> bool:
    """Whether a file, class, test or one case of a test (`entry`) covers the collected `node_id`."""
    return node_id == entry or node_id.startswith((f"{entry}::", f"{entry}["))


def check_reached(specs: list[Spec], marks: Marks, reached: Mapping[str, int], trace: Trace) -> None:
    """Each failpoint that a spec names and the code has was reached while the properties ran."""
    for spec in specs:
        for point in spec.failpoints:
            if point in reached or point not in marks.failpoints:
                continue
            trace.problems.append(
                Remark(
                    "unreached-failpoint",
                    f"{spec.file}: the properties ran and none of their processes reached the failpoint {point}.",
                    spec.id,
                )
            )


def as_dict(
    specs: list[Spec],
    marks: Marks,
    trace: Trace,
    *,
    collected: Collected,
    applies: Mapping[tuple[str, str], bool],
    reached: Mapping[str, int] | None,
) -> dict[str, object]:
    """What `--json` prints: each invariant with its places in the code, then the remarks. None: it was not looked at."""
    return {
        "schema": SCHEMA,
        "result": trace.result,
        "invariants": [
            {
                "id": spec.id,
                "slug": spec.slug,
                "review": spec.review,
                "enforced_by": [function_dict(name, marks) for name in spec.enforced_by],
                "properties": [
                    {"id": node, "cases": sum(selects(node, candidate) for candidate in collected.nodes)}
                    for node in spec.properties
                ],
                "failpoints": [
                    {
                        "name": point,
                        "places": [str(place) for place in marks.failpoints.get(point, [])],
                        "reached": None if reached is None else reached.get(point, 0),
                    }
                    for point in spec.failpoints
                ],
                "sabotage": [
                    {"name": bug.name, "patch": bug.patch, "applies": applies.get((spec.id, bug.name))}
                    for bug in spec.sabotage
                ],
            }
            for spec in specs
        ],
        "problems": [remark.as_dict() for remark in trace.problems],
        "unknown": [remark.as_dict() for remark in trace.unknown],
        "warnings": [remark.as_dict() for remark in trace.warnings],
    }


def function_dict(name: str, marks: Marks) -> dict[str, object]:
    function = marks.functions.get(name)
    place = function.place if function else None
    return {"function": name, "file": place.file if place else None, "line": place.line if place else None}


def _near(name: str, marks: Marks) -> str:
    """A hint for a function that moved: one of the same last name elsewhere."""
    last = name.rpartition(":")[2].rpartition(".")[2]
    same = [other for other in marks.functions if other.rpartition(":")[2].rpartition(".")[2] == last]
    return f" Did it move to {same[0]}?" if len(same) == 1 else " Correct `enforced_by`, or write it."
