"""The config file: one JSON object that many processes read and change at once.

Owns the file, its lock and its temporary files. A change reads, alters and replaces the whole file in one turn on an OS
lock, so no writer loses another's key; the file is replaced and never written in place, so a reader needs no lock and
finds a complete object at every instant. What it does not know it keeps as it stands, byte for byte.

Faults it survives: a kill at any point (the old file or the new one is there; the next writer removes what was left), a
power loss, writers in many threads and processes, a writer that never ends (a bounded wait), a file that is no JSON
object, is huge, is no file at all, or is a link, as managers of dotfiles make them: the link stays, its target changes.

Enforces INV-019.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdtrue import failpoints
from holdtrue.clock import Deadline
from holdtrue.enforces import enforces
from holdtrue.errors import ConfigBusy, ConfigError, ConfigInvalid, InvalidInput, StoreError
from holdtrue.files import RecordLock, lock_path, make_private_folder, remove_leftovers, replace_file

LOCK_WAIT_S = 10.0
SIZE_LIMIT_BYTES = 1024 * 1024

_POLL_S = 0.005
_BLANK = re.compile(r"[ \t\n\r]*")
_DIGITS_LIMIT = 400  # a number of more digits is beyond every float, and Python refuses to read one of thousands

# Record locks do not exclude the threads of one process, and a thread that closes its descriptor of the lock file would
# drop the lock of another: so one thread at a time has such a descriptor at all.
_threads = threading.Lock()


def _renew_threads() -> None:
    global _threads
    _threads = threading.Lock()  # the thread that holds it does not exist in a forked child


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_threads)


@dataclass(frozen=True)
class _Member:
    """A key of the object and its value, both also as they are written in the file."""

    key: str
    value: Any
    written_key: str
    written_value: str


class ConfigFile:
    """The settings kept in a file. Any process may hold one; nothing is open between two calls."""

    def __init__(self, path: Path) -> None:
        self._homeless = str(path).startswith("~")  # nobody knows the home folder that it is in
        with contextlib.suppress(OSError):  # a path from a current folder that is gone stays as it is
            path = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow links
        self.path = path

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> ConfigFile:
        """The file that `HOLDTRUE_CONFIG` names, else `config.json` in the platform's config folder of this user."""
        named = environment.get("HOLDTRUE_CONFIG", "").strip()
        return cls(Path(os.path.expanduser(named)) if named else _default_path())  # noqa: PTH111 - it never raises

    def read(self) -> dict[str, Any]:
        """What the file holds; empty when there is none. Waits for nobody.

        Raises `ConfigInvalid` when it is not a JSON object in UTF-8 of at most 1 MiB, `ConfigError` when it cannot be
        read.
        """
        if self._homeless or str(self._target()) == os.devnull:
            return {}  # a path or a link to the null device is a common way to say: no file
        return {member.key: member.value for member in _members(self.path)}

    def set(self, name: str, value: Any) -> None:
        """Give a key a JSON value, and return once that is durable. Other keys stay as they are.

        Raises `ConfigInvalid`, `ConfigBusy` after a wait of 10 s, or `ConfigError`; then nothing was changed.
        """
        member = _Member(name, value, _written(name), _written(value))

        def put(members: list[_Member]) -> list[_Member]:
            places = [place for place, each in enumerate(members) if each.key == name]
            if not places:
                return [*members, member]
            *earlier, last = places  # of a key that stands there twice the last one counts
            members[last] = member
            return [each for place, each in enumerate(members) if place not in earlier]

        self._change(put)

    def unset(self, name: str) -> bool:
        """Take a key out, and return whether it was there. Raises as `set` does."""
        if name not in self.read():
            return False  # before the lock, so that taking nothing out makes no folder and no lock file

        def take(members: list[_Member]) -> list[_Member] | None:
            kept = [each for each in members if each.key != name]
            return kept if len(kept) < len(members) else None

        return self._change(take)

    @enforces("INV-019")
    def _change(self, alter: Callable[[list[_Member]], list[_Member] | None]) -> bool:
        """Read, alter and replace the file in one turn. `alter` answers None to leave it. Returns whether it changed."""
        if self._homeless:
            raise ConfigError("The home folder of this user is not known.", hint="Set HOLDTRUE_CONFIG to a file.")
        _members(self.path)  # what is going to be refused is refused before there is a lock file
        deadline = Deadline.after(LOCK_WAIT_S)
        target = self._target()
        while not deadline.passed():
            with _turn(target, deadline):
                if (turned := self._target()) != target:
                    target = turned  # the link leads elsewhere since this process began to wait
                    continue
                failpoints.hit("config.locked")
                altered = alter(_members(target))
                failpoints.hit("config.read")
                if altered is not None:
                    _replace(target, _text_of(altered))
                return altered is not None
        raise _busy(target)

    def _target(self) -> Path:
        """The file itself, behind any links."""
        return Path(os.path.realpath(self.path))


def _default_path() -> Path:
    if sys.platform.startswith("linux"):
        # As platformdirs has it, without its import, which costs every start 7 ms.
        named = os.environ.get("XDG_CONFIG_HOME", "").strip()
        folder = named if os.path.isabs(named) else os.path.expanduser("~/.config")  # noqa: PTH111, PTH117
        return Path(folder, "holdtrue", "config.json")
    import platformdirs

    return Path(platformdirs.user_config_dir("holdtrue", appauthor=False), "config.json")


# -- the lock and the replacement --------------------------------------------------------------------------------------


@contextlib.contextmanager
def _turn(target: Path, deadline: Deadline) -> Iterator[None]:
    """Be the only thread of all processes that changes the file, or raise `ConfigBusy` when the deadline has passed."""
    if not _threads.acquire(timeout=deadline.remaining_s()):
        raise _busy(target)
    try:
        with contextlib.closing(_open_lock(target)) as lock:
            while not lock.try_acquire():
                if deadline.passed():
                    raise _busy(target)
                time.sleep(_POLL_S)
            yield
    finally:
        _threads.release()


def _busy(target: Path) -> ConfigBusy:
    return ConfigBusy(
        f"Waited {LOCK_WAIT_S:g} s for another process that is changing {str(target)!a}.", waited_s=LOCK_WAIT_S
    )


def _open_lock(target: Path) -> RecordLock:
    try:
        make_private_folder(target.parent)
        return RecordLock(lock_path(target))
    except StoreError as error:
        raise ConfigError(f"The folder of {str(target)!a} cannot be made or is none.") from error
    except (OSError, ValueError) as error:
        raise _cannot("change", target, error) from error


def _replace(target: Path, text: str) -> None:
    data = text.encode()
    if len(data) > SIZE_LIMIT_BYTES:
        raise InvalidInput(
            f"{str(target)!a} would grow beyond {SIZE_LIMIT_BYTES:,} bytes.",
            hint="Nothing was changed: store less in it.",
        )
    try:
        remove_leftovers(target)
        replace_file(target, data)
    except OSError as error:
        raise _cannot("write", target, error) from error


def _cannot(action: str, path: Path, error: Exception) -> ConfigError:
    reason = (isinstance(error, OSError) and error.strerror) or str(error)
    return ConfigError(f"Cannot {action} {str(path)!a}: {reason}.")


# -- reading -----------------------------------------------------------------------------------------------------------


def _members(path: Path) -> list[_Member]:
    data = _bytes(path)
    if data is None:
        return []
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigInvalid(f"Line {line} of {str(path)!a} is not UTF-8.") from error
    other = _other_value(text)
    if other:
        raise ConfigInvalid(f"{str(path)!a} holds {other}; an object in braces is expected.")
    try:
        return list(_parsed(text))
    except json.JSONDecodeError as error:
        raise ConfigInvalid(f"Line {error.lineno} of {str(path)!a} is not JSON: {error.msg}.") from error
    except RecursionError as error:
        raise ConfigInvalid(f"{str(path)!a} is nested too deeply to be read.") from error


def _bytes(path: Path) -> bytes | None:
    """What is in the file, None without one. Never blocks: not on a FIFO, not on a device."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _cannot("read", path, error) from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ConfigError(f"{str(path)!a} is not a file.")
        data = b""
        while len(data) <= SIZE_LIMIT_BYTES and (piece := os.read(descriptor, SIZE_LIMIT_BYTES + 1)):
            data += piece
    except OSError as error:
        raise _cannot("read", path, error) from error
    finally:
        os.close(descriptor)
    if len(data) > SIZE_LIMIT_BYTES:
        raise ConfigInvalid(f"{str(path)!a} is larger than {SIZE_LIMIT_BYTES:,} bytes, so it is no config file.")
    return data


class _NoValue(Exception):
    """NaN or Infinity: Python would read them, other readers of JSON would not."""


def _no_constant(name: str) -> Any:
    raise _NoValue(name)


def _whole_number(digits: str) -> int | float:
    return int(digits) if len(digits) <= _DIGITS_LIMIT else math.inf


_decoder = json.JSONDecoder(parse_constant=_no_constant, parse_int=_whole_number)


def _parsed(text: str) -> Iterator[_Member]:
    """The members of the one object in a text. Raises `JSONDecodeError`, `RecursionError`.

    The object itself is taken apart here, not by `json`, so that each value can be kept as it is written.
    """
    place = _expect(text, _skip(text, 0), "{", "an object in braces is expected")
    place = _skip(text, place)
    first = True
    while text[place : place + 1] != "}":
        if not first:
            place = _skip(text, _expect(text, place, ",", "a comma or the closing brace is expected"))
        first = False
        begin = place
        _expect(text, begin, '"', "a key in double quotes is expected")
        key, place = _decoder.raw_decode(text, begin)
        written_key = text[begin:place]
        begin = _skip(text, _expect(text, _skip(text, place), ":", "a colon is expected"))
        try:
            value, place = _decoder.raw_decode(text, begin)
        except _NoValue as error:
            raise json.JSONDecodeError(f"{error} is no value", text, begin) from error
        yield _Member(key, value, written_key, text[begin:place])
        place = _skip(text, place)
    if _skip(text, place + 1) != len(text):
        raise json.JSONDecodeError("there is more after the object", text, _skip(text, place + 1))


def _other_value(text: str) -> str:
    """What a text holds that is JSON and no object, in words; "" where it is an object or no JSON."""
    place = _skip(text, 0)
    if text[place : place + 1] == "{":
        return ""
    try:
        value = _decoder.decode(text)
    except (ValueError, RecursionError, _NoValue):
        return ""
    words = {list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return words.get(type(value), "a number")


def _skip(text: str, place: int) -> int:
    found = _BLANK.match(text, place)
    return found.end() if found else place


def _expect(text: str, place: int, mark: str, otherwise: str) -> int:
    if text[place : place + 1] != mark:
        raise json.JSONDecodeError(otherwise, text, place)
    return place + 1


# -- writing -----------------------------------------------------------------------------------------------------------


def _written(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate, which a path may hold, can only be written as an escape
        return json.dumps(value, allow_nan=False)
    return text


def _text_of(members: list[_Member]) -> str:
    if not members:
        return "{}\n"
    return "{\n" + ",\n".join(f"  {each.written_key}: {each.written_value}" for each in members) + "\n}\n"
