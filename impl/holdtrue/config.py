"""Settings: one object, read from `HOLDTRUE_*` over the config file over the defaults.

Owns the table of settings: the fields of `Settings` are its rows, and the variables, the keys of the file and
`holdtrue config` are derived from them. A value that is not understood falls back to its default with a warning that
names its place, never to a guess and never with a crash: what it would have allowed stays forbidden.
"""

from __future__ import annotations

import dataclasses
import math
import os
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from holdtrue import logs
from holdtrue.configfile import ConfigFile
from holdtrue.errors import ConfigError, InvalidInput

logger = logs.logger(__name__)

WRITE_WAIT_S = 30.0
MODEL_WAIT_S = 2.0
WAL_LIMIT_MIB = 64.0

_TEXT_LIMIT = 4_096

Source = Literal["default", "file", "environment"]


class Kind(Protocol):
    """What values a setting takes. Both readers raise `ValueError` for any other; `allowed` completes "it must be"."""

    @property
    def allowed(self) -> str: ...

    def of_text(self, text: str) -> Any:
        """The value of a variable or an argument."""

    def of_json(self, value: Any) -> Any:
        """The value of a key of the config file."""

    def to_json(self, value: Any) -> Any:
        """The value as the config file and `--json` hold it."""


@dataclass(frozen=True)
class Number:
    """A number from `low` to `high`, both included. With `zero_is_off` also 0, which turns the thing off."""

    unit: str
    low: float
    high: float
    zero_is_off: bool = False

    @property
    def allowed(self) -> str:
        off = "0 or " if self.zero_is_off else ""
        return f"{off}a number of {self.unit} between {self.low:g} and {self.high:,.10g}"

    def of_text(self, text: str) -> float:
        return self.of_json(float(text))

    def of_json(self, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError  # noqa: TRY004 - a kind has one way to refuse
        if not math.isfinite(value) or not (self.low <= value <= self.high or (self.zero_is_off and value == 0)):
            raise ValueError
        return float(value)

    def to_json(self, value: float) -> int | float:
        return int(value) if value == int(value) else value


@dataclass(frozen=True)
class Flag:
    """True or false."""

    allowed: str = "true or false"

    def of_text(self, text: str) -> bool:
        word = text.lower()
        if word in ("true", "yes", "on", "1"):
            return True
        if word in ("false", "no", "off", "0"):
            return False
        raise ValueError

    def of_json(self, value: Any) -> bool:
        if not isinstance(value, bool):
            raise ValueError  # noqa: TRY004
        return value

    def to_json(self, value: bool) -> bool:
        return value


@dataclass(frozen=True)
class Word:
    """One of the choices, in capitals or not; any word where there are none."""

    choices: tuple[str, ...] = ()
    allowed: str = "a name"

    def of_text(self, text: str) -> str:
        return self.of_json(text)

    def of_json(self, value: Any) -> str:
        if not isinstance(value, str) or len(value) > _TEXT_LIMIT or not value.isprintable() or not value.strip():
            raise ValueError
        word = value.strip()
        if not self.choices:
            return word
        return self.choices[[choice.lower() for choice in self.choices].index(word.lower())]

    def to_json(self, value: str | None) -> str | None:
        return value


@dataclass(frozen=True)
class Folder:
    """A folder. A variable may name it from the current folder; the file, which is read from anywhere, may not."""

    allowed: str = "an absolute path of a folder, or one that begins with ~"

    def of_text(self, text: str) -> Path:
        if not text.strip() or "\0" in text or len(text) > _TEXT_LIMIT:
            raise ValueError
        os.fsencode(text)  # UnicodeError is a ValueError
        try:
            return Path(text).expanduser()
        except RuntimeError as error:
            raise ValueError from error

    def of_json(self, value: Any) -> Path:
        if not isinstance(value, str):
            raise ValueError  # noqa: TRY004
        folder = self.of_text(value.strip())
        if not folder.is_absolute():
            raise ValueError
        return folder

    def to_json(self, value: Path | None) -> str | None:
        return None if value is None else str(value)


def _setting(default: Any, kind: Kind, sentence: str, *, unset: str = "") -> Any:
    """A row of the table. `unset` says what a default of None stands for."""
    return field(default=default, metadata={"kind": kind, "sentence": sentence, "unset": unset})


@dataclass(frozen=True)
class Settings:
    """What is in effect in this process. Each field is a row of the table of settings."""

    home: Path | None = _setting(  # noqa: RUF009 - it is dataclasses.field
        default=None, kind=Folder(), sentence="The folder of the store.", unset="the data folder of this user"
    )
    tier: str | None = _setting(
        None, Word(allowed="the name of a tier"), "The embedder that makes vectors.", unset="default"
    )
    write_wait_s: float = _setting(
        WRITE_WAIT_S, Number("seconds", 0.05, 600.0), "How long a write waits in total before it is refused."
    )
    model_wait_s: float = _setting(
        MODEL_WAIT_S, Number("seconds", 0.0, 600.0), "How long a call waits for a model that is loading."
    )
    wal_limit_mib: float = _setting(
        WAL_LIMIT_MIB,
        Number("MiB", 8.0, 1_000_000.0, zero_is_off=True),
        "How large the write-ahead log may grow before writers wait for it to be folded in; 0 is no limit.",
    )
    allow_network_store: bool = _setting(
        default=False,
        kind=Flag(),
        sentence="Whether a store may lie on a network file system, where locks and WAL are not to be relied on.",
    )
    log: str = _setting("WARNING", Word(("DEBUG", "INFO", "WARNING", "ERROR"), "DEBUG, INFO, WARNING or ERROR"),
                        "How much a server logs on standard error.")  # fmt: skip

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ, *, warn: bool = True) -> Settings:
        """The settings of a process with these variables. Each value that is not understood is warned about."""
        lookup = look_up(environment)
        for sentence in lookup.problems if warn else ():
            logger.warning("%s", sentence)
        return cls(**{name: each.value for name, each in lookup.found.items()})


@dataclass(frozen=True)
class Setting:
    """A row of the table: the key in the file is `name`."""

    name: str
    kind: Kind
    default: Any
    sentence: str
    unset: str

    @property
    def variable(self) -> str:
        return f"HOLDTRUE_{self.name.upper()}"

    def shown(self, value: Any) -> str:
        """The value in words."""
        if value is None:
            return self.unset
        plain = self.kind.to_json(value)
        return str(plain).lower() if isinstance(plain, bool) else str(plain)


SETTINGS: dict[str, Setting] = {
    row.name: Setting(row.name, row.metadata["kind"], row.default, row.metadata["sentence"], row.metadata["unset"])
    for row in dataclasses.fields(Settings)
}


@dataclass(frozen=True)
class Found:
    """The value of a setting, where it comes from, and what was wrong with the one that should have been used."""

    value: Any
    source: Source
    problem: str = ""


@dataclass(frozen=True)
class Lookup:
    """Every setting by name; the config file, why it is not used (empty when it is), and its keys that are no settings."""

    found: dict[str, Found]
    path: Path
    file_problem: str
    unknown: tuple[str, ...]

    @property
    def problems(self) -> list[str]:
        return [each for each in (self.file_problem, *(found.problem for found in self.found.values())) if each]


def look_up(environment: Mapping[str, str] = os.environ) -> Lookup:
    """Look for every setting in the variables, then in the config file. Never raises, never waits."""
    file = ConfigFile.of(environment)
    keys: dict[str, Any] = {}
    problem = ""
    try:
        keys = file.read()
    except ConfigError as error:
        problem = f"The config file is not used. {error}"
    found = {row.name: _found(row, environment, keys, file.path) for row in SETTINGS.values()}
    return Lookup(found, file.path, problem, tuple(sorted(keys.keys() - SETTINGS.keys())))


def _found(row: Setting, environment: Mapping[str, str], keys: Mapping[str, Any], file: Path) -> Found:
    text = environment.get(row.variable, "").strip()
    try:
        if text:
            return Found(row.kind.of_text(text), "environment")
        if row.name in keys:
            return Found(row.kind.of_json(keys[row.name]), "file")
    except (ValueError, OverflowError):
        given = f"{row.variable}={_repr(text)}" if text else f"{row.name}={_repr(keys[row.name])} in {str(file)!a}"
        problem = f"{given} is not {row.kind.allowed}; using {row.shown(row.default)}."
        return Found(row.default, "default", problem)
    return Found(row.default, "default")


def store_folder(path: object, settings: Settings) -> Path:
    """The absolute folder of a store: the given path, or the home of the settings. Raises `InvalidInput`."""
    if path is None:
        chosen = settings.home or _default_home()
    elif isinstance(path, str | os.PathLike):
        text = os.fspath(path)
        if not isinstance(text, str) or not text.strip() or "\0" in text:
            raise InvalidInput("The store path is blank or malformed.", hint="Name a folder, for example ~/memories.")
        try:
            os.fsencode(text)
            chosen = Path(text).expanduser()
        except (UnicodeError, RuntimeError) as error:
            raise InvalidInput(
                f"The store path {text[:80]!a} cannot be used: {error}.", hint="Name a folder."
            ) from error
    else:
        raise InvalidInput(
            f"The store path must be a string or path, not {type(path).__name__}.", hint="Name a folder."
        )
    return Path(os.path.abspath(chosen))  # noqa: PTH100 - resolve() would follow links, and a store may be one


def _default_home() -> Path:
    import platformdirs  # imported here: most commands name their store

    return Path(platformdirs.user_data_dir("holdtrue", appauthor=False))


def _short_repr() -> reprlib.Repr:
    short = reprlib.Repr()  # bounded in depth too: a value of the file may be nested as deeply as it likes
    short.maxstring = short.maxother = 80
    return short


_repr = _short_repr().repr
