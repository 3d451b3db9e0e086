"""The portable form of a store: every memory with all that makes it what it is, as JSON Lines.

Owns: the format, version 1. A file is UTF-8 with LF, one JSON object a line, in this order:

    {"holdtrue": "export", "version": 1, "created_at": TIME, "schema": 2}
    {"tombstone": {"id": ID, "forgotten_at": TIME}}
    {"memory": {"id": ID, "text": "...", "user": "", "project": "", "session": "", "speaker": "", "at": TIME,
      "valid_from": TIME, "created_at": TIME, "updated_at": TIME, "tags": ["..."], "metadata": {}, "source": "",
      "revision": 2, "sources": [{"source": "", "times": 1, "last": TIME}], "keys": [{"key": "...", "digest": HEX}],
      "revisions": [{"revision": 1, "text": "...", "from": TIME, "until": TIME}]}}
    {"end": {"memories": 1, "tombstones": 1}}

Tombstones come first and by id, so that whoever reads a file from the top has forgotten before he remembers; memories in
the order in which they were stored. TIME is ISO 8601 in UTC with microseconds, which is all that a store keeps. `digest`
is the SHA-256 of the NFC text with which the key was given; `revisions` are the texts that updates replaced, with the time
each was valid. A memory whose line would be longer than a million characters says `"more": N`, and N lines
`{"more": {"id": ID, "sources": [...], "keys": [...], "revisions": [...]}}` bring the rest. The last line counts, so that a
file which was cut is noticed.

Vectors are derived and left out; with them the header has `"embedder": KEY` and a memory `"vector"`: base64 of its float32
values, little-endian. The same state gives the same bytes, but for the header's time.

Read as well: lines `{"text": "...", ...}` with the fields of an add, and the memory file of the MCP reference server, with
lines of `"type": "entity"` or `"relation"`.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from holdtrue.clock import MAX_US, MIN_US, clamped, now_us, to_iso, to_us
from holdtrue.errors import ExportTooNew, HoldTrueError, InvalidInput
from holdtrue.masking import mask, mask_values
from holdtrue.records import (
    COUNT_LIMIT,
    METADATA_LIMIT,
    NAME_LIMIT,
    TAG_LIMIT,
    TAGS_LIMIT,
    TEXT_LIMIT,
    NewMemory,
    check_id,
    check_key,
    check_metadata,
    check_name,
    check_text,
    new_id,
    text_digest,
    valid_unicode,
)
from holdtrue.store.vectors import BYTES

VERSION = 1
LINE_CHARACTERS = 1_000_000  # whatever they are in bytes, that is well below what is read as one line
MEMORY_FILE = "memory-file"  # the source of what comes from the MCP reference server

_LISTS = ("sources", "keys", "revisions")
_ADD_FIELDS = frozenset(
    {"text", "user", "project", "session", "speaker", "at", "tags", "metadata", "source", "key"},
)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_DIGEST = re.compile("[0-9a-f]{64}")
# The limits of an add hold for what is given; what is stored may be longer, as masking and NFC make it.
_LABEL = re.compile(r"\[masked: [a-z0-9-]+\]")
_GROWTH = 8

Source = tuple[str, int, int]  # source, times, last_us
Key = tuple[str, bytes]  # key, digest
Revision = tuple[int, str, int, int]  # revision, text, from_us, until_us


@dataclass(slots=True)
class Portable:
    """One memory as a file holds it, checked like an add. Times are UTC microseconds.

    `exact` is False for a record that brings a text and not a memory's whole state. `more` counts the lines that are to
    follow; `vector` is as long as a vector of the store, or None.
    """

    memory: NewMemory
    id: str
    valid_from_us: int
    created_us: int
    updated_us: int
    revision: int
    sources: list[Source]
    keys: list[Key] = field(default_factory=list)
    revisions: list[Revision] = field(default_factory=list)
    vector: bytes | None = None
    more: int = 0
    exact: bool = True

    def problem(self) -> str:
        """Why the lists of this memory cannot stand in a store, as a sentence; "" when they can."""
        if not self.revisions and len(self.sources) < 2 and len(self.keys) < 2:
            return ""
        for name, entries in (("source", self.sources), ("key", self.keys), ("revision", self.revisions)):
            if len(entries) > 1 and len({entry[0] for entry in entries}) < len(entries):
                return f"the memory has the same {name} twice"
        if self.revisions and max(number for number, *_ in self.revisions) >= self.revision:
            return "a replaced text has the number of the present revision or a later one"
        return ""


@dataclass(frozen=True, slots=True)
class Tombstone:
    """That a memory was forgotten, and when: nothing else is left of it."""

    id: str
    forgotten_us: int


@dataclass(frozen=True, slots=True)
class Header:
    """The first line. `embedder` is the key of the one that made the vectors of the file; "" where there are none."""

    embedder: str


@dataclass(frozen=True, slots=True)
class More:
    """What did not fit into the line of the memory before it."""

    id: str
    sources: list[Source]
    keys: list[Key]
    revisions: list[Revision]


@dataclass(frozen=True, slots=True)
class End:
    """The last line: how many records of each kind the file holds."""

    memories: int
    tombstones: int


Part = Header | Tombstone | Portable | More | End


# -- writing -----------------------------------------------------------------------------------------------------------

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
_quoted = json.encoder.encode_basestring  # what that encoder writes a string with


def iso(moment_us: int) -> str:
    """As `to_iso`, from parts that are remembered. A time that no import would take becomes the nearest one."""
    second, microsecond = divmod(clamped(moment_us), 1_000_000)
    day, second = divmod(second, 86_400)
    return f"{_day(day)}T{_clock(second)}.{microsecond:06d}Z"


@lru_cache(maxsize=4_096)
def _day(number: int) -> str:
    return (_EPOCH + dt.timedelta(days=number)).date().isoformat()


@lru_cache(maxsize=4_096)
def _clock(second: int) -> str:
    return f"{second // 3_600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"


def line(value: Mapping[str, Any]) -> bytes:
    return _encode(value).encode() + b"\n"


def header(schema: int, embedder: str) -> bytes:
    """`embedder` is "" for a file without vectors."""
    made = {"holdtrue": "export", "version": VERSION, "created_at": to_iso(now_us()), "schema": schema}
    return line({**made, "embedder": embedder} if embedder else made)


def memory_lines(
    texts: Sequence[str],
    times_us: Sequence[int],
    *,
    tags: Sequence[str],
    metadata: str,
    source: str,
    revision: int,
    sources: Sequence[Sequence[Any]],
    keys: Sequence[Sequence[Any]],
    revisions: Sequence[Sequence[Any]],
    vector: bytes | None,
) -> bytes:
    """The line of one memory, and those with what does not fit into it.

    `texts` are its id, text, user, project, session and speaker; `times_us` its at, valid_from, created_at and updated_at;
    the entries of the lists are `Source`, `Key` and `Revision`. Written out by hand: an encoder of objects takes as long as
    all the rest of an export.
    """
    id_, text, user, project, session, speaker = map(_quoted, texts)
    at, valid_from, created_at, updated_at = map(iso, times_us)
    told = ", ".join([f'{{"source": {_quoted(name)}, "times": {n}, "last": "{iso(us)}"}}' for name, n, us in sources])
    named = ", ".join([f'{{"key": {_quoted(key)}, "digest": "{digest.hex()}"}}' for key, digest in keys])
    replaced = ", ".join(
        [
            f'{{"revision": {n}, "text": {_quoted(old)}, "from": "{iso(began)}", "until": "{iso(ended)}"}}'
            for n, old, began, ended in revisions
        ]
    )
    memory = (
        f'{{"id": {id_}, "text": {text}, "user": {user}, "project": {project}, "session": {session}, '
        f'"speaker": {speaker}, "at": "{at}", "valid_from": "{valid_from}", "created_at": "{created_at}", '
        f'"updated_at": "{updated_at}", "tags": {_encode(tags) if tags else "[]"}, '
        f'"metadata": {metadata if metadata == "{}" else _encode(json.loads(metadata))}, "source": {_quoted(source)}, '
        f'"revision": {revision}, "sources": [{told}], "keys": [{named}], "revisions": [{replaced}]'
        + ("}" if vector is None else f', "vector": "{vector_text(vector)}"}}')
    )
    if len(memory) <= LINE_CHARACTERS:
        return f'{{"memory": {memory}}}\n'.encode()
    whole = json.loads(memory)
    parts = list(_parts(whole))
    first = {**whole, **{name: [] for name in _LISTS}, "more": len(parts)}
    return line({"memory": first}) + b"".join(line({"more": {"id": whole["id"], **part}}) for part in parts)


def _parts(memory: Mapping[str, Any]) -> Iterator[dict[str, list[Any]]]:
    part: dict[str, list[Any]] = {}
    length = 0
    for name in _LISTS:
        for entry in memory[name]:
            size = len(_encode(entry))
            if part and length + size > LINE_CHARACTERS:
                yield part
                part, length = {}, 0
            part.setdefault(name, []).append(entry)
            length += size
    if part:
        yield part


def vector_text(blob: bytes) -> str:
    return base64.b64encode(blob).decode("ascii")


# -- reading -----------------------------------------------------------------------------------------------------------


def parts(value: object) -> Sequence[Part | InvalidInput]:
    """What one JSON value of a file says; in place of what cannot be taken, why not.

    Raises `ExportTooNew` for the header of a version that this program does not know.
    """
    if not isinstance(value, dict):
        return (InvalidInput(f"the record is a {_kind(value)}, not an object"),)
    for name, read in _READERS.items():
        if name in value:
            return (_tried(read, value),)
    if value.get("type") in ("entity", "relation"):
        return tuple(_memory_file(value))
    if "text" in value:
        return (_tried(_plain, value),)
    names = ", ".join(sorted(map(str, value))[:5])[:80]
    return (InvalidInput(f"the record is of no known kind: its fields are {names or 'none'}"),)


def _tried(read: Callable[[dict[str, Any]], Part], value: dict[str, Any]) -> Part | InvalidInput:
    try:
        return read(value)
    except ExportTooNew:
        raise
    except KeyError as error:
        return InvalidInput(f"the record has no {error.args[0]}")
    except TypeError:  # a list or an object in the place of a time: what is remembered must be hashable
        return InvalidInput("a time is not a string")
    except HoldTrueError as error:  # a malformed id is NotFound
        return InvalidInput(error.message.rstrip("."))


def _header(value: dict[str, Any]) -> Header:
    if value["holdtrue"] != "export":
        raise InvalidInput("the record says holdtrue, but is no header of an export")
    version = value.get("version")
    if version != VERSION or isinstance(version, bool):
        raise ExportTooNew(f"The file has version {str(version)[:20]!r} of the format; this program reads {VERSION}.")
    embedder = value.get("embedder", "")
    return Header(embedder if isinstance(embedder, str) else "")


def _tombstone(value: dict[str, Any]) -> Tombstone:
    inner = _object(value, "tombstone")
    return Tombstone(check_id(inner["id"]), _time(inner["forgotten_at"]))


def _end(value: dict[str, Any]) -> End:
    inner = _object(value, "end")
    return End(_count(inner["memories"], "memories"), _count(inner["tombstones"], "tombstones"))


def _more(value: dict[str, Any]) -> More:
    inner = _object(value, "more")
    return More(check_id(inner["id"]), _sources(inner), _keys(inner), _revisions(inner))


def _exact(value: dict[str, Any]) -> Portable:
    inner = _object(value, "memory")
    text = _text(inner["text"])
    metadata = inner.get("metadata")
    at_us = _time(inner["at"])
    return Portable(
        memory=NewMemory(
            text=text,
            digest=text_digest(text),
            user=_name(inner.get("user", ""), "user"),
            project=_name(inner.get("project", ""), "project"),
            session=_name(inner.get("session", ""), "session"),
            speaker=_name(inner.get("speaker", ""), "speaker"),
            at_us=to_us(at_us, name="at"),
            tags=_tags(inner.get("tags", ())),
            metadata="{}" if metadata == {} else _metadata(metadata),
            source=_name(inner.get("source", ""), "source"),
            key=None,
        ),
        id=check_id(inner["id"]),
        valid_from_us=_time(inner["valid_from"]),
        created_us=_time(inner["created_at"]),
        updated_us=_time(inner["updated_at"]),
        revision=_count(inner["revision"], "revision", low=1),
        sources=_sources(inner),
        keys=_keys(inner),
        revisions=_revisions(inner),
        vector=_vector(inner["vector"]) if "vector" in inner else None,
        more=_count(inner["more"], "more") if "more" in inner else 0,
    )


def _plain(value: dict[str, Any]) -> Portable:
    unknown = sorted(str(name)[:40] for name in value if name not in _ADD_FIELDS)
    if unknown:
        raise InvalidInput(f"the record has unknown fields: {', '.join(unknown[:5])}")
    return _of_add(NewMemory.checked(**value))


def _of_add(memory: NewMemory) -> Portable:
    now = now_us()
    return Portable(
        memory=memory,
        id=new_id(),
        valid_from_us=memory.at_us,
        created_us=now,
        updated_us=now,
        revision=1,
        sources=[(memory.source, 1, now)],
        keys=[] if memory.key is None else [(memory.key, memory.digest)],
        exact=False,
    )


def _memory_file(value: dict[str, Any]) -> Iterator[Part | InvalidInput]:
    """The records of the MCP reference memory server, each observation and each relation as a memory of its own.

    https://github.com/modelcontextprotocol/servers, src/memory: one JSON object a line.
    """
    relation = value["type"] == "relation"
    names = ("from", "relationType", "to") if relation else ("name", "entityType")
    missing = [name for name in names if not isinstance(value.get(name), str)]
    observations = value.get("observations", [])
    if missing or not isinstance(observations, list):
        yield InvalidInput(f"the {value['type']} has no {' and no '.join(missing) or 'list of observations'}")
        return
    facts = {name: value[name] for name in names}
    if relation:
        yield _tried(_of_fact, {"text": " ".join(facts.values()), "metadata": facts})
        return
    head = f"{facts['name']} ({facts['entityType']})" if facts["entityType"] else facts["name"]
    for observation in observations:
        if isinstance(observation, str):
            yield _tried(_of_fact, {"text": f"{head}: {observation}", "metadata": facts})
        else:
            yield InvalidInput(f"an observation is a {_kind(observation)}, not a string")
    if not observations:
        yield _tried(_of_fact, {"text": head, "metadata": facts})


def _of_fact(fields: dict[str, Any]) -> Portable:
    # The key knows the fact again after its memory was updated, so that a second import stores nothing.
    told = _encode([fields["text"], fields["metadata"]]).encode("utf-8", "surrogatepass")
    key = f"{MEMORY_FILE}/{hashlib.sha256(told).hexdigest()[:32]}"
    return _of_add(NewMemory.checked(**fields, source=MEMORY_FILE, key=key))


_READERS: dict[str, Callable[[dict[str, Any]], Part]] = {
    "memory": _exact,
    "tombstone": _tombstone,
    "more": _more,
    "end": _end,
    "holdtrue": _header,
}


# -- fields ------------------------------------------------------------------------------------------------------------


def _object(value: dict[str, Any], name: str) -> dict[str, Any]:
    inner = value[name]
    if not isinstance(inner, dict):
        raise InvalidInput(f"{name} is a {_kind(inner)}, not an object")
    return inner


def _text(value: object, name: str = "text") -> str:
    if isinstance(value, str) and TEXT_LIMIT < len(value) <= _GROWTH * TEXT_LIMIT:
        check_text(_LABEL.sub("", value), name=name)
        return mask(valid_unicode(value))
    return check_text(value, name=name)


def _name(value: object, name: str, limit: int = NAME_LIMIT) -> str:
    if value == "":
        return ""
    return _known_name(value, name, limit) if isinstance(value, str) else check_name(value, name=name)


@lru_cache(maxsize=4_096)
def _known_name(value: str, name: str, limit: int) -> str:
    may_have_grown = not value.isascii() or _LABEL.search(value) is not None
    return check_name(value, name=name, limit=_GROWTH * limit if may_have_grown else limit)


def _tags(value: object) -> tuple[str, ...]:
    if not value:
        return ()
    if not isinstance(value, list) or len(value) > TAGS_LIMIT:
        raise InvalidInput(f"tags is not a list of at most {TAGS_LIMIT} strings")
    tags = {_name(tag, "each tag", TAG_LIMIT) for tag in value}
    if any(not tag.strip() for tag in tags):
        raise InvalidInput("a tag is blank")
    return tuple(sorted(tags))


def _metadata(value: object) -> str:
    try:
        return check_metadata(value)
    except InvalidInput:
        text = json.dumps(value, ensure_ascii=False, sort_keys=True)
        shorter = _LABEL.sub("", text)
        if len(shorter) == len(text) or len(text) > _GROWTH * METADATA_LIMIT:
            raise
        check_metadata(json.loads(shorter))
        return json.dumps(mask_values(json.loads(valid_unicode(text))), ensure_ascii=False, sort_keys=True)


def _count(number: object, name: str, *, low: int = 0) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= COUNT_LIMIT:
        raise InvalidInput(f"{name} is not a whole number from {low} to {COUNT_LIMIT}")
    return number


@lru_cache(maxsize=4_096)
def _time(text: object) -> int:
    """Exact, and within the limits of an add: what lies outside could be stored, and then neither read nor exported."""
    if not isinstance(text, str):
        raise InvalidInput(f"a time is a {_kind(text)}, not a string")
    try:
        parsed = dt.datetime.fromisoformat(text)
        if parsed.tzinfo is None:
            raise InvalidInput(f"{text[:40]!r} is a time without an offset")
        moment = (parsed - _EPOCH) // _MICROSECOND
    except (ValueError, OverflowError) as error:
        raise InvalidInput(f"{text[:40]!r} is not a time in ISO 8601") from error
    if not MIN_US <= moment <= MAX_US:
        raise InvalidInput(f"{text[:40]!r} lies outside the years 1 to 9999")
    return moment


def _entries(value: dict[str, Any], name: str) -> Sequence[dict[str, Any]]:
    entries = value.get(name, ())
    if entries == () or entries == []:
        return ()
    if type(entries) is list and (type(entries[0]) is dict if len(entries) == 1 else set(map(type, entries)) == {dict}):
        return entries
    raise InvalidInput(f"{name} is not a list of objects")


def _sources(value: dict[str, Any]) -> list[Source]:
    return [
        (_name(entry["source"], "source"), _count(entry["times"], "times", low=1), _time(entry["last"]))
        for entry in _entries(value, "sources")
    ]


def _keys(value: dict[str, Any]) -> list[Key]:
    return [(check_key(entry["key"]), _digest(entry["digest"])) for entry in _entries(value, "keys")]


def _digest(value: object) -> bytes:
    if not isinstance(value, str) or _DIGEST.fullmatch(value) is None:
        raise InvalidInput("the digest of a key is not 64 hexadecimal digits")
    return bytes.fromhex(value)


def _revisions(value: dict[str, Any]) -> list[Revision]:
    return [
        (
            _count(entry["revision"], "revision", low=1),
            _text(entry["text"], "a replaced text"),
            _time(entry["from"]),
            _time(entry["until"]),
        )
        for entry in _entries(value, "revisions")
    ]


def _vector(value: object) -> bytes | None:
    """The bytes of a vector; None for what is none: it is made again from the text."""
    if not isinstance(value, str):
        return None
    try:
        blob = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return None
    return blob if len(blob) == BYTES else None


def _kind(value: object) -> str:
    names = {dict: "object", list: "list", str: "string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "number")
