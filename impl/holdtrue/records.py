"""What goes in and what comes out: the validated input of an add, the stored record, the hit of a search.

Owns every limit on input. A limit is checked before anything is embedded, queued or written, so bad input leaves no
trace. Lengths count code points of the text as given. What leaves here holds no secret: each text is masked, those of a
filter too, so that what was stored under a masked name is found under the name it was given. Enforces INV-020.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import re
import time
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from holdtrue.clock import now_us, to_iso, to_us
from holdtrue.enforces import enforces
from holdtrue.errors import InvalidInput, NotFound, TextBlank, TextTooLong
from holdtrue.masking import count_labels, mask, mask_values, may_hold_secret

TEXT_LIMIT = 50_000
QUERY_LIMIT = 2_000
NAME_LIMIT = 1_024
TAG_LIMIT = 200
TAGS_LIMIT = 64
METADATA_LIMIT = 10_000
BATCH_LIMIT = 1_000
BATCH_CHARACTERS = 1_000_000  # one batch is one transaction, and everybody else's writes wait for it
SEARCH_LIMIT = 200
LIST_LIMIT = 500
COUNT_LIMIT = 2**31  # revisions, and how often a source told a text: sums of them stay far from 64 bits

METADATA_DEPTH = 32  # deeper ones could be stored and not be read again from deep inside a program

_INVISIBLE = ("Z", "C")
_VISIBLE_ASCII = re.compile(r"[!-~]")
_REPLACEMENT = "\ufffd"
_NFC_SHRINKS = 4  # a character has at most so many in its decomposed form
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def shown_path(path: str) -> str:
    """A path as valid Unicode: each byte of it that is no UTF-8 stands as an escape, `\\xff`."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def valid_unicode(text: str) -> str:
    """The text with each lone surrogate replaced by U+FFFD: UTF-8 has no way to write one."""
    if text.isascii():
        return text
    return "".join(_REPLACEMENT if "\ud800" <= character <= "\udfff" else character for character in text)


def new_id() -> str:
    """A UUIDv7 as text: 48 bits of milliseconds, 12 bits of the rest of the millisecond, 62 random bits.

    RFC 9562, section 5.7 with method 3 of 6.2; the standard library has none before Python 3.14.
    """
    milliseconds, rest_ns = divmod(time.time_ns(), 1_000_000)
    fraction = rest_ns * 4096 // 1_000_000
    tail = int.from_bytes(os.urandom(8)) & ((1 << 62) - 1)
    digits = f"{milliseconds:012x}7{fraction:03x}{0b10 << 62 | tail:016x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def text_digest(text: str) -> bytes:
    """32 bytes that are equal for texts equal after NFC: the identity of a text within its user and project."""
    return hashlib.sha256(unicodedata.normalize("NFC", text).encode()).digest()


def check_text(value: object, *, name: str = "text") -> str:
    """Text fit to be stored, its secrets masked.

    Raises `InvalidInput` for a non-string or a NUL, `TextBlank` for text without a visible character, `TextTooLong` over
    50,000 code points.
    """
    if not isinstance(value, str):
        raise InvalidInput(f"{name} must be a string, not {type(value).__name__}.", hint="Pass the memory as text.")
    if len(value) > TEXT_LIMIT:
        raise TextTooLong(f"{name} has {len(value):,} characters; the limit is {TEXT_LIMIT:,}.")
    if "\0" in value:
        raise InvalidInput(f"{name} contains a NUL character.", hint="Remove it: text in a store never holds NUL.")
    text = valid_unicode(value)
    if _VISIBLE_ASCII.search(text) is None:
        _refuse_invisible(text, name)
    return mask(text)


def _refuse_invisible(text: str, name: str) -> None:
    if all(unicodedata.category(character)[0] in _INVISIBLE for character in text):
        raise TextBlank(f"{name} is blank.")


@enforces("INV-022")
def check_name(value: object, *, name: str, limit: int = NAME_LIMIT) -> str:
    """A label such as a user or project, in NFC, its secrets masked. Empty is allowed: it is the default scope.

    Any character but NUL is allowed too, slashes, dots and newlines included, for a project may be called after a folder:
    a label is a value in the database and never a part of a path, and whoever shows it writes its controls as escapes.
    """
    if not isinstance(value, str):
        raise InvalidInput(
            f"{name} must be a string, not {type(value).__name__}.", hint=f"Leave {name} out, or pass text."
        )
    if "\0" in value:
        raise InvalidInput(f"{name} contains a NUL character.", hint="Remove it.")
    # The form that is stored counts: what was stored can be asked for, exported and imported again.
    stored = value if len(value) > limit * _NFC_SHRINKS else _stored_name(value)
    if len(stored) > limit:
        raise InvalidInput(f"{name} has {len(stored):,} characters; the limit is {limit:,}.", hint="Use a shorter one.")
    return stored


def _stored_name(value: str) -> str:
    return mask(value if value.isascii() else unicodedata.normalize("NFC", valid_unicode(value)))


def check_key(value: object) -> str:
    """An idempotency key. One that holds a secret is refused: masked, two keys could become one."""
    key = check_name(value, name="key")
    if not key.strip():
        raise InvalidInput("key is blank.", hint="Leave it out, or give a key that names this memory.")
    if isinstance(value, str) and mask(value) != value:
        raise InvalidInput("key holds a secret.", hint="Use a key that is none, for example a hash of it.")
    return key


def check_tags(value: object) -> tuple[str, ...]:
    """Distinct tags in sorted order. A bare string is refused: it would become one tag a letter."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InvalidInput(f"tags must be a list of strings, not {type(value).__name__}.", hint='Write ["ops", "db"].')
    tags = {check_name(tag, name="each tag", limit=TAG_LIMIT) for tag in value}
    if any(not tag.strip() for tag in tags):
        raise InvalidInput("A tag is blank.", hint="Leave it out.")
    if len(tags) > TAGS_LIMIT:
        raise InvalidInput(f"{len(tags)} tags; the limit is {TAGS_LIMIT}.", hint="Use fewer.")
    return tuple(sorted(tags))


def check_metadata(value: object) -> str:
    """Metadata as canonical JSON text of an object, the secrets in its names and values masked."""
    if value is None or value == {}:
        return "{}"
    if not isinstance(value, Mapping):
        raise InvalidInput(
            f"metadata must be an object, not {type(value).__name__}.", hint='Write {"ticket": "POL-1"}.'
        )
    named_by_text = _check_nesting(value)
    try:
        text = json.dumps(dict(value), ensure_ascii=False, sort_keys=True, allow_nan=False)
        if not named_by_text:  # numbers were sorted as numbers, and are texts from now on
            text = json.dumps(json.loads(text), ensure_ascii=False, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(
            f"metadata is not JSON: {error}.", hint="Use strings, finite numbers, lists, objects."
        ) from error
    if len(text) > METADATA_LIMIT:
        raise InvalidInput(
            f"metadata has {len(text):,} characters as JSON; the limit is {METADATA_LIMIT:,}.", hint="Trim it."
        )
    text = valid_unicode(text)
    if not may_hold_secret(text):
        return text
    # Read back: what is masked are the texts as a reader gets them, not as JSON escapes them.
    return json.dumps(mask_values(json.loads(text)), ensure_ascii=False, sort_keys=True, allow_nan=False)


def _check_nesting(value: object) -> bool:
    """Raise `InvalidInput` for metadata nested too deep, or a NUL in any of its texts. True when every name is a text."""
    level: list[object] = [value]
    named_by_text = True
    for _ in range(METADATA_DEPTH):
        below: list[object] = []
        for one in level:
            if isinstance(one, Mapping):
                named_by_text = named_by_text and all(isinstance(name, str) for name in one)
                below += [*one.keys(), *one.values()]
            elif isinstance(one, list | tuple):
                below += one
            elif isinstance(one, str) and "\0" in one:
                raise InvalidInput("metadata contains a NUL character.", hint="Remove it.")
        if not below:
            return named_by_text
        level = below
    raise InvalidInput(f"metadata is nested deeper than {METADATA_DEPTH} levels.", hint="Make it flatter.")


def counted(count: int, one: str, many: str) -> str:
    """A number with its noun, as in "1 memory" and "2,000 memories"."""
    return f"{count:,} {one if count == 1 else many}"


def check_count(value: object, *, name: str, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput(f"{name} must be a whole number, not {type(value).__name__}.", hint=f"Use {low} to {high}.")
    if not low <= value <= high:
        raise InvalidInput(f"{name} is {value}; it must lie between {low} and {high}.", hint=f"Use {low} to {high}.")
    return value


def is_id(text: str) -> bool:
    """Whether the text has the form of an id: a UUID in lower case, 32 hexadecimal digits and four dashes."""
    return _ID.fullmatch(text) is not None


@enforces("INV-022")
def check_id(value: object) -> str:
    """An id in its one form. What has another form names no memory: nothing behind this ever sees it.

    Raises `InvalidInput` for a non-string, an empty or over-long one or a NUL, `NotFound` for any other text.
    """
    if not isinstance(value, str):
        raise InvalidInput(
            f"id must be a string, not {type(value).__name__}.", hint="Use an id from a search or a list."
        )
    if not value or len(value) > NAME_LIMIT or "\0" in value:
        raise InvalidInput("id is empty or malformed.", hint="Use an id from a search or a list.")
    wanted = value.lower()
    if not is_id(wanted):
        shown = mask(valid_unicode(value))[:80]
        raise NotFound(f"There is no memory {shown!r}.", id=shown)
    return wanted


@dataclass(frozen=True)
class NewMemory:
    """An add that has passed every check. `at_us` is UTC microseconds; `digest` has 32 bytes and is that of the masked
    text; `masked` tells whether a secret was masked in any field.
    """

    text: str
    digest: bytes
    user: str
    project: str
    session: str
    speaker: str
    at_us: int
    tags: tuple[str, ...]
    metadata: str
    source: str
    key: str | None
    masked: bool = False

    @classmethod
    @enforces("INV-020")
    def checked(
        cls,
        text: object,
        *,
        user: object = "",
        project: object = "",
        session: object = "",
        speaker: object = "",
        at: object = None,
        tags: object = (),
        metadata: object = None,
        source: object = None,
        key: object = None,
    ) -> NewMemory:
        """Check every field and mask it. Raises `InvalidInput` or one of its kinds."""
        good = check_text(text)
        memory = cls(
            text=good,
            digest=text_digest(good),
            user=check_name(user, name="user"),
            project=check_name(project, name="project"),
            session=check_name(session, name="session"),
            speaker=check_name(speaker, name="speaker"),
            at_us=now_us() if at is None else to_us(at, name="at"),
            tags=check_tags(tags),
            metadata=check_metadata(metadata),
            source="" if source is None else check_name(source, name="source"),
            key=None if key is None else check_key(key),
        )
        kept = (good, memory.user, memory.project, memory.session, memory.speaker, memory.source, memory.metadata)
        labels = count_labels(*kept, *memory.tags)
        if labels and labels > count_labels(*map(str, (text, user, project, session, speaker, source, tags, metadata))):
            return replace(memory, masked=True)
        return memory


@dataclass(frozen=True)
class Filters:
    """Which memories a search or list may return. None means any; "" means the default scope alone."""

    user: str | None = None
    project: str | None = None
    session: str | None = None
    tags: tuple[str, ...] = ()
    since_us: int | None = None
    until_us: int | None = None
    as_of_us: int | None = None

    @classmethod
    def checked(
        cls,
        *,
        user: object = None,
        project: object = None,
        session: object = None,
        tags: object = None,
        since: object = None,
        until: object = None,
        as_of: object = None,
    ) -> Filters:
        """Check every filter. Raises `InvalidInput`, also for a range that ends before it begins."""

        def moment(value: object, name: str) -> int | None:
            return None if value is None else to_us(value, name=name)

        since_us, until_us = moment(since, "since"), moment(until, "until")
        if since_us is not None and until_us is not None and until_us < since_us:
            raise InvalidInput("until lies before since.", hint="Ranges are since <= at < until.")
        return cls(
            user=None if user is None else check_name(user, name="user"),
            project=None if project is None else check_name(project, name="project"),
            session=None if session is None else check_name(session, name="session"),
            tags=() if tags is None else check_tags(tags),
            since_us=since_us,
            until_us=until_us,
            as_of_us=moment(as_of, "as_of"),
        )


@dataclass(frozen=True)
class Record:
    """A memory as stored. `id` is a UUIDv7, so ids sort by creation. Times are UTC.

    `created` is True only on the answer to the add that stored it; `sources` counts the adds that said this text;
    `degraded` says what an add had to leave for later, `masked` that a secret was masked in what an add or update gave.
    """

    id: str
    text: str
    user: str
    project: str
    session: str
    speaker: str
    at: dt.datetime
    created_at: dt.datetime
    updated_at: dt.datetime
    tags: tuple[str, ...]
    metadata: Mapping[str, Any]
    source: str
    revision: int
    sources: int = 1
    created: bool = False
    degraded: tuple[str, ...] = ()
    masked: bool = False

    def as_revision(self, text: str, revision: int) -> Record:
        """This memory with the text of an earlier revision."""
        return replace(self, text=text, revision=revision)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready; times as ISO 8601 in UTC."""
        return {
            "id": self.id,
            "text": self.text,
            "user": self.user,
            "project": self.project,
            "session": self.session,
            "speaker": self.speaker,
            "at": _iso(self.at),
            "created_at": _iso(self.created_at),
            "updated_at": _iso(self.updated_at),
            "tags": list(self.tags),
            "metadata": dict(self.metadata),
            "source": self.source,
            "revision": self.revision,
            "sources": self.sources,
        }


@dataclass(frozen=True)
class Hit:
    """A memory found. `score` lies in [0, 1]; `why` is filled with `explain=True`."""

    record: Record
    score: float
    why: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def text(self) -> str:
        return self.record.text

    def as_dict(self) -> dict[str, Any]:
        answer = {**self.record.as_dict(), "score": self.score}
        if self.why:
            answer["why"] = dict(self.why)
        return answer


class Hits(list[Hit]):
    """The hits of one search, best first. `degraded` says what the search had to do without; empty when nothing."""

    def __init__(self, hits: Iterable[Hit], *, degraded: Iterable[str] = ()) -> None:
        super().__init__(hits)
        self.degraded = tuple(degraded)


@dataclass(frozen=True)
class Forgotten:
    """The receipt of a forget: `erased` once no byte is left in database or WAL, else `waiting_for` says why not.

    `remains` names files that may hold the memory too and are not the store's to change: backups, exports, what was kept
    aside of a damaged store.
    """

    id: str
    forgotten: bool
    erased: bool
    waiting_for: tuple[str, ...] = ()
    remains: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "forgotten": self.forgotten,
            "erased": self.erased,
            "waiting_for": list(self.waiting_for),
            "remains": [shown_path(path) for path in self.remains],
        }


@dataclass(frozen=True)
class Page:
    """One page of a list, newest first. `total` counts all that match the filters."""

    memories: tuple[Record, ...]
    total: int

    def __iter__(self) -> Iterator[Record]:
        return iter(self.memories)

    def __len__(self) -> int:
        return len(self.memories)

    def as_dict(self) -> dict[str, Any]:
        return {"memories": [record.as_dict() for record in self.memories], "total": self.total}


def _iso(moment: dt.datetime) -> str:
    return to_iso(to_us(moment, name="time"))
