"""The one write path: a thread that owns the write connection and commits what callers queue, as groups.

Owns: the write connection and the one that moves the WAL, the turnstile, the queue. Faults it survives: a caller whose
patience ends (its item is taken out, so its error means that nothing was stored), a foreign process that holds the write
lock, a reader that keeps the WAL from being emptied, a full disk, a failed or cut commit, a kill at any point (a group is
one transaction), a close at any point. A caller is answered only after the commit that holds its item. No lock but the
turnstile is held while waiting, and only this thread waits for it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import apsw

from holdtrue import failpoints, logs
from holdtrue.clock import Deadline, now_us
from holdtrue.enforces import enforces
from holdtrue.errors import HoldTrueError, OutcomeUnknown, StoreBusy, StoreClosed, StoreError, StoreFull
from holdtrue.store import checkpoint, erase, memories, schema
from holdtrue.store.connection import StoreConnection, open_connection, store_error
from holdtrue.store.statements import run
from holdtrue.store.turnstile import Turnstile

logger = logs.logger(__name__)

T = TypeVar("T")

GROUP_MEMORIES = 64  # bounds how long one commit may take, and so how long others wait for their turn
TURN_S = 0.010  # a turn may be kept this long while work is queued: handing it over costs about as much as an add
RETRY_S = 0.0005
FENCE_WAIT_S = 0.3  # for an effect that is under way, usually one fsync
COVER_WAIT_S = 1.0
_POLL_S = 0.005
_IDLE_S = 30.0


class _Item:
    """One queued operation and, once it has ended, its answer.

    `ended` is a lock that is held until then: a caller waits for it with a limit, at a tenth of the cost of a future.
    """

    __slots__ = ("alone", "deadline", "ended", "erases", "failure", "memories", "operation", "value")

    def __init__(
        self,
        operation: Callable[[StoreConnection], Any],
        deadline: Deadline,
        *,
        memories: int = 1,
        erases: bool = False,
        alone: bool = False,
    ) -> None:
        self.operation = operation
        self.alone = alone
        self.memories = memories
        self.deadline = deadline
        self.erases = erases
        self.value: Any = None
        self.failure: BaseException | None = None
        self.ended = threading.Lock()
        self.ended.acquire()

    def answer(self, value: Any) -> None:
        self.value = value
        self.ended.release()

    def refuse(self, failure: BaseException) -> None:
        self.failure = failure
        self.ended.release()


class Writer:
    """The writer of one store in one process. The thread starts with the first write."""

    def __init__(
        self, folder: Path, wal_limit_bytes: int = checkpoint.WAL_LIMIT_BYTES, predecessor: Writer | None = None
    ) -> None:
        """`predecessor` was the writer of this folder in this process; it is closed, and may not have ended."""
        self._folder = folder
        self._predecessor = predecessor
        self._full_bytes = checkpoint.full_bytes(wal_limit_bytes)
        self._changed = threading.Condition()  # guards everything below; never held while waiting for anything else
        self._queue: deque[_Item] = deque()
        self._closed = False
        self._thread: threading.Thread | None = None
        self._obstacle = ""  # what the thread waits for, told to those whose patience ends
        # Held by the thread while it changes anything on disk; once `close` has had it, nothing is changed any more.
        self._fence = threading.Lock()
        self._fenced = False
        # Only the thread touches these.
        self._connection: StoreConnection | None = None
        self._mover: StoreConnection | None = None
        self._turnstile: Turnstile | None = None
        self._patient = True
        self._patience: Deadline | None = None  # of what the thread does now for somebody who is not in the queue
        self._checkpoint_bytes = checkpoint.CHECKPOINT_BYTES

    @enforces("INV-001")
    def submit(self, operation: Callable[[StoreConnection], T], deadline: Deadline, memories: int = 1) -> T:
        """Run an operation in a transaction and return its answer once that is committed.

        Waits for the turn to write until the deadline. Raises what the operation raised, or a `StoreError`; in
        both cases nothing of the operation was stored. An item that has begun is awaited to its end, since only then is
        it known whether it was stored.
        """
        return cast("T", self._submit(_Item(operation, deadline, memories=memories)))

    def submit_erasure(self, operation: Callable[[StoreConnection], T], deadline: Deadline) -> tuple[T, str]:
        """As `submit`, for an operation that enlists an erasure: also what that waits for, "" when it is finished."""
        return cast("tuple[T, str]", self._submit(_Item(operation, deadline, erases=True)))

    def submit_alone(self, operation: Callable[[StoreConnection], T], deadline: Deadline) -> T:
        """Run an operation that is no part of a group: in this process's turn, with no transaction open.

        It must put `connection.effect` around each step that changes the disk, or a close would not stop it. For what
        begins and ends transactions itself, as a restore does. Nobody else writes meanwhile. While another
        program holds SQLite's lock, the operation's statements wait until the deadline. Raises what it raised, or a
        `StoreError`.
        """
        return cast("T", self._submit(_Item(operation, deadline, alone=True)))

    @property
    def running(self) -> bool:
        """Whether the thread has not ended yet."""
        return self._thread is not None and self._thread.is_alive()

    def _submit(self, item: _Item) -> Any:
        with self._changed:
            if self._closed:
                raise StoreClosed("The store was closed.")
            self._queue.append(item)
            if self._thread is None or not self._thread.is_alive():
                self._start_thread(item)
            self._changed.notify_all()
        try:
            ended = item.ended.acquire(timeout=item.deadline.remaining_s())
        except BaseException:
            self._withdraw(item)  # interrupted: what nobody waits for any more is not stored behind his back
            raise
        if not ended:
            if self._withdraw(item):
                waited_s = item.deadline.period_s
                obstacle = self._obstacle or "other writers"
                raise StoreBusy(
                    f"Waited {waited_s:g} s for {obstacle} of {self._folder} and gave up.", waited_s=waited_s
                )
            item.ended.acquire()
        if item.failure is not None:
            raise item.failure
        return item.value

    def _start_thread(self, item: _Item) -> None:
        thread = threading.Thread(target=self._run, name="holdtrue-writer", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self._queue.remove(item)  # a later thread must not store what is refused now
            raise StoreError(f"No thread could be started: {error}.", hint="Nothing was stored; try again.") from error
        self._thread = thread

    def _withdraw(self, item: _Item) -> bool:
        """Take an item out of the queue. False when the thread has begun it."""
        with self._changed:
            try:
                self._queue.remove(item)
            except ValueError:
                return False
            return True

    @enforces("INV-014")
    def close(self, deadline: Deadline) -> bool:
        """Refuse new work, finish what is queued, stop the thread. True when nothing of it writes any more, in time.

        A thread that waits for another process cannot be stopped; it is fenced: whatever it comes to next, it finds the
        writer closed, changes nothing and ends. False only when the disk has not answered it all the while.
        """
        with self._changed:
            self._closed = True
            thread = self._thread
            self._changed.notify_all()
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(max(deadline.remaining_s() - FENCE_WAIT_S, 0.0))
        with self._changed:
            left = list(self._queue)
            self._queue.clear()
        for item in left:
            item.refuse(StoreClosed("The store was closed before this could be stored."))
        if not thread.is_alive():
            return True
        if not self._fence.acquire(timeout=FENCE_WAIT_S):
            return False
        self._fenced = True
        self._fence.release()
        return True

    @contextmanager
    def _effect(self) -> Iterator[None]:
        """Around everything that changes the disk. Raises `StoreClosed` once the writer was closed and fenced."""
        with self._fence:
            if self._fenced:
                raise StoreClosed("The store was closed before this could be stored.")
            yield

    # -- the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._wait_for_work():
                self._take_turn()
        finally:
            self._let_go()

    def _wait_for_work(self) -> bool:
        """True when something is queued, False when the thread should end."""
        with self._changed:
            while not self._queue:
                if self._closed:
                    return False
                self._changed.wait(_IDLE_S)
            return True

    def _keep_waiting(self) -> bool:
        """The busy handler's question."""
        return self._patient and self._wanted()

    def _wanted(self) -> bool:
        """Whether waiting for the database still serves anyone."""
        if self._patience is not None:
            return not self._patience.passed()
        with self._changed:
            return bool(self._queue)

    def _take_turn(self) -> None:
        """Pass the turnstile and commit groups until nothing is queued or the turn is over."""
        try:
            if self._turnstile is None:
                if not self._follow():
                    return
                with self._effect():
                    self._turnstile = Turnstile(self._folder)
            self._turnstile.enter()
        except Exception as error:  # noqa: BLE001 - a thread that dies would leave its callers waiting for nothing
            self._fail_queued(store_error(error, self._folder))
            self._leave_for_good()
            return
        try:
            if not self._wanted():
                return
            connection = self._ready()
            began_s = time.monotonic()
            while self._make_room(connection) and self._commit_group(connection):
                if time.monotonic() >= began_s + TURN_S or not self._wanted():
                    return
        except (apsw.BusyError, StoreBusy):
            # Everyone who waited has left, or SQLite did not ask the busy handler: whoever is queued by now has its next
            # try with the patience it has left.
            time.sleep(RETRY_S)
        except Exception as error:  # noqa: BLE001 - a thread that dies would leave its callers waiting for nothing
            self._fail_queued(store_error(error, self._folder))
            self._drop_connection()
        finally:
            if self._turnstile is not None:
                self._turnstile.leave()

    def _follow(self) -> bool:
        """Wait until the writer before this one has ended. False when nobody waits for that any more.

        The turnstile's locks belong to the process: two writers would both pass it, and the first to leave would drop
        the other's turn.
        """
        while self._predecessor is not None and self._predecessor.running:
            if not self._wanted():
                return False
            self._obstacle = "a write of this process that was begun before the store was closed,"
            time.sleep(_POLL_S)
        self._predecessor, self._obstacle = None, ""
        return True

    def _ready(self) -> StoreConnection:
        """The write connection, opened and migrated if it is not yet."""
        if self._connection is None:
            failpoints.hit("writer.before_open")
            with self._effect():
                connection = open_connection(self._folder, write=True, keep_waiting=self._keep_waiting)
                try:
                    if schema.version_of(connection) < schema.VERSION:
                        schema.migrate(connection)
                except BaseException:
                    connection.close()
                    raise
                connection.effect = self._effect
                self._connection = connection
        return self._connection

    @enforces("INV-001", "INV-028")
    def _commit_group(self, connection: StoreConnection) -> bool:
        """Commit queued items, about `GROUP_MEMORIES` in all, as one transaction; each is answered after the commit.

        Items are taken from the queue only once the write lock is held: until then their callers may leave.
        """
        if self._run_alone(connection):
            return self._connection is not None
        run(connection, "BEGIN IMMEDIATE")
        if connection.displaced():
            # Nothing was taken from the queue yet: the next turn opens what the path leads to now.
            connection.roll_back()
            self._let_go()
            return False
        memories.refresh_names(connection)
        with self._changed:
            group: list[_Item] = []
            while self._queue and not self._queue[0].alone and sum(item.memories for item in group) < GROUP_MEMORIES:
                group.append(self._queue.popleft())
        if not group:
            connection.roll_back()
            return True
        try:
            answers = self._run_group(connection, group)
            # Also without one wanted now: another process may have left some. Asked here, where no read has to begin.
            to_erase = any(item.erases for item in group) or erase.due(connection)
            failpoints.hit("writer.group_done")
            failpoints.hit("writer.before_commit")
            with self._effect():
                run(connection, "COMMIT")
        except BaseException as error:
            failure = store_error(error, self._folder)
            refusal: HoldTrueError = OutcomeUnknown(f"{failure.message} Whether this was stored cannot be told.")
            try:
                if self._undo(connection, error):
                    refusal = failure
            finally:  # whatever else goes wrong: nobody may be left waiting
                for item in group:
                    item.refuse(refusal)
            if not isinstance(error, Exception):
                raise
            return False
        waits = erase.WAITS_FOR_READER
        try:
            failpoints.hit("writer.after_commit")
            waits = self._erase(connection) if to_erase else ""
        finally:
            # Whatever goes wrong from here on: the commit stands, so every caller is told so.
            for item, value, refusal in answers:
                if refusal is not None:
                    item.refuse(refusal)
                else:
                    item.answer((value, waits) if item.erases else value)
        self._keep_wal_small(connection)
        return True

    @enforces("INV-023")
    def _make_room(self, connection: StoreConnection) -> bool:
        """Wait until the WAL can take another transaction. False when nobody waits for that any more.

        A reader that pins an older state keeps the WAL from being emptied, however often it is moved. Beyond the limit
        writers wait for it, with the patience they have, instead of filling the disk.
        """
        if self._full_bytes is None or connection.wal_bytes() < self._full_bytes:
            return True
        self._patient = False
        try:
            while not self._emptied(connection):
                if not self._wanted():
                    return False
                self._obstacle = "a reader of an older state, which keeps the full log from being emptied,"
                time.sleep(_POLL_S)
        finally:
            self._patient, self._obstacle = True, ""
        return True

    def _emptied(self, connection: StoreConnection) -> bool:
        with self._effect():
            return checkpoint.empty(connection, self._moving())

    def _keep_wal_small(self, connection: StoreConnection) -> None:
        """Move the WAL's frames when there are many, so that the next transaction begins at the WAL's start again."""
        grown = connection.wal_pages * schema.PAGE_BYTES
        if grown < checkpoint.CHECKPOINT_BYTES:
            self._checkpoint_bytes = checkpoint.CHECKPOINT_BYTES
        if grown < self._checkpoint_bytes:
            return
        self._checkpoint_bytes = grown + checkpoint.AGAIN_BYTES
        self._patient = False
        try:
            with self._effect():
                checkpoint.move(connection, self._moving())
        except (apsw.Error, OSError, HoldTrueError) as error:
            logger.warning("The log could not be moved into the database yet: %s", error)
        finally:
            self._patient = True

    def _moving(self) -> StoreConnection:
        """The connection that moves the WAL: the one that writes holds the write lock meanwhile."""
        if self._mover is None:
            self._mover = open_connection(self._folder, write=True, keep_waiting=self._keep_waiting)
        return self._mover

    def _run_alone(self, connection: StoreConnection) -> bool:
        """Run the item at the head of the queue if it is one that runs alone. False when it is not."""
        with self._changed:
            if not self._queue or not self._queue[0].alone:
                return False
            item = self._queue.popleft()
        self._patience = item.deadline
        try:
            if connection.displaced():
                # Unlike a group, what runs alone may have looked at the store before: it is not run on another one.
                self._let_go()
                raise StoreError(
                    f"The store at {self._folder} was replaced by another.", hint="Nothing was done; try again."
                )
            value = item.operation(connection)
        except BaseException as error:
            item.refuse(store_error(error, self._folder) if isinstance(error, apsw.Error | OSError) else error)
            self._drop_connection()
            if not isinstance(error, Exception):
                raise
        else:
            item.answer(value)
        finally:
            self._patience = None
        return True

    def _undo(self, connection: StoreConnection, error: BaseException) -> bool:
        """Leave nothing of a group that failed. True when it is certain that nothing of it is stored."""
        try:
            connection.roll_back()
        except apsw.Error as second:
            logger.warning("The transaction that failed could not be rolled back: %s", second)
        self._drop_connection()
        # A writer that was fenced has not come to its commit, and a disk that is full has not taken the frame that ends
        # it: there is nothing to cover. (A sync that finds no room is another error, and does leave a whole commit.)
        return isinstance(error, StoreClosed | apsw.FullError) or self._cover()

    def _cover(self) -> bool:
        """Commit something harmless over what a failed commit may have left; True when that is done.

        A commit whose sync fails has written its frames already: invisible now, they would come back when the WAL is
        recovered after a crash. The next commit takes their place, so that what was refused stays refused.
        """
        self._patience = Deadline.after(COVER_WAIT_S)
        try:
            connection = self._ready()
            run(connection, "BEGIN IMMEDIATE")
            # Another value each time: SQLite writes no frame for a row that stays as it was.
            run(connection, "INSERT OR REPLACE INTO meta VALUES('covered_us', ?)", (str(now_us()),))
            with self._effect():
                run(connection, "COMMIT")
        except (apsw.Error, OSError, HoldTrueError) as error:
            logger.warning("A failed commit could not be covered: %s", error)
            self._drop_connection()
            return False
        finally:
            self._patience = None
        return True

    def _erase(self, connection: StoreConnection) -> str:
        """Finish the erasures that are enlisted, without waiting for anyone. Returns what they wait for."""
        self._patient = False
        try:
            with self._effect():
                return erase.finish(connection, self._moving())
        except (apsw.Error, OSError, HoldTrueError) as error:
            # The commit stands; the outbox keeps the rest for the next writer.
            logger.warning("An erasure could not be finished yet: %s", error)
            full = isinstance(store_error(error, self._folder), StoreFull)
            return erase.WAITS_FOR_ROOM if full else erase.WAITS_FOR_DISK
        finally:
            self._patient = True

    def _run_group(self, connection: StoreConnection, group: Sequence[_Item]) -> list[tuple[_Item, Any, Any]]:
        """Run the items in the open transaction: item, value and refusal (None or an exception) of each.

        A savepoint around each item would make FTS5 and vec0 flush their work at each. So the group runs under one, and
        only when an item refuses is it undone and run again, item by item. The write lock is kept all the while: nobody
        can come between, and nobody's patience has to be asked for twice.
        """
        run(connection, "SAVEPOINT whole")
        try:
            return [(item, item.operation(connection), None) for item in group]
        except Exception:  # whatever it was, it comes again below, where it hits its own item alone
            if not connection.in_transaction:
                raise
            connection.names.clear()
            run(connection, "ROLLBACK TO whole")
        return [(item, *self._run_item(connection, item)) for item in group]

    def _run_item(self, connection: StoreConnection, item: _Item) -> tuple[Any, BaseException | None]:
        """Run one item inside a savepoint, so that its refusal undoes its own work and no neighbour's."""
        run(connection, "SAVEPOINT item")
        try:
            value = item.operation(connection)
        except Exception as refusal:
            # SQLite may have rolled the whole transaction back; then the neighbours' work is gone as well.
            if not connection.in_transaction:
                raise
            connection.names.clear()
            run(connection, "ROLLBACK TO item")
            run(connection, "RELEASE item")
            expected = isinstance(refusal, apsw.Error | OSError)
            return None, store_error(refusal, self._folder) if expected else refusal
        run(connection, "RELEASE item")
        return value, None

    def _fail_queued(self, failure: HoldTrueError) -> None:
        with self._changed:
            left = list(self._queue)
            self._queue.clear()
        for item in left:
            item.refuse(failure)

    def _drop_connection(self) -> None:
        """Forget connections that failed; the next turn opens fresh ones."""
        connections, self._connection, self._mover = (self._mover, self._connection), None, None
        for connection in connections:
            if connection is not None:
                if self._fenced:
                    connection.leave_files_alone()
                try:
                    connection.close(True)
                except Exception as error:  # noqa: BLE001 - a thread that dies would leave its callers waiting
                    logger.warning("A connection that failed could not be closed: %s", error)

    def _let_go(self) -> None:
        self._drop_connection()
        self._leave_for_good()

    def _leave_for_good(self) -> None:
        """Give back whatever is held of the turnstile, and its files."""
        if self._turnstile is not None:
            self._turnstile.close()
            self._turnstile = None
