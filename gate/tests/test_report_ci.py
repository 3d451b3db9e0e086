"""What CI systems are given: files of the shape that they read, scripts that do what they say and run nothing of others."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from holdtrue_gate.cli import gate

ROOT = Path(__file__).resolve().parents[2]
ACTION = ROOT / "ci/github/action.yml"
WORKFLOW = ROOT / "ci/github/gate.yml"
GITLAB = ROOT / "ci/gitlab/gate.yml"
HOOKS = ROOT / ".pre-commit-hooks.yaml"
EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


# --- shapes


def check_action(action: Any) -> None:
    """A composite action as GitHub reads it: required keys, steps that run or use, and a shell for each that runs."""
    assert (
        {"name", "description", "runs"} <= set(action) <= {"name", "description", "inputs", "outputs", "runs", "author"}
    )
    assert action["runs"]["using"] == "composite"
    for entry in action.get("inputs", {}).values():
        assert entry["description"]
    for entry in action.get("outputs", {}).values():
        assert entry["value"]
    for step in action["runs"]["steps"]:
        check_step(step)
        assert "run" not in step or step["shell"] == "bash"


def check_step(step: Any) -> None:
    assert ("run" in step) != ("uses" in step)
    # An expression in a script is code of whoever chose its value.
    assert not EXPRESSION.search(step.get("run", ""))
    assert "uses" not in step or re.fullmatch(r"[\w.-]+/[\w./-]+@[\w.-]+", step["uses"])


def check_workflow(workflow: Any) -> None:
    # YAML 1.1 reads the key `on` as true.
    events = workflow.get("on", workflow.get(True))
    assert "workflow_call" in events
    assert "pull_request_target" not in events
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job["runs-on"]
        assert job["timeout-minutes"] <= 360
        for step in job["steps"]:
            check_step(step)
        checkout = next(step for step in job["steps"] if step.get("uses", "").startswith("actions/checkout@"))
        assert checkout["with"]["fetch-depth"] == 0
        assert checkout["with"]["persist-credentials"] is False


def test_the_action_has_the_shape_of_a_composite_action() -> None:
    check_action(load(ACTION))


def test_the_workflow_checks_out_the_whole_history_with_the_fewest_rights() -> None:
    check_workflow(load(WORKFLOW))


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a.pop("description"),
        lambda a: a["runs"].update(using="node20"),
        lambda a: a["runs"]["steps"][0].pop("shell"),
        lambda a: a["runs"]["steps"][1].update(uses="actions/checkout@v4"),
        lambda a: a["runs"]["steps"][1].update(run="gate check ${{ inputs.range }}"),
    ],
)
def test_the_check_of_an_action_refuses_what_github_or_prudence_would(change: Any) -> None:
    action = load(ACTION)
    change(action)
    with pytest.raises((AssertionError, KeyError)):
        check_action(action)


def test_every_expression_names_what_is_there() -> None:
    action = load(ACTION)
    steps = {step.get("id") for step in action["runs"]["steps"]}
    for expression in EXPRESSION.findall(ACTION.read_text(encoding="utf-8")):
        for name in re.findall(r"inputs\.([\w-]+)", expression):
            assert name in action["inputs"]
        for name in re.findall(r"steps\.([\w-]+)", expression):
            assert name in steps
    workflow = load(WORKFLOW)
    called = workflow.get("on", workflow.get(True))["workflow_call"]["inputs"]
    for expression in EXPRESSION.findall(WORKFLOW.read_text(encoding="utf-8")):
        for name in re.findall(r"inputs\.([\w-]+)", expression):
            assert name in called
    used = next(step for step in workflow["jobs"]["gate"]["steps"] if "ci/github@" in step.get("uses", ""))
    assert set(used["with"]) <= set(action["inputs"])
    outputs = set(re.findall(r"steps\.gate\.outputs\.([\w-]+)", WORKFLOW.read_text(encoding="utf-8")))
    assert outputs <= set(action["outputs"])


def test_the_gitlab_template_keeps_its_reports_whatever_the_answer() -> None:
    job = load(GITLAB)[".gate"]
    assert job["variables"]["GIT_DEPTH"] == "0"
    assert job["artifacts"]["when"] == "always"
    assert job["artifacts"]["reports"] == {
        "junit": "gate-reports/gate.xml",
        "codequality": "gate-reports/gl-code-quality.json",
    }


def test_the_hooks_are_commands_of_the_gate_and_run_nothing_of_the_tests() -> None:
    hooks = load(HOOKS)
    assert {hook["id"] for hook in hooks} == {"gate-weaken", "gate-trace"}
    for hook in hooks:
        assert {"id", "name", "entry", "language"} <= set(hook)
        assert hook["language"] == "python"
        assert hook["pass_filenames"] is False
        program, command, *options = hook["entry"].split()
        assert program == "gate"
        known = gate.get_command(click.Context(gate), command)
        assert known is not None
        assert set(options) <= {name for parameter in known.params for name in parameter.opts}
        assert "check" not in hook["entry"]
    used = load(ROOT / "ci/pre-commit/config.yaml")["repos"][0]["hooks"]
    assert {hook["id"] for hook in used} == {hook["id"] for hook in hooks}


def test_a_checkout_can_be_installed_as_the_action_does() -> None:
    step = load(ACTION)["runs"]["steps"][0]
    assert "$ACTION_FOLDER/../..[gate]" in step["run"]
    assert (ACTION.parent / "../.." / "pyproject.toml").resolve() == ROOT / "pyproject.toml"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "gate" in project["optional-dependencies"]
    assert "gate" in project["scripts"]


def test_what_the_page_and_the_schema_need_is_in_the_package() -> None:
    from importlib import resources

    folder = resources.files("holdtrue_gate.report")
    assert folder.joinpath("html.css").is_file()
    assert json.loads(folder.joinpath("gate-1.schema.json").read_text(encoding="utf-8"))["type"] == "object"


# --- the scripts, with a gate that only says how it was called

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the scripts are for the shells of the runners")


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    """A folder with a program `gate` that writes its arguments to a file and ends as it is told."""
    program = tmp_path / "gate/bin/gate"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/called\nexit "${{ENDS:-0}}"\n')
    program.chmod(0o755)
    (tmp_path / "checkout").mkdir()
    return tmp_path


def github_step(fake: Path, **variables: str) -> tuple[int, list[str], dict[str, str]]:
    step = load(ACTION)["runs"]["steps"][1]
    output = fake / "output"
    output.write_text("")
    given = {
        "GIVEN_RANGE": "", "GIVEN_PYTHON": "/usr/bin/python3", "GIVEN_ARGUMENTS": "", "GIVEN_REPORTS": "gate-reports",
        "BASE": "", "HEAD": "b" * 40, "RUNNER_TEMP": str(fake), "GITHUB_OUTPUT": str(output),
    }  # fmt: skip
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=fake / "checkout",
        env={"PATH": os.environ["PATH"]} | given | variables,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    called = (fake / "called").read_text().splitlines() if (fake / "called").exists() else []
    return done.returncode, called, dict(line.split("=", 1) for line in output.read_text().splitlines())


@pytest.mark.parametrize(
    ("base", "given", "asked"),
    [
        ("a" * 40, "", f"{'a' * 40}..{'b' * 40}"),
        ("0" * 40, "", "b" * 40),
        ("", "", "b" * 40),
        ("a" * 40, "v1..v2", "v1..v2"),
        ("", "$(touch pwned); `touch pwned`", "$(touch pwned); `touch pwned`"),
    ],
    ids=["pull-request", "first-push", "dispatch", "given", "hostile"],
)
def test_the_action_asks_for_the_commits_of_the_event(fake: Path, base: str, given: str, asked: str) -> None:
    code, called, told = github_step(fake, BASE=base, GIVEN_RANGE=given)
    assert (code, called[:2], told["result"]) == (0, ["check", asked], "pass")
    assert f"sarif={fake}/checkout/gate-reports/gate.sarif" in called
    assert not list(fake.rglob("pwned"))


@pytest.mark.parametrize(("ends", "result"), [("0", "pass"), ("1", "fail"), ("2", "error"), ("3", "cannot-judge")])
def test_the_action_ends_as_the_gate_does_and_says_how(fake: Path, ends: str, result: str) -> None:
    code, called, told = github_step(fake, ENDS=ends, GIVEN_ARGUMENTS="--runs 5  --timeout 9", GIVEN_REPORTS="a b")
    assert (code, told) == (int(ends), {"result": result, "reports": f"{fake}/checkout/a b"})
    assert called[-4:] == ["--runs", "5", "--timeout", "9"]


@pytest.mark.parametrize(
    ("variables", "asked"),
    [
        ({"CI_MERGE_REQUEST_DIFF_BASE_SHA": "a" * 40}, f"{'a' * 40}..{'b' * 40}"),
        ({"CI_COMMIT_BEFORE_SHA": "0" * 40}, "b" * 40),
        ({"CI_COMMIT_BEFORE_SHA": "c" * 40}, f"{'c' * 40}..{'b' * 40}"),
        ({"GATE_RANGE": "v1..v2"}, "v1..v2"),
        ({}, "b" * 40),
    ],
    ids=["merge-request", "first-push", "push", "given", "schedule"],
)
def test_the_gitlab_job_asks_for_the_commits_of_its_pipeline(fake: Path, variables: dict[str, str], asked: str) -> None:
    (script,) = load(GITLAB)[".gate"]["script"]
    shutil.copytree(fake / "gate", fake / "checkout/.gate-venv")
    python = fake / "bin/python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    given = {"GATE_RANGE": "", "GATE_ARGUMENTS": "--runs 5", "CI_COMMIT_SHA": "b" * 40}
    done = subprocess.run(
        ["sh", "-c", script],
        cwd=fake / "checkout",
        env={"PATH": f"{python.parent}:{os.environ['PATH']}"} | given | variables,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    called = (fake / "called").read_text().splitlines()
    assert called[:4] == ["check", asked, "--python", str(python)]
    assert called[-2:] == ["--runs", "5"]
