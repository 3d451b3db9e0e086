"""Settings: what is in effect, where it comes from and how it is changed; a bad value never stops the program."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdtrue import cli, config
from holdtrue.config import MODEL_WAIT_S, WRITE_WAIT_S, Settings, look_up, store_folder
from holdtrue.errors import InvalidInput
from holdtrue.mcp_server import log_to_stderr

SETTINGS = Settings(home=Path("/somewhere/home"))
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The config file of a test, which does not exist yet; nothing else is set."""
    for name in [name for name in os.environ if name.startswith("HOLDTRUE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    return tmp_path / "xdg" / "holdtrue" / "config.json"


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Run a command inside this process: exit code, stdout, stderr."""

    def run_one(*arguments: str) -> tuple[int, str, str]:
        code = cli.run(arguments)
        out, err = capfdbinary.readouterr()
        assert b"Traceback" not in out + err
        return code, out.decode("utf-8", "strict"), err.decode("utf-8", "strict")

    return run_one


def write(file: Path, text: str | bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())


def test_without_variables_everything_has_its_default() -> None:
    found = Settings.from_environment({})
    assert (found.tier, found.write_wait_s, found.model_wait_s) == (None, WRITE_WAIT_S, MODEL_WAIT_S)
    folder = store_folder(None, found)
    assert folder.is_absolute()
    assert "holdtrue" in str(folder).lower()


def test_variables_are_read_without_the_blanks_around_them() -> None:
    variables = {"HOLDTRUE_HOME": " /data/memories ", "HOLDTRUE_TIER": " base ", "HOLDTRUE_WRITE_WAIT_S": " 0.25 "}
    found = Settings.from_environment(variables)
    assert (found.home, found.tier, found.write_wait_s) == (Path("/data/memories"), "base", 0.25)


def test_a_home_may_begin_with_a_tilde(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Settings.from_environment({"HOLDTRUE_HOME": "~/memories"}).home == tmp_path / "memories"
    assert store_folder("~/memories", SETTINGS) == tmp_path / "memories"


@pytest.mark.parametrize("name", ["HOLDTRUE_WRITE_WAIT_S", "HOLDTRUE_MODEL_WAIT_S"])
@pytest.mark.parametrize("text", ["soon", "nan", "inf", "-1", "601", "1e400", "1,5", "0x10"])
def test_a_bad_number_of_seconds_is_warned_about_and_replaced_by_the_default(
    caplog: pytest.LogCaptureFixture, name: str, text: str
) -> None:
    with caplog.at_level(logging.WARNING, logger="holdtrue"):
        found = Settings.from_environment({name: text})
    assert (found.write_wait_s, found.model_wait_s) == (WRITE_WAIT_S, MODEL_WAIT_S)
    assert name in caplog.text
    assert text in caplog.text


@pytest.mark.parametrize(
    ("name", "field", "low", "high"),
    [("HOLDTRUE_WRITE_WAIT_S", "write_wait_s", 0.05, 600.0), ("HOLDTRUE_MODEL_WAIT_S", "model_wait_s", 0.0, 600.0)],
)
def test_the_bounds_of_a_wait_are_allowed_themselves(name: str, field: str, low: float, high: float) -> None:
    for value in (low, high):
        assert getattr(Settings.from_environment({name: str(value)}), field) == value


def test_a_store_lies_where_it_is_said_or_at_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert store_folder(None, SETTINGS) == SETTINGS.home
    assert store_folder("a/../b", SETTINGS) == tmp_path / "b"
    assert store_folder(tmp_path / "c", SETTINGS) == tmp_path / "c"


@pytest.mark.parametrize("path", ["", "   ", "a\0b", b"/bytes", 3, True, ["a"]])
def test_what_names_no_folder_is_refused(path: object) -> None:
    with pytest.raises(InvalidInput, match="store path"):
        store_folder(path, SETTINGS)


# -- the table ---------------------------------------------------------------------------------------------------------


def test_the_fields_of_the_settings_are_the_table_and_every_default_is_allowed() -> None:
    assert list(config.SETTINGS) == [field.name for field in dataclasses.fields(Settings)]
    for name, row in config.SETTINGS.items():
        assert row.variable == f"HOLDTRUE_{name.upper()}"
        assert row.sentence.endswith(".")
        assert row.default is not None or row.unset
        if row.default is not None:
            assert row.kind.of_json(row.kind.to_json(row.default)) == row.default
            assert row.kind.of_text(row.shown(row.default)) == row.default


def test_a_variable_goes_before_the_file_and_the_file_before_the_default(file: Path) -> None:
    write(
        file,
        """{"home": "~/kept", "tier": "base", "write_wait_s": 5, "model_wait_s": 0.5, "wal_limit_mib": 0,
        "allow_network_store": true, "log": "debug"}""",
    )
    found = Settings.from_environment({"HOLDTRUE_WRITE_WAIT_S": "7", "HOLDTRUE_ALLOW_NETWORK_STORE": "No"})
    assert found == Settings(
        home=Path(os.environ["HOME"], "kept"),
        tier="base",
        write_wait_s=7.0,
        model_wait_s=0.5,
        wal_limit_mib=0.0,
        allow_network_store=False,
        log="DEBUG",
    )
    sources = {name: each.source for name, each in look_up({"HOLDTRUE_WRITE_WAIT_S": "7"}).found.items()}
    assert sources == dict.fromkeys(config.SETTINGS, "file") | {"write_wait_s": "environment"}


BAD_IN_FILE = {
    "home": ["null", "7", "[]", '""', '" "', '"relative/home"', '"a\\u0000b"', '"~nobody-of-that-name"', '"\\ud800"'],
    "tier": ["null", "7", "[]", "{}", '""', '"a\\nb"', '"' + "t" * 5_000 + '"'],
    "write_wait_s": ["null", '"5"', "true", "[]", "-1", "601", "1e999", "1" + "0" * 5_000],
    "model_wait_s": ["null", '"MAX"', "false", "{}", "-0.1"],
    "wal_limit_mib": ["null", "7", "1000001", "-8", '"64"', "true"],
    "allow_network_store": ["null", "1", '"true"', "[true]", "0"],
    "log": ["null", "7", '"LOUD"', '"WARN"', "[]"],
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in BAD_IN_FILE.items() for text in texts])
def test_a_bad_value_in_the_file_is_the_default_with_one_warning_that_names_file_and_key(
    file: Path, caplog: pytest.LogCaptureFixture, name: str, text: str
) -> None:
    write(file, f'{{"x1": 1, "{name}": {text}}}')
    assert Settings.from_environment({}) == Settings()
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert name in record.getMessage()
    assert str(file) in record.getMessage()
    assert len(record.getMessage()) < 400 + len(str(file))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("HOLDTRUE_ALLOW_NETWORK_STORE", text) for text in ("MAX", "2", "ja", "[]", "null")),
        *(("HOLDTRUE_WAL_LIMIT_MIB", text) for text in ("7.9", "-1", "unlimited", "nan", "1e7")),
        *(("HOLDTRUE_LOG", text) for text in ("LOUD", "7", "WARN")),
        ("HOLDTRUE_HOME", "~nobody-of-that-name/x"),
    ],
)
def test_a_bad_variable_is_the_default_whatever_the_file_says_with_one_warning_that_names_it(
    file: Path, caplog: pytest.LogCaptureFixture, name: str, text: str
) -> None:
    write(file, '{"allow_network_store": true, "wal_limit_mib": 0, "log": "DEBUG", "home": "/kept"}')
    assert getattr(Settings.from_environment({name: text}), name.removeprefix("HOLDTRUE_").lower()) == getattr(
        Settings(), name.removeprefix("HOLDTRUE_").lower()
    )
    (record,) = caplog.records
    assert f"{name}='{text}'" in record.getMessage()


@pytest.mark.parametrize("data", [b"", b"[]", b"7", b'{"tier"', b"\xff\xfe", b"[" * 300_000, b"{}" + b" " * 2_000_000])
def test_a_file_that_is_no_settings_is_one_warning_and_the_defaults(
    file: Path, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    write(file, data)
    assert Settings.from_environment({}) == Settings()
    (record,) = caplog.records
    assert str(file) in record.getMessage()


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["folder", "pipe"])
def test_a_folder_or_a_pipe_in_the_place_of_the_file_is_one_warning_and_blocks_nothing(
    file: Path, caplog: pytest.LogCaptureFixture, make: Callable[[Path], None]
) -> None:
    file.parent.mkdir(parents=True)
    make(file)
    assert Settings.from_environment({}) == Settings()
    assert len(caplog.records) == 1


def test_a_key_that_is_no_setting_is_no_reason_to_warn(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(file, '{"x1": 1, "tier": "base"}')
    assert Settings.from_environment({}).tier == "base"
    assert caplog.records == []


def test_a_server_logs_as_much_as_the_setting_says(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    levels = []
    monkeypatch.setattr(logging, "basicConfig", lambda **options: levels.append(options["level"]))
    log_to_stderr()
    write(file, '{"log": "info"}')
    log_to_stderr()
    monkeypatch.setenv("HOLDTRUE_LOG", "error")
    log_to_stderr()
    assert levels == ["WARNING", "INFO", "ERROR"]


# -- the command -------------------------------------------------------------------------------------------------------


def answer(run: Run, *arguments: str, code: int = 0) -> Any:
    ended, out, err = run("config", *arguments, "--json")
    assert (ended, err) == (code, ""), (out, err)
    return json.loads(out)


def test_config_list_tells_each_setting_its_value_its_source_and_what_it_may_be(
    run: Run, file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write(file, '{"tier": "base", "x1": [1], "write_wait_s": "soon", "\\u001b[2J": 0}')
    monkeypatch.setenv("HOLDTRUE_LOG", "info")
    told = answer(run, "list", "--store", str(tmp_path / "elsewhere"), code=4)
    assert (told["path"], told["unknown"]) == (str(file), ["\x1b[2J", "x1"])
    (problem,) = told["problems"]
    assert "write_wait_s='soon'" in problem
    rows = {row["name"]: row for row in told["settings"]}
    assert list(rows) == list(config.SETTINGS)
    values = {name: (row["value"], row["source"]) for name, row in rows.items()}
    assert values == {
        "home": (str(tmp_path / "elsewhere"), "option"),
        "tier": ("base", "file"),
        "write_wait_s": (30, "default"),
        "model_wait_s": (2, "default"),
        "wal_limit_mib": (64, "default"),
        "allow_network_store": (False, "default"),
        "log": ("INFO", "environment"),
    }
    assert rows["wal_limit_mib"]["allowed"] == "0 or a number of MiB between 8 and 1,000,000"
    code, out, err = run("config", "list")
    assert code == 4
    assert err.startswith("holdtrue: degraded: write_wait_s='soon'")
    for row in rows.values():
        assert row["sentence"] in out
        assert row["variable"] in out
    assert "no settings, kept as they are: \\x1b[2J, x1\n" in out
    assert file.read_text() == '{"tier": "base", "x1": [1], "write_wait_s": "soon", "\\u001b[2J": 0}'


def test_config_set_get_unset_and_path_change_and_show_one_setting(run: Run, file: Path) -> None:
    assert run("config", "path") == (0, f"{file}\n", "")
    assert answer(run, "path") == {"path": str(file)}
    assert run("config", "get", "write_wait_s") == (0, "30\n", "")
    assert not file.exists()
    assert answer(run, "set", "write_wait_s", "2.50") == {
        "name": "write_wait_s",
        "value": 2.5,
        "path": str(file),
        "overridden_by": None,
    }
    assert run("config", "set", "allow_network_store", "YES")[0] == 0
    assert run("config", "set", "home", "~/kept")[0] == 0
    assert json.loads(file.read_text()) == {
        "write_wait_s": 2.5,
        "allow_network_store": True,
        "home": str(Path("~/kept").expanduser()),
    }
    got = answer(run, "get", "allow_network_store")
    assert (got["value"], got["source"], got["problems"]) == (True, "file", [])
    assert run("config", "get", "allow_network_store")[1] == "true\n"
    assert answer(run, "unset", "write_wait_s")["removed"] is True
    assert answer(run, "unset", "write_wait_s")["removed"] is False
    assert run("config", "get", "write_wait_s")[1] == "30\n"


def test_config_set_says_when_a_variable_goes_before_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDTRUE_TIER", "default")
    assert answer(run, "set", "tier", "base")["overridden_by"] == "HOLDTRUE_TIER"
    assert "HOLDTRUE_TIER is set as well" in run("config", "set", "tier", "base")[1]


def test_config_unset_takes_a_key_out_that_is_no_setting(run: Run, file: Path) -> None:
    write(file, '{"x1": 1}')
    assert answer(run, "unset", "x1")["removed"] is True
    assert run("config", "unset", "x1")[0] == 2


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("set", "write_wait_s", "soon"), "between 0.05 and 600"),
        (("set", "write_wait_s", "601"), "between 0.05 and 600"),
        (("set", "wal_limit_mib", "7"), "0 or a number of MiB between 8 and 1,000,000"),
        (("set", "allow_network_store", "maybe"), "true or false"),
        (("set", "log", "loud"), "DEBUG, INFO, WARNING or ERROR"),
        (("set", "tier", "nope"), "default"),
        (("set", "home", "relative/home"), "absolute"),
        (("set", "home", ""), "absolute"),
        (("set", "x1", "1"), "wal_limit_mib"),
        (("get", "x1"), "wal_limit_mib"),
        (("unset", "x1"), "wal_limit_mib"),
        (("set", "tier"), "--help"),
        (("set",), "--help"),
        (("remove", "tier"), "--help"),
    ],
)
def test_a_bad_command_is_refused_with_what_is_allowed_and_leaves_no_trace(
    run: Run, file: Path, arguments: tuple[str, ...], told: str
) -> None:
    code, out, err = run("config", *arguments)
    assert (code, out) == (2, "")
    assert told in err
    code, out, err = run("config", *arguments, "--json")
    assert (code, err) == (2, "")
    assert told in json.loads(out)["error"]["hint"]
    assert not file.parent.exists()


def test_a_malformed_file_is_told_by_every_command_and_left_as_it_is(run: Run, file: Path) -> None:
    write(file, '{"tier": "base",\n}')
    for arguments in (("set", "tier", "base"), ("unset", "tier")):
        code, out, _ = run("config", *arguments, "--json")
        assert (code, json.loads(out)["error"]["code"]) == (1, "CONFIG_INVALID")
    told = answer(run, "list", code=4)
    assert "Line 2" in told["problems"][0]
    assert answer(run, "get", "tier", code=4)["value"] == "default"
    assert run("config", "path")[0] == 0
    assert file.read_text() == '{"tier": "base",\n}'


def test_options_count_on_either_side_of_each_name(run: Run, tmp_path: Path) -> None:
    for arguments in (("--json", "config", "get", "home"), ("config", "--json", "get", "home")):
        assert json.loads(run(*arguments, "--store", str(tmp_path))[1])["value"] == str(tmp_path)
    assert run("config", "--store", str(tmp_path), "get", "home")[1] == f"{tmp_path}\n"
