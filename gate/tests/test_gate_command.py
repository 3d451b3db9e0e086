"""The command `gate check` as a user runs it: exit codes, reports, and a working tree that nobody touched."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from gate.tests.commit_toys import Toy
from holdtrue_gate.cli import gate

FIX = {
    "shop.py": "def price(n):\n    return n * 10\n",
    "test_shop.py": "import shop\n\ndef test_price():\n    assert shop.price(1) == 10\n",
}


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    made = Toy(tmp_path / "repo")
    made.commit("base", {"shop.py": "def price(n):\n    return n * 10 + 1\n", "notes.txt": "keep\n"})
    made.commit("fix: price", FIX)
    return made


def run(*arguments: str, **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "holdtrue_gate", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **more,
    )  # type: ignore[call-overload, no-any-return]


def fingerprint(root: Path) -> dict[str, str]:
    """Every file of the working tree and of .git, by content."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def make_dirty(toy: Toy) -> None:
    toy.write({"shop.py": "STASHED = 1\n"})
    toy.git("stash", "-q")
    toy.write(
        {"shop.py": FIX["shop.py"] + "# work in progress\n", "staged.txt": "staged\n", "untracked.txt": "untracked\n"}
    )
    toy.git("add", "staged.txt")


def test_the_json_report_has_the_promised_shape_and_is_byte_stable(toy: Toy) -> None:
    first, second = (
        CliRunner().invoke(gate, ["check", "-C", str(toy.root), "--python", sys.executable, "--json"]) for _ in range(2)
    )
    assert (first.exit_code, first.output) == (0, second.output)
    report = json.loads(first.output)
    assert set(report) == {"schema", "range", "result", "commits"}
    assert (report["schema"], report["range"], report["result"]) == ("holdtrue.gate/1", "HEAD", "pass")
    (commit,) = report["commits"]
    assert {"sha", "parent", "kind", "tests", "weakened", "hunks", "problems"} <= set(commit)
    assert (commit["kind"], commit["weakened"], commit["hunks"], commit["problems"]) == ("fix", [], [], [])
    (test,) = commit["tests"]
    assert {"id", "verdict", "proof", "exception", "location", "runs"} <= set(test)
    assert (test["id"], test["verdict"], test["proof"], test["exception"]) == (
        "test_shop.py::test_price",
        "own-assertion",
        True,
        "AssertionError",
    )
    assert test["location"] == "test_shop.py:4"
    assert [(run["side"], run["outcome"]) for run in test["runs"]] == [("head", "passed"), ("parent", "own-assertion")]


def test_the_terminal_report_says_verdict_exception_place_and_advice(toy: Toy, tmp_path: Path) -> None:
    toy.commit(
        "fix: nothing",
        {
            "shop.py": "def price(n):\n    return 10 * n\n",
            "test_kept.py": "import shop\n\ndef test_kept():\n    assert shop.price(0) == 0\n",
        },
    )
    written = tmp_path / "gate.txt"
    done = CliRunner().invoke(
        gate,
        [
            "check",
            "HEAD~1..HEAD",
            "-C",
            str(toy.root),
            "--python",
            sys.executable,
            "--report",
            f"terminal={written}",
            "--report",
            f"json={tmp_path / 'gate.json'}",
        ],
    )
    assert done.exit_code == 1
    assert "vacuous" in done.output
    assert "test_kept.py::test_kept: passes at the parent too. It does not notice the change" in done.output
    assert done.output.rstrip().endswith("NO  1 new test is not acceptable here: vacuous")
    assert "vacuous" in written.read_text()
    assert json.loads((tmp_path / "gate.json").read_text())["result"] == "fail"
    proved = CliRunner().invoke(gate, ["check", "HEAD~1", "-C", str(toy.root), "--python", sys.executable])
    line = "✔ own-assertion  test_shop.py::test_price  test_shop.py:4  AssertionError: assert 11 == 10"
    assert line in proved.output
    assert "PASS  the fix is proved by 1 test" in proved.output


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["check", "no-such-revision"], 2, "bad-revision"),
        (["check", "--", "-x"], 2, "bad-revision"),
        (["check", "A...B"], 2, "symmetric"),
        (["check", "--runs", "0"], 2, "0"),
        (["check", "--timeout", "0"], 2, "0"),
        (["check", "--report", "pdf=x"], 2, "known kinds"),
        (["check", "--report", "json"], 2, "KIND=FILE"),
        (["check", "--python", "/no/such/python"], 2, "no-interpreter"),
        (["check", "HEAD~1"], 3, "no-parent"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_wrong_usage_and_doubt_have_exit_codes_of_their_own(
    toy: Toy, arguments: list[str], code: int, words: str
) -> None:
    done = CliRunner().invoke(gate, [*arguments[:1], "-C", str(toy.root), *arguments[1:]])
    assert done.exit_code == code
    assert words in done.output


def test_an_error_is_json_when_json_was_asked_for(toy: Toy) -> None:
    done = CliRunner().invoke(gate, ["check", "nothing", "-C", str(toy.root), "--json"])
    assert (done.exit_code, json.loads(done.output)["error"]["code"]) == (2, "bad-revision")


def test_a_folder_without_a_repository_is_a_usage_error(tmp_path: Path) -> None:
    done = CliRunner().invoke(gate, ["check", "-C", str(tmp_path)])
    assert (done.exit_code, "no-repository" in done.output) == (2, True)


def test_an_unknown_setting_is_a_configuration_error(toy: Toy) -> None:
    toy.commit("feat: settings", {"pyproject.toml": "[tool.gate]\ntest = ['x']\n"})
    done = CliRunner().invoke(gate, ["check", "-C", str(toy.root)])
    assert done.exit_code == 2
    assert "unknown key 'test'" in done.output


def test_an_interpreter_without_pytest_cannot_judge(toy: Toy, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    python.chmod(0o755)
    done = CliRunner().invoke(gate, ["check", "-C", str(toy.root), "--python", str(python)])
    assert done.exit_code == 3
    assert "No module named pytest" in done.output


def test_the_working_tree_is_byte_identical_after_a_check(toy: Toy, tmp_path: Path) -> None:
    make_dirty(toy)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    before = fingerprint(toy.root)
    done = run("check", "--json", cwd=toy.root, env=os.environ | {"TMPDIR": str(scratch)})
    assert json.loads(done.stdout)["commits"][0]["tests"][0]["verdict"] == "own-assertion"
    assert fingerprint(toy.root) == before
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "terminate"])
def test_an_interrupted_check_leaves_no_trace_and_no_process(toy: Toy, tmp_path: Path, number: signal.Signals) -> None:
    pid_file = tmp_path / "pid"
    toy.commit(
        "fix: slow",
        {
            "shop.py": "def price(n):\n    return n\n",
            "test_slow.py": f"""
                import os, pathlib, time

                def test_slow():
                    pathlib.Path({str(pid_file)!r}).write_text(str(os.getpid()))
                    time.sleep(100)
            """,
        },
    )
    make_dirty(toy)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    before = fingerprint(toy.root)
    process = subprocess.Popen(
        [sys.executable, "-m", "holdtrue_gate", "check"],
        cwd=toy.root,
        env=os.environ | {"TMPDIR": str(scratch)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 30
    while not (pid_file.exists() and pid_file.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    assert process.wait(timeout=20) == 130
    assert fingerprint(toy.root) == before
    assert list(scratch.iterdir()) == []
    stat = Path(f"/proc/{pid_file.read_text()}/stat")
    assert not stat.exists() or stat.read_text().split()[2] == "Z"


def test_the_gate_imports_nothing_of_the_product() -> None:
    import ast

    import holdtrue_gate

    for path in Path(holdtrue_gate.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            names = (
                [a.name for a in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
            assert not any(name.partition(".")[0] == "holdtrue" for name in names), f"{path.name} imports the product"


def test_a_running_gate_has_loaded_neither_the_product_nor_rich() -> None:
    heavy = "{'holdtrue', 'rich', 'pytest'}"
    code = f"import sys, holdtrue_gate.cli; print(sorted({heavy} & {{m.partition('.')[0] for m in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_the_probe_needs_only_pytest_and_the_standard_library() -> None:
    import ast

    import holdtrue_gate

    tree = ast.parse((Path(holdtrue_gate.__file__).parent / "probe.py").read_bytes())
    imported = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    imported |= {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} <= {*sys.stdlib_module_names, "pytest"}
