"""The rules that reports name: for each verdict, problem, weakening and hunk, what it means and what to do."""

from __future__ import annotations

from dataclasses import dataclass

from holdtrue_gate.report.document import Data


@dataclass(frozen=True)
class Rule:
    """`id` is stable and meant for programs; `means` is one sentence, `advice` one that says what to do, or empty."""

    id: str
    title: str
    means: str
    advice: str = ""


def _rule(id_: str, title: str, means: str, advice: str = "") -> tuple[str, Rule]:
    return id_, Rule(id_, title, means, advice)


VERDICTS: dict[str, Rule] = dict(
    (
        _rule("own-assertion", "Fails with its own assertion", "At the parent the test's own assertion failed. Proof."),
        _rule(
            "own-probabilistic",
            "Fails as often as declared",
            "At the parent it failed as often as its finding says a race is met. Proof.",
        ),
        _rule(
            "declared-exception",
            "Raises what was declared",
            "At the parent it raised the exception that its finding declares. Proof.",
        ),
        _rule(
            "missing-api",
            "Needs a name that is new",
            "At the parent it failed because a name that the commit adds is not there yet.",
            "It shows that something is new, not that something was wrong: test what the parent has too.",
        ),
        _rule(
            "vacuous",
            "Passes without the change",
            "The test passes at the parent too.",
            "It does not notice the change: make it assert what was wrong before.",
        ),
        _rule(
            "undeclared-exception",
            "Raises what nobody declared",
            "At the parent it raised an exception that is no assertion of its own.",
            "Assert the outcome, or declare the exception as expected_at_parent in the finding.",
        ),
        _rule(
            "product-assertion",
            "An assertion of the product",
            "At the parent an assertion inside the product failed, not one of the test.",
            "The product stopped it, not the test: assert the outcome, or declare the exception.",
        ),
        _rule(
            "fixture-error",
            "Set-up or tear-down failed",
            "At the parent a fixture failed, before or after the test's own words.",
            "The test never got to speak: make its fixtures work on the parent.",
        ),
        _rule(
            "hang",
            "Did not end",
            "At the parent the test did not end within its limit.",
            'Give the wait a deadline and assert on it, or declare expected_at_parent = "hang" in the finding.',
        ),
        _rule(
            "crash",
            "Its process died",
            "At the parent the process did not survive the test.",
            'Run what dies in a child and assert on its exit, or declare expected_at_parent = "crash".',
        ),
        _rule(
            "not-run",
            "Did not run",
            "The test is skipped, expected to fail, or was not collected.",
            "A test that does not run proves nothing: take the skip, the xfail or the condition away.",
        ),
        _rule(
            "flaky",
            "Not the same in every run",
            "The test did not end the same way in each of its runs.",
            'Make it deterministic, or, for a race, declare detects = "k/n" in the finding.',
        ),
        _rule(
            "suspect",
            "Only looks for something new",
            "The test asks whether a new name exists, or reads the product's source.",
            "It would pass with an empty change of that name: assert what the code does.",
        ),
        _rule(
            "head-red",
            "Red at the commit itself",
            "The test fails with the change in place.",
            "The test must be green with the change first.",
        ),
        _rule(
            "environment",
            "Could not be run as meant",
            "The test could not be run as meant, or other code than the tree's was imported.",
            "Nothing is said about the test: mend the environment, or choose one with --python.",
        ),
    )
)

PROBLEMS: dict[str, Rule] = dict(
    (
        _rule(
            "no-parent",
            "No commit before it",
            "This is the first commit: there is no code before it to prove anything against.",
        ),
        _rule(
            "history-missing",
            "The parent is not in this clone",
            "The clone is shallow, so the code before the commit is not here.",
            "Fetch it (git fetch --deepen=1, or --unshallow), then check again.",
        ),
        _rule(
            "no-tests",
            "The product changed without a test",
            "The product changed and no test is new or changed.",
            "Add a test in the same commit that fails without the change.",
        ),
        _rule(
            "overlay-failed",
            "The tests do not fit over the parent",
            "The commit's test files could not be laid over its parent.",
        ),
    )
)

WEAKENED = Rule(
    "weakened",
    "A test became less strict",
    "The commit deletes a test, skips it, or makes it accept more than before.",
    "Give the reason in the commit, or keep the test as strict as it was.",
)

UNPINNED = Rule(
    "unpinned-hunk",
    "No test needs this part of the change",
    "With this part of the change taken back, every new test still passes.",
    "Add a test that fails without it, or leave it out of the commit.",
)

INSEPARABLE = Rule(
    "inseparable-hunk",
    "This part cannot be judged by itself",
    "The code does not run with only this part of the change taken back.",
    "",
)

GATE = Rule(
    "gate",
    "The commit is not proved",
    "The commit as a whole does not pass the gate.",
    "Add a test in the same commit that fails without the change.",
)

HUNKS = {"unpinned": UNPINNED, "inseparable": INSEPARABLE}


def weakened_rule(kind: str) -> Rule:
    """The rule of one kind of weakening: `weakened/deleted` and so on; the kinds are those of the document."""
    safe = "".join(character if character.isalnum() or character in "-_" else "-" for character in kind)[:60]
    words = safe.replace("-", " ").strip() or "less strict"
    return Rule(f"{WEAKENED.id}/{safe}", f"{WEAKENED.title}: {words}", WEAKENED.means, WEAKENED.advice)


def problem_rule(code: str) -> Rule:
    """The rule of a problem; one of a later release is known by its code alone."""
    return PROBLEMS.get(code) or Rule(code, code.replace("-", " "), "The commit cannot be judged.")


def advice(test: Data, commit: Data) -> str:
    """What to do about a test that is no proof, or why it may stay as it is."""
    verdict, kind = test["verdict"], commit["kind"]
    if not test.get("blocks", False) and commit["result"] == "pass":
        if kind == "feature" and verdict == "missing-api":
            return "New surface: fine for a feature."
        if verdict == "vacuous" and commit["reason"].startswith("no product change"):
            return "There is no product change that it could notice."
        if verdict == "vacuous" and kind == "fix":
            return "Fine beside a proof."
        if verdict == "missing-api" and kind == "fix":
            return "New surface: no proof, and fine beside one."
    return VERDICTS[verdict].advice
