"""Loggers whose records can be shown: no secret in them, and one line each.

What is logged repeats what came in: an unknown argument, a path, the message of an exception. So each record is made
clean when it is logged, before any handler sees it: secrets masked, control characters and newlines written out, so that
no text can add a line to a log or drive the terminal that shows it. A traceback keeps its lines; the messages in it do
not get any of their own. Enforces INV-020.
"""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Iterator

from holdtrue.controls import one_line
from holdtrue.enforces import enforces
from holdtrue.masking import mask

_CHAIN_LIMIT = 20
_CAUSED = "The above exception was the direct cause of the following exception:"
_DURING = "During handling of the above exception, another exception occurred:"


class CleanRecords(logging.Filter):
    """Makes every record clean. On a logger it sees what is logged there, on a handler whatever comes to it."""

    @enforces("INV-020")
    def filter(self, record: logging.LogRecord) -> bool:
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001 - a call that does not fit its format must not lose the record
            message = f"{record.msg} {record.args!r}"
        record.msg, record.args = one_line(mask(message)), None
        if record.exc_info and record.exc_info[1] is not None:
            record.exc_text = traceback_text(record.exc_info[1])
            record.exc_info = None  # a handler would format it again
        elif record.exc_text:
            record.exc_text = mask(record.exc_text)
        return True


CLEAN = CleanRecords()


def logger(name: str) -> logging.Logger:
    """The logger of a module, the only kind there is in this package."""
    found = logging.getLogger(name)
    found.addFilter(CLEAN)
    return found


def traceback_text(error: BaseException) -> str:
    """What Python prints of an exception and those behind it, with each message clean."""
    return "\n".join(_lines(error, _CHAIN_LIMIT))


def _lines(error: BaseException, limit: int) -> Iterator[str]:
    behind, joint = error.__cause__, _CAUSED
    if behind is None and not error.__suppress_context__:
        behind, joint = error.__context__, _DURING
    if behind is not None and limit > 0:
        yield from _lines(behind, limit - 1)
        yield joint
    if error.__traceback__ is not None:
        yield "Traceback (most recent call last):"
        yield from (line.rstrip("\n") for line in traceback.format_tb(error.__traceback__))
    yield clean_message(error)
    yield from (f"  note: {one_line(mask(str(note)))}" for note in getattr(error, "__notes__", ()))
    if isinstance(error, BaseExceptionGroup) and limit > 0:
        for number, part in enumerate(error.exceptions[:_CHAIN_LIMIT], 1):
            yield f"  part {number}:"
            yield from (f"    {line}" for whole in _lines(part, limit // 2) for line in whole.split("\n"))


def clean_message(error: BaseException) -> str:
    """Type and message of an exception, on one line."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - as `traceback` does: what cannot be told must not hide that there was an error
        message = "<its message could not be made>"
    return f"{type(error).__name__}: {one_line(mask(message))}" if message else type(error).__name__


def tell_of_failed_threads(log: logging.Logger) -> None:
    """Log an exception that ends a thread, instead of printing it as it is."""

    def told(failed: threading.ExceptHookArgs) -> None:
        if failed.exc_value is not None and not isinstance(failed.exc_value, SystemExit):
            name = failed.thread.name if failed.thread is not None else "?"
            error = failed.exc_value
            log.error("The thread %s failed", name, exc_info=(type(error), error, error.__traceback__))

    threading.excepthook = told
