"""A commit as it is, without a parent to compare with: the plan of a replay that only asks what today's tests say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from holdtrue_gate import plan as planning
from holdtrue_gate.config import Config
from holdtrue_gate.plan import Choice, Plan, changed_paths
from holdtrue_gate.repo import Commit, Repository
from holdtrue_gate.verdict import NOTHING_DECLARED


def _is_product(plan: Plan, path: str) -> bool:
    return not plan.config.test_rules.matches(path) and not plan.config.ignored_rules.matches(path)


def product_paths(plan: Plan) -> list[str]:
    """The files of the plan's head that are neither test-side nor ignored."""
    return [path for path in plan.head if _is_product(plan, path)]


def changed_product(plan: Plan) -> list[str]:
    """The product files that the plan's commit changed, those with new words alone too; of a merge, its own changes."""
    if len(plan.commit.parents) > 1:
        return list(plan.product)
    return [path for path in changed_paths(plan.base, plan.head) if _is_product(plan, path)]


def make(
    repository: Repository, commit: Commit, overrides: Callable[[Config], Config], tests: Sequence[str] = ()
) -> Plan:
    """The plan of a commit on which `tests` (files, classes, functions) are to run. No name counts as added. Raises
    GateError."""
    # Compared with itself a commit changes nothing, and has everything.
    plan = planning.make(repository, replace(commit, parents=()), commit.sha, overrides)
    # What its message declares is about its own tests.
    return replace(plan, commit=commit, parent=None, choice=Choice(added=tuple(tests)), declared=NOTHING_DECLARED)
