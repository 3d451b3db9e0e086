"""F-0016: a command lives for a moment; what it put off is made by the next one, and until then a search says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdtrue import Memory
from impl.tests.stubembedder import Stub, use


@pytest.fixture
def put_off(store: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with one memory whose vector could not be made."""
    with monkeypatch.context() as patched:
        use(patched, Stub(failing=True))
        with Memory(store) as memory:
            assert memory.add("the harbour is east").degraded
    return store


def test_the_next_process_that_writes_makes_the_vectors_that_another_put_off(put_off: Path) -> None:
    with Memory(put_off) as memory:
        memory.add("the mill is north")
    with Memory(put_off) as memory:
        assert memory.status()["pending_vectors"] == 0


def test_a_search_says_that_some_memories_wait_for_a_vector(put_off: Path) -> None:
    with Memory(put_off) as memory:
        assert "wait for a vector" in " ".join(memory.search("harbour").degraded)
