"""`Memory`: the one object that every door uses.

It checks what comes in, makes vectors outside every lock, hands writes to the store with a deadline, and searches one
snapshot. Without a model it degrades and says so: a memory is stored with its vector pending, a search goes by words.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from holdtrue import failpoints, records
from holdtrue.clock import Deadline
from holdtrue.config import Settings, store_folder
from holdtrue.errors import InvalidInput, StoreMissing
from holdtrue.models.slot import ModelSlot
from holdtrue.records import Filters, Forgotten, Hits, NewMemory, Page, Record
from holdtrue.search import hybrid
from holdtrue.search.query import parse
from holdtrue.store.memories import Addition
from holdtrue.store.sqlite import SQLiteStore
from holdtrue.store.vectors import Vector

if TYPE_CHECKING:
    from holdtrue.models.embedder import Embedder
    from holdtrue.store.protocol import Store
    from holdtrue.store.view import View

_ADD_FIELDS = ("text", "user", "project", "session", "speaker", "at", "tags", "metadata", "source", "key")
_PENDING_BATCH = 64
_CATCH_UP_WAIT_S = 1.0

Records = list[Record]
Degraded = list[str]


class Memory:
    """An agent's memory in a folder, shared by threads and processes. A context manager.

    `path` is the folder (default: HOLDTRUE_HOME, else the platform's data folder); it is made at the first use.
    `tier` names the embedder: "default" or "base". Opening loads no model and touches no file.

    Every method may raise a `HoldTrueError`; its code is stable, and an error means that the call changed nothing.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, tier: str | None = None) -> None:
        self._settings = Settings.from_environment()
        folder = store_folder(path, self._settings)
        self._store: Store = SQLiteStore(folder)
        self._tier = tier or self._settings.tier
        self._model = ModelSlot(self._load_embedder, self.embed_pending)
        self._looked_behind = False
        self.path = folder

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def exists(self) -> bool:
        """Whether there is a store at the path already."""
        return self._store.exists()

    def open(self) -> None:
        """Make the store if there is none, so that a bad path is told now and not at the first add."""
        self._store.open(self._deadline())

    def warm(self) -> None:
        """Start loading the model in a thread of its own, so that the first search or add finds it there."""
        self._model.start()

    def add(
        self,
        text: str,
        *,
        user: str = "",
        project: str = "",
        session: str = "",
        speaker: str = "",
        at: Any = None,
        tags: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
        source: str | None = None,
        key: str | None = None,
    ) -> Record:
        """Store a memory and return it once it is durable.

        The same NFC text of one user and project is one memory: the answer to a second add has `created` False and
        counts its source. `key` makes an add idempotent. `at` is a datetime or ISO 8601 text, now by default.
        Raises `InvalidInput` and its kinds, `KeyConflict`, or a `StoreError`; then nothing was stored.
        """
        memory = NewMemory.checked(
            text,
            user=user,
            project=project,
            session=session,
            speaker=speaker,
            at=at,
            tags=tags,
            metadata=metadata,
            source=source,
            key=key,
        )
        return self._add([memory])[0]

    def add_many(self, items: Iterable[str | Mapping[str, Any]]) -> Records:
        """Store up to 1,000 memories of 1,000,000 characters in all, all or none.

        Each item is a text or a mapping of `add`'s arguments.
        """
        if isinstance(items, str | bytes | Mapping):
            raise InvalidInput(
                f"items must be a list, not {type(items).__name__}.", hint='Write ["one", {"text": "two"}].'
            )
        checked = []
        for number, item in enumerate(items):
            if number >= records.BATCH_LIMIT:
                raise InvalidInput(f"More than {records.BATCH_LIMIT:,} items.", hint="Split them into several calls.")
            fields = {"text": item} if isinstance(item, str) else item
            if not isinstance(fields, Mapping):
                raise InvalidInput(
                    f"Item {number} is a {type(item).__name__}.", hint="Pass a text or a mapping.", item=number
                )
            unknown = sorted(str(name) for name in fields if name not in _ADD_FIELDS)
            if unknown or "text" not in fields:
                problem = f"has unknown fields: {', '.join(unknown)}" if unknown else "has no text"
                raise InvalidInput(
                    f"Item {number} {problem}.", hint=f"The fields are {', '.join(_ADD_FIELDS)}.", item=number
                )
            try:
                checked.append(NewMemory.checked(**fields))
            except InvalidInput as error:
                raise type(error)(f"Item {number}: {error.message}", hint=error.hint, item=number) from error
        characters = sum(len(memory.text) for memory in checked)
        if characters > records.BATCH_CHARACTERS:
            raise InvalidInput(
                f"The items have {characters:,} characters in all; the limit is {records.BATCH_CHARACTERS:,}.",
                hint="Split them into several calls.",
            )
        return self._add(checked) if checked else []

    def search(
        self,
        query: str,
        *,
        limit: int = 10,
        user: str | None = None,
        project: str | None = None,
        session: str | None = None,
        tags: Sequence[str] | None = None,
        since: Any = None,
        until: Any = None,
        as_of: Any = None,
        explain: bool = False,
    ) -> Hits:
        """The memories that answer a query best, best first. Any text is a literal query.

        None for a filter means any, "" the default scope; tags must all be there; `since <= at < until`; `as_of` answers
        with what was valid then. Waits for no writer and no lock.
        """
        parsed = parse(query)
        limit = records.check_count(limit, name="limit", low=1, high=records.SEARCH_LIMIT)
        filters = Filters.checked(
            user=user, project=project, session=session, tags=tags, since=since, until=until, as_of=as_of
        )
        # The vector is made before the snapshot begins: no read transaction is open while a model loads.
        vector = self._vectors([parsed.text])[0] if parsed.telling else None
        degraded = [self._model.problem or "The model was not ready."] if parsed.telling and vector is None else []
        with self._read() as view:
            blob = None if vector is None else vector.blob
            if vector is not None and blob is not None and not vector.fits(view.embedder()):
                degraded.append("The vectors in the store were made by another model: this search goes by words.")
                blob = None
            if not degraded and view.pending(limit=1):
                degraded.append("Some memories wait for a vector and are found by their words alone.")
            found = hybrid.find(
                view, parsed, blob, filters, limit=limit, explain=explain, unrelated=self._model.unrelated
            )
        return Hits(found, degraded=degraded)

    def get(self, id: str) -> Record:  # noqa: A002 - the word of the contract
        """One memory by its id. Raises `NotFound`."""
        wanted = records.check_id(id)
        with self._read() as view:
            return view.get(wanted)

    def list(
        self,
        *,
        limit: int = 50,
        offset: int = 0,
        user: str | None = None,
        project: str | None = None,
        session: str | None = None,
        tags: Sequence[str] | None = None,
        since: Any = None,
        until: Any = None,
    ) -> Page:
        """A page of memories, newest first. `limit` up to 500."""
        limit = records.check_count(limit, name="limit", low=1, high=records.LIST_LIMIT)
        offset = records.check_count(offset, name="offset", low=0, high=2**62)
        filters = Filters.checked(user=user, project=project, session=session, tags=tags, since=since, until=until)
        with self._read() as view:
            return view.page(filters, limit=limit, offset=offset)

    def update(self, id: str, text: str) -> Record:  # noqa: A002
        """Give a memory another text. Raises `NotFound`, `TextConflict`, `InvalidInput` or a `StoreError`."""
        wanted, good = records.check_id(id), records.check_text(text)
        vector = self._vectors([good])[0]
        return self._told([self._store.update(wanted, good, vector, self._deadline())], [vector])[0]

    def forget(self, id: str) -> Forgotten:  # noqa: A002
        """Remove a memory for every reader, and its bytes from database and WAL as soon as no older reader pins them."""
        return self._store.forget(records.check_id(id), self._deadline())

    def status(self) -> dict[str, Any]:
        """What the store holds and what is degraded: `degraded` lists sentences, empty when all is well."""
        current = self._model.embedder(wait_s=self._settings.model_wait_s)
        degraded: Degraded = [self._model.problem] if self._model.problem else []
        answer: dict[str, Any] = {"store": str(self.path), "exists": self._store.exists(), "degraded": degraded}
        if not answer["exists"]:
            return answer
        with self._read() as view:
            counts = view.counts()
            answer |= {**counts, "schema_version": view.schema_version(), "embedder": view.embedder()}
        if current is not None and answer["embedder"] not in (None, current.identity.key):
            degraded.append(f"The vectors are of {answer['embedder']}, the tier makes {current.identity.key}.")
        if counts["pending_vectors"]:
            degraded.append(
                f"{counts['pending_vectors']} memories wait for a vector and are found by their words alone."
            )
        if counts["erasures_waiting"]:
            degraded.append(f"{counts['erasures_waiting']} erasures wait for a reader of an older state to finish.")
        return answer

    def verify(self) -> Sequence[str]:
        """Every damage or disagreement in the store; empty when it is sound."""
        self.open()
        return self._store.verify()

    def embed_pending(self) -> int:
        """Make the vectors that could not be made with their texts. Returns how many were."""
        done = 0
        while True:
            try:
                with self._store.read() as view:
                    waiting = view.pending(limit=_PENDING_BATCH)
            except StoreMissing:
                return done  # nothing waits there, and a thread in the background must not make a store
            vectors = self._vectors([text for _, text in waiting])
            given = 0
            for (seq, text), vector in zip(waiting, vectors, strict=True):
                if vector is not None:
                    given += self._store.complete_vector(seq, text, vector, self._deadline())
            done += given
            if given == 0:
                return done

    def close(self) -> None:
        """Finish what is queued and let go of the files. A second close does nothing."""
        self._model.finish(wait_s=_CATCH_UP_WAIT_S)
        self._store.close()

    # -- inside ----------------------------------------------------------------------------------------------------

    def _deadline(self) -> Deadline:
        return Deadline.after(self._settings.write_wait_s)

    @contextmanager
    def _read(self) -> Iterator[View]:
        """One snapshot; of a store that is made or brought up to date first where it must be.

        While another process makes the store, its file is there before its tables, so it is the reading that tells.
        """
        with ExitStack() as stack:
            try:
                view = stack.enter_context(self._store.read())
            except StoreMissing:
                self.open()
                view = stack.enter_context(self._store.read())
            yield view

    def _add(self, checked: Sequence[NewMemory]) -> Records:
        vectors = self._vectors([memory.text for memory in checked])
        additions = [Addition(*pair) for pair in zip(checked, vectors, strict=True)]
        # The patience is for other writers; what a model takes is no part of it.
        stored = self._store.add(additions, self._deadline())
        return self._told(stored, vectors)

    def _told(self, stored: Records, vectors: Sequence[Vector | None]) -> Records:
        """The records, each with what had to be put off for it."""
        if all(vector is not None for vector in vectors):
            if not self._looked_behind:
                # Another process may have put some off and ended before its model was there.
                self._looked_behind = True
                self._model.put_off()
            return stored
        problem = self._model.problem or "Its vector follows: the model was not ready in time."
        self._model.put_off()
        pairs = zip(stored, vectors, strict=True)
        # A memory that was there already has had its own vector since, or is waiting for it.
        return [
            replace(record, degraded=(problem,))
            if vector is None and (record.created or record.revision > 1)
            else record
            for record, vector in pairs
        ]

    def _load_embedder(self) -> Embedder:
        from holdtrue.models import load_embedder  # the first import of numpy and tokenizers hides behind it

        return load_embedder(self._tier)

    def _vectors(self, texts: Sequence[str]) -> Sequence[Vector | None]:
        vectors = self._model.embed(texts, wait_s=self._settings.model_wait_s)
        failpoints.hit("memory.embedded")
        return vectors
