"""Writes under pressure: a busy store, a full disk, failing commits, many threads. Acknowledged means stored; an error
means that nothing was."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import CompletedProcess

import apsw
import pytest

from holdtrue import Memory, failpoints
from holdtrue.errors import HoldTrueError, StoreBusy, StoreClosed, StoreFull
from properties.kit import checkers, raw
from properties.kit.expected import index_of, vector_of

RunPython = Callable[..., CompletedProcess[str]]


@contextmanager
def armed(rules: str) -> Iterator[None]:
    """Failpoints in this very process."""
    before = failpoints._armed
    failpoints._armed = failpoints._Armed(failpoints._parse(rules), None)
    try:
        yield
    finally:
        failpoints._armed = before


def assert_sound(store: Path, *texts: str) -> None:
    state = raw.read(store)
    assert checkers.derived_agree(state, index_of, vector_of) == []
    assert sorted(state.texts()) == sorted(texts)


# -- busy ----------------------------------------------------------------------------------------------------------


@contextmanager
def held(store: Path) -> Iterator[None]:
    """Another program holds SQLite's write lock."""
    connection = apsw.Connection(str(store / "memory.db"))
    connection.execute("BEGIN IMMEDIATE").fetchall()
    try:
        yield
    finally:
        connection.execute("ROLLBACK").fetchall()
        connection.close()


def test_a_busy_store_is_told_with_its_seconds_nothing_is_stored_and_the_next_call_works(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Memory(store) as memory:
        first = memory.add("was here")
    monkeypatch.setenv("HOLDTRUE_WRITE_WAIT_S", "0.25")
    with Memory(store) as memory:
        with held(store):
            calls: list[Callable[[], object]] = [
                lambda: memory.add("refused"),
                lambda: memory.add_many(["refused", "too"]),
                lambda: memory.update(first.id, "refused"),
                lambda: memory.forget(first.id),
            ]
            for call in calls:
                began_s = time.monotonic()
                with pytest.raises(StoreBusy, match=r"0\.25 s") as refusal:
                    call()
                assert time.monotonic() - began_s < 5.0
                assert refusal.value.details["waited_s"] == 0.25
            assert [hit.text for hit in memory.search("was here")] == ["was here"]
            assert memory.get(first.id).text == "was here"
        # As soon as the lock is free, the same handle works.
        for _ in range(40):
            try:
                memory.add("comes after")
                break
            except StoreBusy:
                continue
    assert_sound(store, "was here", "comes after")


def test_a_writer_that_waited_is_served_when_the_lock_is_let_go(store: Path) -> None:
    with Memory(store) as memory:
        memory.add("was here")
        answers: list[str] = []
        thread = threading.Thread(target=lambda: answers.append(memory.add("waited").text))
        with held(store):
            thread.start()
            time.sleep(0.2)
            assert answers == []
        thread.join(10)
        assert answers == ["waited"]
    assert_sound(store, "was here", "waited")


def test_a_fresh_store_that_another_program_is_writing_is_busy_and_not_broken(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.mkdir()
    monkeypatch.setenv("HOLDTRUE_WRITE_WAIT_S", "0.25")
    with Memory(store) as memory, held(store), pytest.raises(StoreBusy):
        memory.add("refused")
    monkeypatch.delenv("HOLDTRUE_WRITE_WAIT_S")
    with Memory(store) as memory:
        memory.add("comes after")
    assert_sound(store, "comes after")


def test_a_close_while_a_write_waits_ends_within_its_bound_and_the_write_is_told(store: Path) -> None:
    memory = Memory(store)
    memory.add("was here")
    refusals: list[BaseException] = []

    def add() -> None:
        try:
            memory.add("refused")
        except HoldTrueError as error:
            refusals.append(error)

    thread = threading.Thread(target=add)
    with held(store):
        thread.start()
        time.sleep(0.2)
        began_s = time.monotonic()
        memory.close()
        assert time.monotonic() - began_s < 5.0
        thread.join(10)
        assert [type(error) for error in refusals] == [StoreClosed]
    time.sleep(0.2)  # the fenced writer thread gets its turn now and must write nothing
    assert_sound(store, "was here")


# -- failing commits -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["writer.before_commit", "writer.group_done", "memories.between_check_and_insert"])
@pytest.mark.parametrize(
    ("rule", "code"),
    [("raise(ENOSPC)", "STORE_FULL"), ("raise(EIO)", "STORE_UNAVAILABLE"), ("raise", "FAILPOINT_RAISED")],
)
def test_a_write_that_fails_is_refused_leaves_nothing_and_the_next_one_works(
    store: Path, point: str, rule: str, code: str
) -> None:
    with Memory(store) as memory:
        first = memory.add("was here")
        with armed(f"{point}={rule}"):
            calls: list[Callable[[], object]] = [
                lambda: memory.add("refused"),
                lambda: memory.add_many([{"text": "refused", "user": "new"}, "too"]),
            ]
            if not point.startswith("memories"):
                calls += [lambda: memory.update(first.id, "refused"), lambda: memory.forget(first.id)]
            for call in calls:
                with pytest.raises(HoldTrueError) as refusal:
                    call()
                assert refusal.value.code == code
        assert memory.get(first.id).text == "was here"
        assert memory.add("comes after").created
        assert memory.verify() == []
    assert_sound(store, "was here", "comes after")


def test_a_disk_that_fills_at_the_commit_is_told_as_full(store: Path) -> None:
    with Memory(store) as memory:
        memory.open()
        with armed("writer.before_commit=raise(ENOSPC)@1"), pytest.raises(StoreFull) as refusal:
            memory.add("refused")
        assert "Free space" in refusal.value.hint
        memory.add("comes after")
    assert_sound(store, "comes after")


def test_a_database_that_may_not_grow_is_told_as_full_and_works_once_it_may(store: Path) -> None:
    with Memory(store) as memory:
        memory.add("was here")
        queue = memory._store._engine.writer  # type: ignore[attr-defined] - the limit belongs to a connection

        def limit(pages: int) -> None:
            queue.submit(lambda connection: connection.pragma("max_page_count", pages), memory._deadline())

        limit(1)  # which means: not one page more than there are
        with pytest.raises(StoreFull):
            memory.add_many([f"a long text that needs room, number {number} " * 200 for number in range(50)])
        limit(1_000_000)
        memory.add("comes after")
    assert_sound(store, "was here", "comes after")


def test_one_refused_write_of_a_group_takes_none_of_its_neighbours_with_it(store: Path) -> None:
    with Memory(store) as memory:
        memory.add("taken", key="k")
        outcomes: dict[str, str] = {}

        def add(text: str, key: str | None) -> None:
            try:
                outcomes[text] = memory.add(text, key=key).text
            except HoldTrueError as error:
                outcomes[text] = error.code

        threads = [
            threading.Thread(target=add, args=(f"text {number}", "k" if number % 4 == 0 else None))
            for number in range(12)
        ]
        with held(store):  # so that all of them stand in one queue
            for thread in threads:
                thread.start()
            time.sleep(0.3)
        for thread in threads:
            thread.join(20)
    wanted = {f"text {number}": "KEY_CONFLICT" if number % 4 == 0 else f"text {number}" for number in range(12)}
    assert outcomes == wanted
    assert_sound(store, "taken", *(text for text, outcome in wanted.items() if outcome == text))


# -- threads and handles -------------------------------------------------------------------------------------------


def test_many_threads_on_two_handles_of_one_folder_lose_and_repeat_nothing(store: Path) -> None:
    problems: list[str] = []
    ids: list[str] = []
    start = threading.Barrier(8)

    def work(memory: Memory, name: int) -> None:
        start.wait(10)
        try:
            for number in range(8):
                mine = memory.add(f"thread {name} says {number}")
                ids.append(mine.id)
                memory.add(f"everyone says {number}")
                if memory.get(mine.id).text != mine.text:
                    problems.append(f"{mine.text} does not read its own write")
                if mine.id not in [hit.id for hit in memory.search(mine.text, limit=200)]:
                    problems.append(f"{mine.text} is not found by the thread that wrote it")
        except Exception as error:  # noqa: BLE001 - it would be lost in the thread
            problems.append(repr(error))

    with Memory(store) as one, Memory(store) as other:
        threads = [threading.Thread(target=work, args=((one, other)[name % 2], name)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert problems == []
        assert len(set(ids)) == 64
        assert one.list().total == other.list().total == 64 + 8
    texts = [f"thread {name} says {number}" for name in range(8) for number in range(8)]
    assert_sound(store, *texts, *(f"everyone says {number}" for number in range(8)))


def test_a_handle_closed_by_one_thread_while_others_use_it_answers_them_or_says_that_it_is_closed(store: Path) -> None:
    memory = Memory(store)
    memory.add("was here")
    stored: list[str] = []
    unplanned: list[str] = []
    start = threading.Barrier(5)

    def use(name: int) -> None:
        start.wait(10)
        for number in range(1_000):
            try:
                stored.append(memory.add(f"thread {name} says {number}").text)
                memory.search("thread says")
                memory.list()
            except StoreClosed:
                return
            except Exception as error:  # noqa: BLE001 - it would be lost in the thread
                unplanned.append(repr(error))
                return

    threads = [threading.Thread(target=use, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    start.wait(10)
    time.sleep(0.3)
    memory.close()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    assert unplanned == []
    assert_sound(store, "was here", *stored)


# -- erasure -------------------------------------------------------------------------------------------------------

SECRET = "zanzibarine"


def bytes_left(store: Path) -> list[str]:
    return [path.name for path in store.iterdir() if SECRET.encode() in path.read_bytes()]


def test_not_a_byte_of_a_forgotten_text_is_left(store: Path) -> None:
    with Memory(store) as memory:
        memory.add_many([f"neighbour {number}" for number in range(40)])
        kept = memory.add("the one beside it")
        id_ = memory.add(f"first {SECRET} wording", metadata={"note": SECRET}, tags=[SECRET], source=SECRET).id
        memory.update(id_, f"second {SECRET} wording, much longer " + "so that it moves " * 300)
        memory.update(id_, f"third {SECRET} wording")
        memory.add_many([f"later {number}" for number in range(40)])
        receipt = memory.forget(id_)
        assert (receipt.erased, receipt.waiting_for) == (True, ())
        assert bytes_left(store) == []
        assert memory.get(kept.id).text == "the one beside it"
        assert memory.status()["erasures_waiting"] == 0
    assert bytes_left(store) == []


def test_an_erasure_that_an_older_reader_holds_up_is_told_and_finished_by_the_next_write(store: Path) -> None:
    with Memory(store) as memory:
        id_ = memory.add(f"the {SECRET} wording").id
        reader = raw.connect(store)
        reader.execute("BEGIN").fetchall()
        reader.execute("SELECT count(*) FROM memories").fetchall()
        receipt = memory.forget(id_)
        assert (receipt.forgotten, receipt.erased) == (True, False)
        assert receipt.waiting_for
        assert memory.search(SECRET) == []
        assert memory.status()["erasures_waiting"] == 1
        assert memory.status()["degraded"]
        reader.execute("ROLLBACK").fetchall()
        reader.close()
        memory.add("the next write")
        assert memory.status()["erasures_waiting"] == 0
        assert bytes_left(store) == []
