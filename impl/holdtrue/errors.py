"""Every error HoldTrue raises on purpose: one hierarchy, each with a stable code and what to do next.

A caller may match on the class or on `code`; both are promises. The message says what happened, `hint` what to do about
it. An error from a call that writes means that nothing of that call was stored. Messages repeat what was given, so the
secrets in them are masked here. Enforces INV-020.
"""

from __future__ import annotations

from typing import Any, ClassVar

from holdtrue.enforces import enforces
from holdtrue.masking import mask, mask_values


class HoldTrueError(Exception):
    """Base of every deliberate error. `code` is stable; `exit_code` is what the command line ends with."""

    code: ClassVar[str] = "HOLDTRUE_ERROR"
    exit_code: ClassVar[int] = 1
    default_hint: ClassVar[str] = ""

    @enforces("INV-020")
    def __init__(self, message: str, *, hint: str = "", **details: Any) -> None:
        self.message = mask(message)
        super().__init__(self.message)
        self.hint = mask(hint) if hint else self.default_hint
        self.details: dict[str, Any] = mask_values(details)

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".rstrip()

    def as_dict(self) -> dict[str, Any]:
        """The shape that `--json` prints and the MCP tools answer: `{"code", "message", "hint", ...details}`."""
        return {"code": self.code, "message": self.message, "hint": self.hint, **self.details}


class InvalidInput(HoldTrueError):
    """An argument has the wrong type, shape or size. Nothing was changed."""

    code = "INVALID_INPUT"
    exit_code = 2


class TextBlank(InvalidInput):
    code = "TEXT_BLANK"
    default_hint = "Give the memory at least one visible character."


class TextTooLong(InvalidInput):
    code = "TEXT_TOO_LONG"
    default_hint = "Split it into several memories, or store a summary of it."


class NotFound(HoldTrueError):
    """No memory has this id: it never existed, or it was forgotten."""

    code = "NOT_FOUND"
    default_hint = "List or search the store for the ids it holds."


class KeyConflict(HoldTrueError):
    """The idempotency key was used before, in this user and project, for another text."""

    code = "KEY_CONFLICT"
    default_hint = "Use another key for another text, or update the memory that the key names."


class TextConflict(HoldTrueError):
    """An update would give two memories of one user and project the same text."""

    code = "TEXT_CONFLICT"
    default_hint = "Forget one of the two memories, or give this one a text of its own."


class StoreError(HoldTrueError):
    """The store cannot be used now."""

    code = "STORE_UNAVAILABLE"
    exit_code = 3


class StoreMissing(StoreError):
    code = "STORE_MISSING"
    default_hint = "Check the path, or add a memory: the first one creates the store."


class StoreBusy(StoreError):
    """Another process held the write lock for the whole of this call's patience. Nothing was stored."""

    code = "STORE_BUSY"
    default_hint = (
        "Nothing was stored, so it is safe to try again. "
        "A process that writes to memory.db without HoldTrue (a shell, a backup tool) is the usual cause."
    )


class StoreClosed(StoreError):
    code = "STORE_CLOSED"
    default_hint = "Open it again with Memory(path)."


class StoreForked(StoreError):
    """This process was forked while the store was open in its parent."""

    code = "STORE_FORKED"
    default_hint = "Start such a process with spawn instead of fork, or fork before anything opens the store."


class StoreReadOnly(StoreError):
    code = "STORE_READ_ONLY"
    default_hint = "To store, make the folder and its files writable for this user."


class StoreChanged(StoreError):
    """The files were read without locks, since nobody may write there, and changed meanwhile: there is no answer."""

    code = "STORE_CHANGED"
    default_hint = "Somebody else writes to it. Try again; the next read looks at it afresh."


class StoreOnNetwork(StoreError):
    """The folder lies on a network file system, or in a folder that a host shares with this virtual machine."""

    code = "STORE_ON_NETWORK"
    default_hint = (
        "Put the store on a local disk: choose another --store or HOLDTRUE_HOME. If no other machine ever opens it, "
        "HOLDTRUE_ALLOW_NETWORK_STORE=true lets it be used there."
    )


class StoreFull(StoreError):
    code = "STORE_FULL"
    default_hint = "No memory was stored or changed. Free space on the disk that holds the store, then try again."


class OutcomeUnknown(StoreError):
    """The disk failed in such a way that the call may or may not have been stored."""

    code = "OUTCOME_UNKNOWN"
    default_hint = "Trying again with the same text or key is safe: it is stored once at most. Check the disk."


class StoreTooNew(StoreError):
    code = "STORE_TOO_NEW"
    default_hint = "Upgrade holdtrue: `pip install --upgrade holdtrue`. The store was left as it is."


class StoreCorrupt(StoreError):
    code = "STORE_CORRUPT"
    default_hint = (
        "The file was left as it is. `holdtrue doctor` tells what is damaged; `holdtrue doctor --set-aside` keeps the "
        "file, begins a new store and brings over every memory that can still be read. Or restore a backup: `holdtrue "
        "restore` keeps the file as well."
    )


class StoreSound(HoldTrueError):
    """The store is not damaged, so it was not set aside. Nothing was changed."""

    code = "STORE_SOUND"
    default_hint = "`holdtrue doctor` tells what it finds; `holdtrue doctor --rebuild` makes derived data anew."


class StoreUnusable(StoreError):
    """The path cannot hold a store: it is a file, or its folder cannot be made or opened."""

    code = "STORE_UNUSABLE"


class TargetRefused(InvalidInput):
    """The path cannot take a file: its folder is missing, or the file would be a part of a store."""

    code = "TARGET_REFUSED"


class TargetExists(HoldTrueError):
    """There is a file at the path that was to be written, and it was not to be replaced."""

    code = "TARGET_EXISTS"
    default_hint = "Nothing was written. Name another path, or replace the file with --force."


class ExportTooNew(HoldTrueError):
    """The file to be imported has a version of the format that this program does not know. Nothing was changed."""

    code = "EXPORT_TOO_NEW"
    default_hint = "Upgrade holdtrue: `pip install --upgrade holdtrue`. Nothing was imported."


class SourceUnreadable(InvalidInput):
    """The file to be imported cannot be read."""

    code = "SOURCE_UNREADABLE"
    default_hint = "Name a file that this user may read, or - for standard input."


class ExtensionUnavailable(StoreError):
    """sqlite-vec could not be loaded: everything but vectors works."""

    code = "VECTORS_UNAVAILABLE"
    default_hint = "Reinstall it: `pip install --force-reinstall sqlite-vec`."


class ModelUnavailable(HoldTrueError):
    code = "MODEL_UNAVAILABLE"
    default_hint = "Keyword search goes on without it; install the extra `holdtrue[models]` or choose the default tier."


class TierUnknown(InvalidInput):
    code = "TIER_UNKNOWN"
    default_hint = "The tiers are: default, base."


class FailpointError(HoldTrueError):
    """HOLDTRUE_FAILPOINTS could not be understood."""

    code = "FAILPOINT_INVALID"
    exit_code = 2


class FailpointRaised(HoldTrueError):
    """The error a `raise` failpoint injects; only a test ever sees it."""

    code = "FAILPOINT_RAISED"


class ConfigError(HoldTrueError):
    """The config file cannot be read or written. Unless the message says otherwise, it is as it was."""

    code = "CONFIG_UNUSABLE"
    default_hint = "Set HOLDTRUE_CONFIG to a file that this user may read and write."


class ConfigInvalid(ConfigError):
    """The config file is not a JSON object. It is never overwritten, because it may hold what somebody wants to keep."""

    code = "CONFIG_INVALID"
    default_hint = "Correct it by hand, or move it aside and set what you need again."


class ConfigBusy(ConfigError):
    """Another process kept the lock of the config file for the whole wait. Nothing was changed."""

    code = "CONFIG_BUSY"
    default_hint = "Nothing was changed, so it is safe to try again."
