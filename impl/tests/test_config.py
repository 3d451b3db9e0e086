"""Settings: where a store lies and how long things may wait; a bad value never stops the program."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from holdtrue.config import MODEL_WAIT_S, WRITE_WAIT_S, Settings, store_folder
from holdtrue.errors import InvalidInput

SETTINGS = Settings(home=Path("/somewhere/home"))


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
