"""F-0006: the file of a store is there before its tables are; a reader that comes in between must be answered."""

from __future__ import annotations

from pathlib import Path

from properties.kit import ledger, workers
from properties.kit.points import Points
from properties.kit.processes import Crew


def test_a_reader_of_a_store_whose_file_is_there_before_its_tables_is_answered(tmp_path: Path) -> None:
    store = tmp_path / "store"
    # The first opener stands still between the WAL switch and its migration; by then the file is there.
    points = Points("schema.before_begin=delay(3)", tmp_path / "points")
    with Crew() as crew:
        add = [{"action": "add", "text": "the first memory"}]
        crew.start(workers.perform, store, tmp_path / "opener.ledger", add, variables=points.variables())
        looks = [{"action": "list"}, {"action": "search", "query": "first"}]
        crew.start(workers.wait_for_file_and_perform, store, tmp_path / "reader.ledger", looks)
        assert crew.wait(40) == [0, 0]
    points.assert_fired()
    calls = ledger.read(tmp_path.glob("*.ledger"))
    refused = [(call.action, call.answer) for call in calls if call.outcome != "ok"]
    assert refused == []
