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
from typing import TYPE_CHECKING, Any, BinaryIO, Self, cast

from holdtrue import failpoints, filesystem, records
from holdtrue.clock import Deadline
from holdtrue.config import Settings, look_up, store_folder
from holdtrue.errors import HoldTrueError, InvalidInput, SourceUnreadable, StoreMissing
from holdtrue.masking import count_labels
from holdtrue.models.slot import ModelSlot
from holdtrue.records import Filters, Forgotten, Hits, NewMemory, Page, Record
from holdtrue.search import envelope, hybrid
from holdtrue.search.query import parse
from holdtrue.store import backup as backups
from holdtrue.store import derived, importing
from holdtrue.store.checkpoint import TRANSACTION_BYTES
from holdtrue.store.derived import Rebuilt
from holdtrue.store.doctor import Check, Diagnosis
from holdtrue.store.memories import Addition
from holdtrue.store.sqlite import SQLiteStore
from holdtrue.store.vectors import DIMENSION, Vector

if TYPE_CHECKING:
    from holdtrue.models.embedder import Embedder
    from holdtrue.store.backup import BackupReceipt
    from holdtrue.store.damage import SetAside
    from holdtrue.store.draft import Advance
    from holdtrue.store.exporting import Exported
    from holdtrue.store.importing import Imported
    from holdtrue.store.protocol import Store
    from holdtrue.store.restore import RestoreReceipt
    from holdtrue.store.view import View

_ADD_FIELDS = ("text", "user", "project", "session", "speaker", "at", "tags", "metadata", "source", "key")
_PENDING_BATCH = 64
_CATCH_UP_WAIT_S = 1.0
_REBUILD_MODEL_WAIT_S = 60.0
_LOW_SPACE_BYTES = TRANSACTION_BYTES  # what one batch may need
_CLOSE_WAIT_S = 2.0

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
        self._store: Store = SQLiteStore(
            folder,
            wal_limit_bytes=int(self._settings.wal_limit_mib * 2**20),
            allow_network=self._settings.allow_network_store,
        )
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
            obstacle = "" if vector is None or blob is None else view.obstacle(vector)
            if obstacle:
                degraded.append(f"This search goes by words: {obstacle}.")
                blob = None
            if not degraded and view.pending(limit=1):
                degraded.append("Some memories wait for a vector and are found by their words alone.")
            found = hybrid.find(
                view, parsed, blob, filters, limit=limit, explain=explain, unrelated=self._model.unrelated
            )
        return Hits(found, degraded=degraded)

    def recall(
        self, query: str, *, budget_chars: int = envelope.DEFAULT_BUDGET, limit: int = 10, **filters: Any
    ) -> str:
        """What a search finds as a block for a prompt: quoted, labelled as data, at most `budget_chars` code points long.

        Nothing that is stored can close the block or pass for a part of it, see `holdtrue.search.envelope`. `filters` are
        those of `search`. Empty when nothing is found. Raises `InvalidInput` for a budget under 640.
        """
        envelope.check_budget(budget_chars)
        return envelope.render(self.search(query, limit=limit, **filters), budget_chars=budget_chars)

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
        record = self._told([self._store.update(wanted, good, vector, self._deadline())], [vector])[0]
        return replace(record, masked=True) if count_labels(good) > count_labels(text) else record

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
            answer["read_only"] = view.read_only()
            vectors_off = view.vectors_off()
        if answer["read_only"]:
            degraded.append("The store is read-only: this user cannot write there, so nothing new is remembered.")
        kind = filesystem.kind(self.path)
        if filesystem.is_network(kind):
            degraded.append(
                f"The store lies on a network file system or shared folder ({kind}): no other machine may use it."
            )
        free = filesystem.free_bytes(self.path)
        if free is not None and free < _LOW_SPACE_BYTES:
            degraded.append(
                f"The disk is nearly full ({free / 2**20:.1f} MiB are free): what is to be stored may be refused."
            )
        if vectors_off:
            degraded.append(f"Vectors are off, searches go by words: {vectors_off}")
        if current is not None and answer["embedder"] not in (None, current.identity.key):
            degraded.append(f"The vectors are of {answer['embedder']}, the tier makes {current.identity.key}.")
        elif current is not None and current.identity.dimension != DIMENSION:
            degraded.append(
                f"The tier makes vectors of {current.identity.dimension} dimensions ({current.identity.key}), the store"
                f" holds vectors of {DIMENSION}."
            )
        if counts["pending_vectors"]:
            degraded.append(
                f"{records.counted(counts['pending_vectors'], 'memory waits', 'memories wait')} for a vector and"
                " can be found by words alone."
            )
        if counts["erasures_waiting"]:
            degraded.append(
                f"{records.counted(counts['erasures_waiting'], 'erasure waits', 'erasures wait')} for a reader of an older"
                " state to end, for room on the disk, or for a process that can load sqlite-vec."
            )
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
                    waiting = [] if view.vectors_off() else view.pending(limit=_PENDING_BATCH)
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

    def doctor(self, *, progress: Advance | None = None) -> Diagnosis:
        """Examine the store as far as its damage lets it, and change nothing. `progress` is told how many checks are made.

        Raises `StoreMissing` where there is nothing to examine.
        """
        if not self._store.exists():
            raise StoreMissing(f"There is no store at {self.path}.")
        checks = self._store.examine(progress or _ignore)
        return Diagnosis((*checks, self._check_model(), self._check_settings()))

    def rebuild(self, names: Iterable[str] = ("all",), *, progress: Advance | None = None) -> Rebuilt:
        """Make derived data anew from the texts, while others read and write: "words", "vectors", "pending" or "all".

        Every memory has its words at each instant. What cannot be read is made anew as a whole: then vectors are awaited,
        and are made at once if there is a model. `progress` is called with the memories done so far and their total.
        Raises `InvalidInput` for an unknown name, or a `StoreError`; then a part may have been made anew.
        """
        wanted = [entry.short for entry in derived.chosen(names)]
        self.open()
        reset = self._store.broken(wanted)
        if reset:
            reset = tuple(entry.short for entry in derived.chosen(reset))
            self._store.reset_derived(reset, self._deadline())
        rest = [name for name in wanted if name not in reset]
        awaited = self._awaited() if "vectors" in wanted else 0  # what is not rebuilt may be unreadable
        done = self._rebuild_by_batches(rest, progress or _ignore) if rest else 0
        strays = self._store.purge_strays(rest, self._deadline()) if rest else 0
        vectors = self.embed_pending()
        if awaited:
            vectors = max(vectors, awaited - self._awaited())
        return Rebuilt(tuple(wanted), reset, done, strays, vectors, awaited)

    def set_aside(self, *, progress: Advance | None = None) -> SetAside:
        """Keep the bytes of a damaged store in `kept-aside`, begin a new one in its place, and bring over every memory that
        can still be read. No other handle of this process may be open on it. Raises `StoreSound` where nothing is damaged,
        or a `StoreError`; then nothing was changed.
        """
        done = self._store.set_aside(self._deadline(), progress or _ignore)
        self._model.put_off()  # every vector is awaited
        return done

    def backup(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        replace: bool = False,
        keep: int = backups.KEEP,
        progress: Advance | None = None,
    ) -> BackupReceipt:
        """Copy one committed state to a file of its own, while others read and write; return once it was read back.

        Without a path it goes to `backups` in the store's folder, where the newest `keep` stay. An existing file is
        replaced only with `replace`. `progress` is called with the pages copied so far and their total.
        Raises `TargetRefused`, `TargetExists`, `StoreMissing` or another `StoreError`; then there is nothing at the path
        that was not there before.
        """
        target = None if path is None else backups.given_path(path)
        keep = records.check_count(keep, name="keep", low=1, high=backups.KEEP_LIMIT)
        return self._store.back_up(
            target, wait_s=self._settings.write_wait_s, replace=replace, keep=keep, progress=progress
        )

    def restore(
        self,
        path: str | os.PathLike[str],
        *,
        backup: bool = True,
        keep: int = backups.KEEP,
        progress: Advance | None = None,
    ) -> RestoreReceipt:
        """Let the state of a backup take the place of the store's, at one instant for everyone who has it open.

        What was forgotten stays forgotten. With `backup` the state before is kept in `backups`, and the receipt names it;
        the newest `keep` stay there. A store that does not exist yet is made. One that is so damaged that it does not open
        is set aside first, as by `set_aside`, and the receipt tells of it.
        Raises `SourceUnreadable`, `StoreTooNew`, `StoreCorrupt`, `StoreUnusable` or another `StoreError`; then the store is
        as it was, or set aside, except for `OutcomeUnknown`.
        """
        given = backups.given_path(path)
        keep = records.check_count(keep, name="keep", low=1, high=backups.KEEP_LIMIT)
        receipt = self._store.restore(
            given, wait_s=self._settings.write_wait_s, save=backup, keep=keep, progress=progress
        )
        self._model.put_off()  # the backup may hold memories that wait for a vector
        return receipt

    def export(
        self,
        path: str | os.PathLike[str] | BinaryIO,
        *,
        replace: bool = False,
        vectors: bool = False,
        progress: Advance | None = None,
    ) -> Exported:
        """Write one committed state in its portable form, while others read and write: see `holdtrue.store.portable`.

        `path` is a file to be made, or an open binary stream. An existing file is replaced only with `replace`; `vectors`
        writes the vectors as well. `progress` is called with the memories written so far and their total.
        Raises `TargetRefused`, `TargetExists`, `StoreMissing` or another `StoreError`; then there is nothing at the path
        that was not there before.
        """
        named = isinstance(path, str | os.PathLike) or not hasattr(path, "write")
        target = backups.given_path(path) if named else cast("BinaryIO", path)
        return self._store.export(
            target, wait_s=self._settings.write_wait_s, replace=replace, vectors=vectors, progress=progress
        )

    def import_(self, path: str | os.PathLike[str] | BinaryIO, *, progress: Advance | None = None) -> Imported:
        """Take in the records of a file: an export, lines `{"text": ...}` with the fields of `add`, or the memory file of
        the MCP reference server. The file is only read.

        What is forgotten here stays forgotten, what the file says was forgotten is forgotten here, and what is here
        already is not doubled. A record that is no good is told with its line, and the others are taken. `progress` is
        called with the bytes read so far and their total.
        Raises `ExportTooNew` and `SourceUnreadable`. Unlike elsewhere, a `StoreError` means that the import stopped: what
        it had placed stays, and running it again finishes it.
        """
        if not isinstance(path, str | os.PathLike) and hasattr(path, "read"):
            return self._import(path, progress)
        source = backups.given_path(path)
        if self._store.owns(source):
            raise SourceUnreadable(
                f"{source} is a file of a store itself.", hint="Import what `holdtrue export` wrote."
            )
        with importing.open_source(source) as file:
            return self._import(file, progress)

    def close(self) -> None:
        """Finish what is queued and let go of the files, within 2 s. A second close does nothing.

        What is not finished by then is refused; afterwards nothing of this process writes the store.
        """
        deadline = Deadline.after(_CLOSE_WAIT_S)
        try:
            self._model.finish(wait_s=_CATCH_UP_WAIT_S)
        finally:
            self._store.close(deadline)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _rebuild_by_batches(self, names: Sequence[str], progress: Advance) -> int:
        with_model = any(entry.needs_model for entry in derived.chosen(names))
        if with_model:
            self._model.embedder(wait_s=_REBUILD_MODEL_WAIT_S)
        with self._store.read() as view:
            total = view.counts()["memories"]
        seen = done = last = 0
        while batch := self._store.sources_after(last):
            sources = [source for source, _, _ in batch]
            if with_model:
                for source, vector in zip(sources, self._vectors([text for _, text, _ in batch]), strict=True):
                    source.vector = vector
            digests = [digest for _, _, digest in batch]
            done += self._store.rebuild_derived(sources, digests, names, self._deadline())
            last, seen = sources[-1].seq, seen + len(batch)
            progress(seen, max(total, seen))
        return done

    def _awaited(self) -> int:
        with self._store.read() as view:
            return view.counts()["pending_vectors"]

    def _check_model(self) -> Check:
        current = self._model.embedder(wait_s=self._settings.model_wait_s)
        if current is None:
            problem = self._model.problem or "The model was not ready in time."
            return Check("model", "degraded", problem, "Texts are found by words until it is there.")
        try:
            with self._store.read() as view:
                recorded = view.embedder()
        except HoldTrueError as error:
            return Check("model", "unknown", f"The model of the vectors could not be looked at: {error.message}")
        if recorded not in (None, current.identity.key):
            says = f"The vectors are of {recorded}, the tier makes {current.identity.key}: searches go by words."
            return Check("model", "degraded", says, "Set the tier that made them.")
        return Check("model", "ok", f"The tier makes vectors of {current.identity.key}, as the store holds.")

    def _check_settings(self) -> Check:
        problems = look_up().problems
        if problems:
            advice = "Correct them; `holdtrue config` shows where each setting comes from."
            return Check("settings", "degraded", " ".join(problems), advice)
        return Check("settings", "ok", "Every setting is understood.")

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
        stored = self._told(self._store.add(additions, self._deadline()), vectors)
        if not any(memory.masked for memory in checked):
            return stored
        return [replace(record, masked=memory.masked) for record, memory in zip(stored, checked, strict=True)]

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

    def _import(self, file: BinaryIO, progress: Advance | None) -> Imported:
        receipt = importing.import_all(
            file,
            embed=self._vectors,
            held=self._held,
            place=lambda batch: self._store.place(batch, self._deadline()),
            left=self._store.left_since,
            space=self._space,
            total_bytes=importing.size_of(file),
            progress=progress,
        )
        if not receipt.put_off:
            return receipt
        self._model.put_off()
        problem = self._model.problem or "The model was not ready in time, or is another than the store's."
        waiting = records.counted(receipt.put_off, "memory waits", "memories wait")
        return replace(receipt, degraded=(f"{waiting} for a vector. {problem}",))

    def _held(self, ids: Sequence[str]) -> Mapping[str, int]:
        try:
            with self._store.read() as view:
                return view.held(ids)
        except StoreMissing:
            return {}

    def _space(self) -> str:
        """The key of the embedder whose vectors the store takes: the recorded one, else the tier's, else ""."""
        try:
            with self._store.read() as view:
                recorded = view.embedder()
        except StoreMissing:
            recorded = None
        if recorded is not None:
            return recorded
        embedder = self._model.embedder(wait_s=self._settings.model_wait_s)
        return "" if embedder is None else embedder.identity.key

    def _load_embedder(self) -> Embedder:
        from holdtrue.models import load_embedder  # the first import of numpy and tokenizers hides behind it

        return load_embedder(self._tier)

    def _vectors(self, texts: Sequence[str]) -> Sequence[Vector | None]:
        vectors = self._model.embed(texts, wait_s=self._settings.model_wait_s)
        failpoints.hit("memory.embedded")
        return vectors


def _ignore(done: int, total: int | None) -> None:
    pass
