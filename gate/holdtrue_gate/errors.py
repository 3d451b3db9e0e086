"""The gate's errors: each has a stable code, a message and what to do next.

Exit codes of the command line: 0 pass, 1 the gate says no, 2 usage or configuration, 3 cannot judge. An error is never
a "no": a gate that could not look must not speak about the commit.
"""

from __future__ import annotations

from typing import ClassVar

EXIT_PASS = 0
EXIT_NO = 1
EXIT_USAGE = 2
EXIT_CANNOT_JUDGE = 3
# As a shell tells a program that Ctrl-C ended.
EXIT_INTERRUPTED = 130


class GateError(Exception):
    """Base of every error the gate raises on purpose.

    `code` is stable and meant for programs; `message` says what is wrong; `hint` says what to do next and may be empty.
    """

    exit_code: ClassVar[int] = EXIT_CANNOT_JUDGE

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[type[GateError], tuple[str, str, str]]:
        # A replay may run in another process, and its error has to come back whole.
        return type(self), (self.code, self.message, self.hint)

    def as_json(self) -> dict[str, str]:
        """The error as a report carries it: `code`, `message`, `hint`."""
        return {"code": self.code, "message": self.message, "hint": self.hint}


class UsageError(GateError):
    """The command line names something that is not there: a revision, a folder, an interpreter."""

    exit_code = EXIT_USAGE


class ConfigError(GateError):
    """`[tool.gate]` or another file the gate reads has a key or a value it does not understand."""

    exit_code = EXIT_USAGE


class CannotJudgeError(GateError):
    """The gate could not find out; `code` is a problem of the commit (`history-missing`, ...) or of the tools (`git-
    failed`, ...)."""

    exit_code = EXIT_CANNOT_JUDGE
