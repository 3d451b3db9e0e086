"""F-0021: whatever a client sends, the next call works."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from impl.tests.serverprocess import ServerProcess


@pytest.mark.parametrize("request_id", [[1], {"id": 1}, None, True, 1.5])
def test_a_cancellation_of_nonsense_is_ignored(store: Path, request_id: Any) -> None:
    notification = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}}
    with ServerProcess(store) as server:
        server.initialize()
        server.write(json.dumps(notification).encode())
        assert server.call("memory_store", text="the next call")["created"]
