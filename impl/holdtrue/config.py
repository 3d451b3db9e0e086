"""Settings: one object, read from `HOLDTRUE_*`. A bad value falls back to its default with a warning, never a crash."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from holdtrue.errors import InvalidInput

logger = logging.getLogger(__name__)

WRITE_WAIT_S = 30.0
MODEL_WAIT_S = 2.0


@dataclass(frozen=True)
class Settings:
    """`home` is the folder of the store, None for the platform's data folder; `write_wait_s` is how long a write may
    wait in total, `model_wait_s` how long any call waits for a model that is loading; both in seconds.
    """

    home: Path | None = None
    tier: str | None = None
    write_wait_s: float = WRITE_WAIT_S
    model_wait_s: float = MODEL_WAIT_S

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        home = environment.get("HOLDTRUE_HOME", "").strip()
        return cls(
            home=Path(home).expanduser() if home else None,
            tier=environment.get("HOLDTRUE_TIER", "").strip() or None,
            write_wait_s=_seconds(environment, "HOLDTRUE_WRITE_WAIT_S", WRITE_WAIT_S, low=0.05, high=600.0),
            model_wait_s=_seconds(environment, "HOLDTRUE_MODEL_WAIT_S", MODEL_WAIT_S, low=0.0, high=600.0),
        )


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


def _seconds(environment: Mapping[str, str], name: str, default: float, *, low: float, high: float) -> float:
    text = environment.get(name, "").strip()
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or not low <= value <= high:
        logger.warning("%s=%r is not a number of seconds between %s and %s; using %s.", name, text, low, high, default)
        return default
    return value
