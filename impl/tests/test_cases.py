"""Public reports of other memory servers, as tests of this one: what went wrong there must go right here.

The cases about queries, scripts, normal forms and tags stand in `test_search.py`, those about a fork in `test_fork.py`.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from holdtrue import Memory
from holdtrue.errors import NotFound
from holdtrue.store import schema
from impl.tests import caseworkers
from properties.kit import checkers, ledger, raw, workers
from properties.kit.expected import index_of, vector_of
from properties.kit.processes import SPAWN, Crew

LIMIT_S = 60.0


def refusals(calls: list[ledger.Call]) -> list[str]:
    return [f"{call.process} {call.action} was {call.outcome}: {call.answer}" for call in calls if call.outcome != "ok"]


def acknowledged(path: Path) -> int:
    return path.read_bytes().count(b'"event": "ok"') if path.exists() else 0


def test_eight_processes_on_one_store_lose_nothing_when_one_of_them_is_killed_midway(tmp_path: Path) -> None:
    # GH modelcontextprotocol/servers 1819, 2577: two objects on one line, then every call fails.
    store = tmp_path / "store"
    with Crew() as crew:
        for process in range(8):
            steps = [{"action": "add", "text": f"w{process}-{number} durable fact"} for number in range(25)]
            crew.start(workers.perform, store, tmp_path / f"w{process}.ledger", steps)
        deadline = time.monotonic() + LIMIT_S
        while acknowledged(tmp_path / "w0.ledger") < 8 and time.monotonic() < deadline:
            time.sleep(0.002)
        os.kill(crew.members[0].pid, signal.SIGKILL)
        codes = crew.wait(LIMIT_S)
    assert codes == [-signal.SIGKILL] + [0] * 7
    calls = ledger.read(tmp_path.glob("*.ledger"))
    others = [call for call in calls if not call.process.startswith("w0")]
    assert len(others) == 175
    assert refusals(others) == []
    state = raw.read(store)
    problems = checkers.adds_survive(calls, state) + checkers.derived_agree(state, index_of, vector_of)
    assert not problems, checkers.report(problems, "8 processes, 25 adds each, the first killed")
    connection = sqlite3.connect(store / "memory.db")
    assert connection.execute("PRAGMA quick_check").fetchall() == [("ok",)]
    connection.close()
    with Memory(store) as memory:
        page = memory.list(limit=500)
        assert {call.arguments["text"] for call in others} <= {record.text for record in page}
        assert len({record.id for record in page}) == page.total == len(page)
        assert memory.search("w7-24 durable fact")[0].text == "w7-24 durable fact"


def test_eight_processes_that_open_fresh_stores_together_all_succeed_and_each_schema_is_made_once(
    tmp_path: Path,
) -> None:
    # GH Mibayy/token-savior 70, engram 559: BUSY in 0.0 s in spite of the timeout, "duplicate column".
    openers, rounds = 8, 3
    barrier = SPAWN.Barrier(openers)
    with Crew() as crew:
        for number in range(openers):
            path = tmp_path / f"opener-{number}.ledger"
            crew.start(caseworkers.open_in_rounds, tmp_path, path, barrier, rounds, f"opener {number}")
        codes = crew.wait(LIMIT_S)
    assert codes == [0] * openers
    calls = ledger.read(tmp_path.glob("*.ledger"))
    assert len(calls) == openers * rounds
    assert refusals(calls) == []
    for number in range(rounds):
        state = raw.read(tmp_path / f"round-{number}")
        mine = [call for call in calls if call.arguments["text"].endswith(f"round {number}")]
        problems = checkers.adds_survive(mine, state)
        assert not problems, checkers.report(problems, f"round {number}")
        assert state.user_version == schema.VERSION


def test_two_processes_that_store_what_is_not_there_yet_meet_no_error_and_store_each_text_once(tmp_path: Path) -> None:
    # GH desplega-ai/agent-swarm 1228: a read, then a write, in one deferred transaction is locked out at once.
    store, seed = tmp_path / "store", 1228
    texts = [f"fact {number} of the overlapping kind" for number in range(200)]
    barrier = SPAWN.Barrier(2)
    with Crew() as crew:
        for process in range(2):
            mine = random.Random(seed + process).sample(texts, len(texts))
            crew.start(caseworkers.add_unless_there, store, tmp_path / f"p{process}.ledger", barrier, mine)
        codes = crew.wait(LIMIT_S)
    assert codes == [0, 0]
    calls = ledger.read(tmp_path.glob("*.ledger"))
    assert len(calls) == 400
    state = raw.read(store)
    problems = refusals(calls) + checkers.one_memory_a_text(calls, state)
    problems += [f"{text!r} is missing" for text in texts if text not in state.texts()]
    assert not problems, checkers.report(problems, f"seed {seed}")


def test_after_each_step_of_a_memorys_life_words_vectors_and_rows_agree(memory: Memory, store: Path) -> None:
    # GH mnemosyne-oss 110, mcp-memory-service 644: the old wording is found, "malformed" though the check says ok.
    def found(query: str) -> list[str]:
        state = raw.read(store)  # runs SQLite's and FTS5's own checks
        problems = checkers.derived_agree(state, index_of, vector_of)
        problems += memory.verify()
        assert not problems, checkers.report(problems, f"before the search for {query!r}")
        return [hit.text for hit in memory.search(query, explain=True) if hit.why["lexical"] > 0]

    acme, beta = "Maya works at Acme", "Maya works at Beta Corp"
    id_ = memory.add(acme).id
    assert (found("Acme"), found("Beta")) == ([acme], [])
    for _ in range(3):
        memory.update(id_, beta)
        assert (found("Acme"), found("Beta"), found("Maya")) == ([], [beta], [beta])
        memory.update(id_, acme)
        assert (found("Acme"), found("Beta"), found("Maya")) == ([acme], [], [acme])
    memory.update(id_, beta)
    memory.forget(id_)
    assert (found("Acme"), found("Beta"), found("Maya")) == ([], [], [])
    assert memory.search("who is employed where?") == []
    with pytest.raises(NotFound):
        memory.forget(id_)
    assert found("Maya") == []
    again = memory.add(acme)
    assert (again.created, again.id != id_) == (True, True)
    assert (found("Acme"), found("Beta")) == ([acme], [])
    assert [row.text for row in raw.read(store).rows] == [acme]
    memory.forget(again.id)
    with pytest.raises(NotFound):
        memory.forget(again.id)
    third = memory.add(beta)
    memory.update(third.id, acme)
    assert (found("Acme"), found("Beta"), memory.list().total) == ([acme], [], 1)


def test_a_vector_follows_its_text_through_update_forget_and_adding_again(memory: Memory, store: Path) -> None:
    id_ = memory.add("the automobile motor is cold").id
    assert [row.vector for row in raw.read(store).rows] == [vector_of("the automobile motor is cold")]
    memory.update(id_, "penguins live in the south")
    assert [row.vector for row in raw.read(store).rows] == [vector_of("penguins live in the south")]
    hits = memory.search("car engine", explain=True)
    assert all(hit.why["semantic"] < 0.1 for hit in hits)
    memory.forget(id_)
    assert raw.read(store).rows == ()
    memory.add("the automobile motor is cold")
    assert [row.vector for row in raw.read(store).rows] == [vector_of("the automobile motor is cold")]
