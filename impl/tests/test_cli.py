"""The command line: what each command answers and ends with, how it refuses, and what it never does."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdtrue import cli
from impl.tests.serverprocess import environment, holdtrue, python_path

UNKNOWN_ID = "01900000-0000-7000-8000-000000000000"
RECORD = {
    "id", "text", "user", "project", "session", "speaker", "at", "created_at", "updated_at", "tags", "metadata", "source",
    "revision", "sources",
}  # fmt: skip
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("HOLDTRUE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOLDTRUE_HOME", str(tmp_path / "home"))


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Run a command inside this process: exit code, stdout, stderr."""

    def run_one(*arguments: str) -> tuple[int, str, str]:
        code = cli.run(arguments)
        out, err = capfdbinary.readouterr()
        assert b"Traceback" not in out + err
        return code, out.decode("utf-8", "strict"), err.decode("utf-8", "strict")

    return run_one


@pytest.fixture
def answer(run: Run) -> Callable[..., Any]:
    """Run a command with --json that must succeed: its document."""

    def answer_one(*arguments: str) -> Any:
        code, out, err = run(*arguments, "--json")
        assert (code, err) == (0, ""), (out, err)
        return json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))

    return answer_one


# -- what each command answers -----------------------------------------------------------------------------------------


def test_add_answers_the_record_whether_it_was_new_and_what_was_degraded(answer: Callable[..., Any]) -> None:
    stored = answer(
        "add", "The staging port is 6432", "--user", "maya", "--project", "db", "--session", "s1", "--speaker", "maya",
        "--at", "2026-03-04T10:00:00+01:00", "--tag", "ports", "--tag", "db", "--metadata", '{"ticket": "POL-1"}',
        "--source", "wiki", "--key", "k-1",
    )  # fmt: skip
    assert set(stored) == RECORD | {"created", "masked", "degraded"}
    assert (stored["created"], stored["degraded"], stored["sources"]) == (True, [], 1)
    assert (stored["at"], stored["tags"]) == ("2026-03-04T09:00:00.000000Z", ["db", "ports"])
    assert (stored["metadata"], stored["source"]) == ({"ticket": "POL-1"}, "wiki")
    again = answer("add", "The staging port is 6432", "--user", "maya", "--project", "db")
    assert (again["id"], again["created"], again["sources"]) == (stored["id"], False, 2)


def test_search_get_list_update_forget_and_status_answer_one_document_each(
    answer: Callable[..., Any], run: Run
) -> None:
    id_ = answer("add", "Deploys go out on Tuesdays", "--tag", "ops", "--at", "2026-03-04")["id"]
    answer("add", "Lunch is at noon", "--project", "office")

    found = answer("search", "when do we deploy", "--limit", "1", "--tag", "ops", "--explain")
    assert set(found) == {"hits", "degraded"}
    assert set(found["hits"][0]) == RECORD | {"score", "why"}
    assert found["hits"][0]["id"] == id_
    assert answer("search", "deploy", "--since", "2026-03-05", "--until", "2026-03-06")["hits"] == []
    assert answer("search", "deploy", "--user", "nobody", "--session", "none")["hits"] == []
    assert answer("search", "deploy", "--as-of", "2020-01-01")["hits"] == []

    assert set(answer("get", id_)) == RECORD
    page = answer("list", "--limit", "1", "--offset", "1")
    assert (page["total"], [memory["id"] for memory in page["memories"]]) == (2, [id_])
    assert answer("list", "--project", "office")["total"] == 1

    changed = answer("update", id_, "Deploys go out on Mondays")
    assert (changed["text"], changed["revision"], changed["degraded"]) == ("Deploys go out on Mondays", 2, [])
    status = answer("status")
    assert (status["memories"], status["vectors"], status["degraded"]) == (2, 2, [])
    assert status["version"]
    assert answer("forget", id_) == {"id": id_, "forgotten": True, "erased": True, "waiting_for": [], "remains": []}
    assert run("get", id_)[0] == 1


def test_the_lines_for_people_name_the_memory_its_date_and_its_text(run: Run) -> None:
    text = "Deploys go out on Tuesdays\n\nafter the stand-up\nand so on\nand on"
    code, out, _ = run("add", text, "--user", "maya")
    assert code == 0
    id_ = out.split()[1]
    assert "Known already" in run("add", text, "--user", "maya")[1]
    found = run("search", "deploys")[1]
    assert id_ in found
    assert "Deploys go out on Tuesdays" in found
    assert "1 more line\n" in found
    assert "user maya" in found
    assert run("search", "--", "---")[1] == "Nothing found.\n"
    assert "goes after --" in run("search", "-webhook")[2]
    listed = run("list")[1].splitlines()
    assert len(listed) == 2
    assert id_ in listed[0]
    assert "1 of 1" in listed[1]
    shown = run("get", id_)[1]
    assert shown.startswith("    Deploys go out on Tuesdays\n    \n    after")
    assert "revision" in shown
    assert "All is well." in run("status")[1]
    assert "revision 2" in run("update", id_, "Deploys go out on Mondays")[1]
    assert "Forgotten and erased" in run("forget", id_)[1]


def test_options_count_before_the_command_and_after_it(run: Run, tmp_path: Path) -> None:
    store = str(tmp_path / "other")
    assert run("--store", store, "--json", "add", "a note")[0] == 0
    code, out, _ = run("--json", "list", "--store", store)
    assert (code, json.loads(out)["total"]) == (0, 1)
    assert run("--store", str(tmp_path / "none"), "list", "--store", store)[0] == 0
    assert not (tmp_path / "home").exists()


def test_a_text_comes_from_standard_input_for_a_dash(tmp_path: Path) -> None:
    done = holdtrue("add", "-", "--store", str(tmp_path / "s"), "--json", input=b"two\nlines \xff and caf\xc3\xa9\n")
    assert json.loads(done.stdout)["text"] == "two\nlines \ufffd and café"
    done = holdtrue("update", json.loads(done.stdout)["id"], "-", "--store", str(tmp_path / "s"), "--json", input=b"")
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (2, "TEXT_BLANK")
    done = holdtrue("add", "-", "--store", str(tmp_path / "s"), "--json", input=b"x" * 3_000_000)
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (2, "TEXT_TOO_LONG")


# -- how it refuses ----------------------------------------------------------------------------------------------------

BAD_COMMANDS = [
    (("add", ""), "TEXT_BLANK", 2),
    (("add", " \t\n"), "TEXT_BLANK", 2),
    (("add", "\u200b"), "TEXT_BLANK", 2),
    (("add", "x" * 50_001), "TEXT_TOO_LONG", 2),
    (("add", "a\0b"), "INVALID_INPUT", 2),
    (("add", "a", "--at", "yesterday"), "INVALID_INPUT", 2),
    (("add", "a", "--metadata", "{"), "INVALID_INPUT", 2),
    (("add", "a", "--metadata", "[]"), "INVALID_INPUT", 2),
    (("add", "a", "--metadata", '{"a": NaN}'), "INVALID_INPUT", 2),
    (("add", "a", "--metadata", "[" * 100_000), "INVALID_INPUT", 2),
    (("add", "a", "--tag", " "), "INVALID_INPUT", 2),
    (("add", "a", "--key", ""), "INVALID_INPUT", 2),
    (("add", "a", "--user", "u" * 2_000), "INVALID_INPUT", 2),
    (("add", "a", "--store", ""), "INVALID_INPUT", 2),
    (("add",), "USAGE", 2),
    (("add", "a", "b"), "USAGE", 2),
    (("add", "a", "--colour", "red"), "USAGE", 2),
    (("search",), "USAGE", 2),
    (("search", "a", "--limit", "0"), "INVALID_INPUT", 2),
    (("search", "a", "--limit", "201"), "INVALID_INPUT", 2),
    (("search", "a", "--limit", "many"), "USAGE", 2),
    (("search", "a", "--since", "2026-03-02", "--until", "2026-03-01"), "INVALID_INPUT", 2),
    (("search", "a", "--as-of", "soon"), "INVALID_INPUT", 2),
    (("get",), "USAGE", 2),
    (("get", ""), "INVALID_INPUT", 2),
    (("get", UNKNOWN_ID), "NOT_FOUND", 1),
    (("list", "--limit", "501"), "INVALID_INPUT", 2),
    (("list", "--offset", "-1"), "INVALID_INPUT", 2),
    (("list", "--offset", str(2**70)), "INVALID_INPUT", 2),
    (("update", UNKNOWN_ID), "USAGE", 2),
    (("update", UNKNOWN_ID, "a"), "NOT_FOUND", 1),
    (("update", UNKNOWN_ID, " "), "TEXT_BLANK", 2),
    (("forget", UNKNOWN_ID), "NOT_FOUND", 1),
    (("forget", ""), "INVALID_INPUT", 2),
    (("status", "now"), "USAGE", 2),
    (("serve", "--store", ""), "INVALID_INPUT", 2),
    (("serve", "--http", "0.0.0.0:0"), "ADDRESS_REFUSED", 2),
    (("demo", "--memories", "0"), "USAGE", 2),
    (("remember", "a"), "USAGE", 2),
]


def test_every_bad_command_is_refused_in_both_forms_and_changes_nothing(run: Run, answer: Callable[..., Any]) -> None:
    answer("add", "kept")
    before = answer("list")
    for arguments, code, exit_code in BAD_COMMANDS:
        ended, out, err = run(*arguments, "--json")
        error = json.loads(out)["error"]
        assert (error["code"], ended, err) == (code, exit_code, ""), arguments
        assert list(error)[:3] == ["code", "message", "hint"]
        ended, out, err = run(*arguments)
        assert (ended, out) == (exit_code, ""), arguments
        assert err.startswith("holdtrue: "), arguments
        assert error["hint"].split(" ")[0] in err
    assert answer("list") == before


@pytest.mark.parametrize(
    "arguments",
    [
        ("search", "a"),
        ("get", UNKNOWN_ID),
        ("list",),
        ("update", UNKNOWN_ID, "a"),
        ("forget", UNKNOWN_ID),
        ("status",),
    ],
)
def test_a_missing_store_is_told_and_nothing_is_made(run: Run, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    code, out, _ = run(*arguments, "--json", "--store", str(tmp_path / "none"))
    assert (code, json.loads(out)["error"]["code"]) == (3, "STORE_MISSING")
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_and_a_file_that_is_no_database_are_told_and_left_as_they_are(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("mine")
    code, out, _ = run("add", "a", "--json", "--store", str(tmp_path / "file"))
    assert (code, json.loads(out)["error"]["code"]) == (3, "STORE_UNUSABLE")
    assert (tmp_path / "file").read_text() == "mine"
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "memory.db").write_bytes(b"no database, " * 500)
    for arguments in (("add", "a"), ("search", "a"), ("list",), ("status",)):
        code, out, _ = run(*arguments, "--json", "--store", str(tmp_path / "odd"))
        assert (code, json.loads(out)["error"]["code"]) == (3, "STORE_CORRUPT"), arguments
        assert json.loads(out)["error"]["hint"]
    assert (tmp_path / "odd" / "memory.db").read_bytes() == b"no database, " * 500


def test_a_busy_store_refuses_writes_stores_nothing_and_still_answers_reads(
    run: Run, answer: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = answer("add", "kept")["id"]
    monkeypatch.setenv("HOLDTRUE_WRITE_WAIT_S", "0.5")
    foreign = apsw.Connection(str(tmp_path / "home" / "memory.db"))
    foreign.execute("BEGIN IMMEDIATE")
    try:
        for arguments in (("add", "new"), ("update", id_, "new"), ("forget", id_)):
            code, out, _ = run(*arguments, "--json")
            error = json.loads(out)["error"]
            assert (code, error["code"]) == (3, "STORE_BUSY"), arguments
            assert "Nothing was stored" in error["hint"]
        assert answer("search", "kept")["hits"][0]["id"] == id_
    finally:
        foreign.execute("ROLLBACK")
        foreign.close()
    assert [memory["text"] for memory in answer("list")["memories"]] == ["kept"]
    assert answer("add", "new")["created"] is True


def test_without_a_model_every_command_is_done_says_so_and_ends_with_four(tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "tokenizers.py").write_text("raise ImportError('not here')\n")
    variables = environment(PYTHONPATH=python_path(tmp_path / "broken"))
    store = ("--store", str(tmp_path / "s"))
    done = holdtrue("add", "ticket POL-358", "--json", *store, env=variables)
    assert done.returncode == 4
    assert json.loads(done.stdout)["degraded"]
    done = holdtrue("search", "POL-358", *store, env=variables)
    assert done.returncode == 4
    assert b"ticket POL-358" in done.stdout
    assert done.stderr.startswith(b"holdtrue: degraded: ")
    done = holdtrue("status", "--json", *store, env=variables)
    assert done.returncode == 4
    assert json.loads(done.stdout)["pending_vectors"] == 1


def test_no_command_shows_the_help_and_a_setting_that_is_no_number_is_told(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run()
    assert (code, out) == (2, "")
    assert err.startswith("Usage: holdtrue")
    monkeypatch.setenv("HOLDTRUE_WRITE_WAIT_S", "soon")
    code, _, err = run("add", "a note")
    assert code == 0
    assert err.startswith("holdtrue: ")
    assert "HOLDTRUE_WRITE_WAIT_S='soon'" in err


def test_counts_of_one_are_told_in_the_singular(run: Run, tmp_path: Path) -> None:
    run("add", "a note")
    (tmp_path / "one.jsonl").write_text('{"text": "another note"}\n')
    assert run("import", str(tmp_path / "one.jsonl"))[1] == "Imported  1 memory\n"
    assert run("import", str(tmp_path / "one.jsonl"))[1] == "Imported  0 memories\n1 was here already\n"
    run("forget", json.loads(run("list", "--json")[1])["memories"][0]["id"])
    exported = run("export", str(tmp_path / "all.jsonl"))[1]
    assert "\n1 memory, 1 forgotten id, " in exported
    connection = apsw.Connection(str(tmp_path / "home" / "memory.db"))
    connection.execute("INSERT INTO erasures VALUES('x', 0)").fetchall()
    connection.close()
    assert "1 erasure waits for a reader" in run("status")[1]


def test_an_option_is_named_as_it_is_typed_with_what_it_may_be(run: Run) -> None:
    code, _, err = run("search", "a note", "--context", "200")
    assert code == 2
    assert err.startswith("holdtrue: --context is 200; it must lie in 640 to 1,000,000.")
    assert "640" in run("search", "--help")[1]
    assert "holdtrue config list" in run("config", "set", "--help")[1]


def test_a_server_without_standard_streams_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        f"{sys.executable} -m holdtrue serve --store {tmp_path / 's'} <&-",
        shell=True, capture_output=True, timeout=60, env=environment(), check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert b"Standard input or output is closed." in done.stderr
    assert not (tmp_path / "s").exists()


def test_an_unexpected_error_is_one_line_and_how_to_report_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("boom")

    monkeypatch.setattr("holdtrue.memory.Memory.add", broken)
    code, out, err = run("add", "a")
    assert (code, out) == (1, "")
    assert "Unexpected ZeroDivisionError at test_cli.py" in err
    assert "report" in err
    code, out, _ = run("add", "a", "--json")
    assert (code, json.loads(out)["error"]["code"]) == (1, "INTERNAL_ERROR")


# -- what it never does ------------------------------------------------------------------------------------------------


def test_bytes_that_are_no_utf8_on_the_command_line_become_replacement_characters(tmp_path: Path) -> None:
    store = b"--store", os.fsencode(tmp_path / "s")
    done = holdtrue(b"add", b"caf\xe9 \xed\xa0\xbd", b"--tag", b"\xff", b"--json", *store)
    assert done.returncode == 0, done
    record = json.loads(done.stdout.decode("utf-8", "strict"))
    assert set(record["text"]) == set("caf \ufffd")
    assert record["tags"] == ["\ufffd"]
    for arguments in (
        (b"search", b"\xff caf"),
        (b"get", b"\xff"),
        (b"add", b"a", b"--at", b"\xff"),
        (b"\xff",),
        (b"list",),
    ):
        for form in ((b"--json",), ()):
            done = holdtrue(*arguments, *form, *store)
            assert b"Traceback" not in done.stderr
            assert done.returncode in (0, 1, 2), done
            (done.stdout + done.stderr).decode("utf-8", "strict")


def test_a_memory_cannot_drive_the_terminal(run: Run, answer: Callable[..., Any]) -> None:
    id_ = answer("add", "red \x1b[31m \x9b2J and \u202egnp.exe", "--tag", "\x1b]0;owned\x07")["id"]
    for command in (("search", "red"), ("list",), ("get", id_)):
        out = run(*command)[1]
        assert "\\x1b" in out
        assert not set("\x1b\x9b\x07\u202e") & set(out)


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    store = tmp_path / "s"
    text = "\U0001f600" * 49_000  # 196 KB, more than a pipe holds
    id_ = json.loads(holdtrue("add", "-", "--json", "--store", str(store), input=text.encode()).stdout)["id"]
    for form in ("", "--json"):
        done = subprocess.run(
            f"{sys.executable} -m holdtrue get {id_} --store {store} {form} | head -c 1; echo ${{PIPESTATUS[0]}}",
            shell=True, executable="/bin/bash", capture_output=True, timeout=60, env=environment(), check=False,
        )  # fmt: skip
        assert (done.stdout[1:], done.stderr) == (b"0\n", b"")


def test_colours_are_for_terminals_and_can_be_turned_off(tmp_path: Path) -> None:
    store = ("--store", str(tmp_path / "s"))
    assert b"\x1b" not in holdtrue("add", "Deploys go out on Tuesdays", *store).stdout
    assert b"\x1b" not in holdtrue("search", "deploys", *store).stdout
    assert b"\x1b[" in on_terminal("search", "deploys", *store)
    assert b"\x1b[" not in on_terminal("search", "deploys", *store, NO_COLOR="1")
    assert b"\x1b[" not in on_terminal("search", "deploys", "--json", *store)


def on_terminal(*arguments: str, **variables: str) -> bytes:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "holdtrue", *arguments],
        stdin=theirs, stdout=theirs, stderr=theirs, env=environment(TERM="xterm", **variables),
    )  # fmt: skip
    os.close(theirs)
    watchdog = threading.Timer(40, process.kill)
    watchdog.start()
    output = b""
    try:
        while chunk := os.read(ours, 65_536):
            output += chunk
    except OSError:  # Linux tells the end of a terminal this way
        pass
    finally:
        watchdog.cancel()
        os.close(ours)
    assert process.wait(10) == 0, output
    return output


def test_help_and_search_import_nothing_they_do_not_need(tmp_path: Path) -> None:
    holdtrue("add", "a note", "--store", str(tmp_path / "s"))
    heavy = (
        "mcp",
        "rich",
        "torch",
        "transformers",
        "sklearn",
        "jsonschema",
        "pydantic",
        "anyio",
        "platformdirs",
        "scipy",
    )
    for arguments, more in (
        (("--help",), ("apsw", "numpy", "tokenizers")),
        (("search", "note", "--store", str(tmp_path / "s")), ()),
        (("list", "--store", str(tmp_path / "s")), ("numpy", "tokenizers")),
    ):
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "holdtrue", *arguments],
            capture_output=True, text=True, timeout=60, env=environment(), check=True,
        )  # fmt: skip
        imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
        assert "holdtrue.cli.commands" in imported
        assert not imported & {*heavy, *more}, arguments


def test_help_names_every_command_and_the_exit_codes(run: Run) -> None:
    code, out, _ = run("--help")
    assert code == 0
    for command in ("add", "search", "get", "list", "update", "forget", "status", "serve", "demo"):
        assert f"  {command} " in out
        ended, text, _ = run(command, "--help")
        assert ended == 0
        assert "--store" in text
        assert "--json" in text
    assert run("--version")[1].startswith("holdtrue, version ")


def test_an_export_to_a_terminal_has_no_bar_drawn_into_it_and_one_to_a_file_has(tmp_path: Path) -> None:
    store = ("--store", str(tmp_path / "s"))
    holdtrue("add", "a note", *store)
    shown = on_terminal("export", "-", *store)
    assert b"a note" in shown
    assert b"\x1b" not in shown
    assert b"Exporting" not in shown
    assert b"Exporting" in on_terminal("export", str(tmp_path / "all.jsonl"), *store)
