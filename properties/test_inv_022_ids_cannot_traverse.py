"""INV-022: no id, name, tag, key, source or metadata from outside ever becomes a part of a path.

Attacked with texts made to leave a folder, given to every method, command and tool that takes one, found by looking at
their signatures, and in the lines of an imported file. Judged by an audit hook, which sees each path that Python opens,
makes, renames or removes, and by the tree around the store before and after, for what SQLite does on its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePath

from hypothesis import example, given
from hypothesis import strategies as st

from properties.kit import checkers, raw, trust_workers
from properties.kit.processes import Crew

LIMIT_S = 60.0

# `{}` is a mark that stands in no other path of the machine.
SHAPES = [
    "../../{}", "../../../../../../../../{}/passwd", "/{}", "/{}/x", "{}/../../{}", "..\\..\\{}", "C:\\{}", "\\\\{}\\share",
    "%2e%2e%2f{}", "..%00{}", "{}\n../{}", "{}\0", "{}\0/../x", "~/{}", "~{}", "$HOME/{}", "file:///{}", "{}.db", ".{}",
    "{}/", "．．／{}", "..／{}", "\u202e{}", "\ud800{}", "*{}*", "{};touch {}", "`{}`", "-{}", "{}?mode=rwc", "é{}配",
]  # fmt: skip
PLAIN = ["..", ".", "/", "memory.db", "turn.inner", "backups", "NUL", ""]
LONG = 10_000

marks = st.text("ghjkqxz", min_size=8, max_size=8).map(lambda text: f"zz{text}")
shapes = st.lists(st.sampled_from([*SHAPES, *PLAIN]), min_size=1, max_size=2, unique=True)


@given(mark=marks, drawn=shapes)
@example(mark="zzghjkqxzg", drawn=["../../{}", "{}\0", "..", "{}" * (LONG // 10)])
def test_hostile_ids_and_names_reach_no_path_and_leave_no_trace_beside_the_store(
    fresh: Callable[[], Path], mark: str, drawn: list[str]
) -> None:
    sandbox = build(fresh())
    store = sandbox / "deep" / "down" / "store"
    hostile = [shape.format(*[mark] * shape.count("{}")) for shape in drawn]
    variables = {
        "HOLDTRUE_FAILPOINTS": "models.load=raise",
        "HOLDTRUE_CONFIG": str(sandbox / "config" / "config.json"),
        "HOME": str(sandbox / "home"),
    }
    before = tree(sandbox)
    with Crew() as crew:
        crew.start(trust_workers.drive_everything, store, hostile, sandbox / "told.json", variables=variables)
        assert crew.wait(LIMIT_S) == [0]
    told = json.loads((sandbox / "told.json").read_text())
    problems = [*changes(before, tree(sandbox)), *bad_paths(told["paths"], hostile, mark), *bad_calls(told["calls"])]
    problems += [f"{path} was made" for path in (f"/{mark}", f"/tmp/{mark}") if os.path.lexists(path)]
    problems += raw.read(store).damage
    # Otherwise it would hold whatever the product does.
    asked = {name for name, _ in told["calls"]}
    assert {"get(id)", "forget(id)", "memory_update(id)", "update id", "add key", "search project"} <= asked
    assert any(path == str(store / "turn.inner") for _, path in told["paths"])
    assert not problems, checkers.report(problems, f"mark {mark}, texts {[text[:60] for text in hostile]}")


def build(sandbox: Path) -> Path:
    """A folder with files around and beside the place of the store, that nothing may touch."""
    for place in ("", "deep", "deep/down", "deep/down/store", "deep/down/given", "home", "config"):
        (sandbox / place).mkdir(exist_ok=True)
        (sandbox / place / "canary").write_text(f"the canary of {place!r}")
    for name in ("backups", "passwd", "x"):
        (sandbox / "deep" / name).write_text("another's")
    return sandbox


# Everything that may be new or other in the sandbox afterwards.
KNOWN = re.compile(
    r"deep/down/store/(memory\.db(-wal|-shm)?|turn\.(outer|inner)|\.[a-z-]+\.lock)"
    r"|deep/down/given/(lines\.jsonl|export\.jsonl|backup\.db)"
    r"|config/(config\.json|\.config\.json\.lock)|told\.json"
)


def tree(sandbox: Path) -> dict[str, str]:
    """Path below the sandbox to kind, mode, and size and digest or the target of a link."""
    found = {}
    for path in sandbox.rglob("*"):
        mode = path.lstat().st_mode
        told = str(path.readlink()) if path.is_symlink() else ""
        if stat.S_ISREG(mode) and path.name != "memory.db":
            data = path.read_bytes()
            told = f"{len(data)} {hashlib.sha256(data).hexdigest()}"
        found[str(path.relative_to(sandbox))] = f"{mode:o} {told}"
    return found


def changes(before: dict[str, str], after: dict[str, str]) -> list[str]:
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    return [
        f"{path!r} was {before.get(path, 'not there')} and is {after.get(path, 'not there')}"
        for path in sorted(changed)
        if not KNOWN.fullmatch(path)
    ]


def bad_paths(paths: Iterable[Sequence[str]], hostile: Sequence[str], mark: str) -> list[str]:
    """The file operations whose path holds the mark, a hostile text as a component, or a step upwards."""
    problems = []
    for event, path in paths:
        parts = PurePath(path).parts
        if (
            mark in path
            or ".." in parts
            or any(text in parts for text in hostile if text.strip("./") and text not in PLAIN)
        ):
            problems.append(f"{event} of {path[:200]!r}")
    return problems


def bad_calls(calls: Iterable[Sequence[str]]) -> list[str]:
    """Answers that no hostile text may bring about: a malformed id names nothing, and nothing breaks."""
    problems = []
    for name, outcome in calls:
        of_id = name.endswith(("(id)", " id"))
        fine = (
            ("NOT_FOUND", "INVALID_INPUT")
            if of_id
            else ("ok", "INVALID_INPUT", "CONFIG_INVALID", "USAGE", "KEY_CONFLICT")
        )
        if outcome not in fine:
            problems.append(f"{name} answered {outcome}")
    return problems


def test_a_path_with_a_piece_of_an_id_is_noticed() -> None:
    mark = "zzmark"
    assert bad_paths([("open", "/usr/lib/x.py"), ("os.mkdir", "/tmp/store")], [f"../{mark}"], mark) == []
    for path in (f"/tmp/s/{mark}.trace", f"/tmp/s/{mark}", "/tmp/s/../x"):
        assert bad_paths([("open", path)], [f"../{mark}"], mark)
    assert changes({"a": "1"}, {"a": "1", "deep/down/store/memory.db": "2"}) == []
    assert changes({"a": "1"}, {"a": "2"})
    assert changes({"a": "1"}, {})
    assert changes({}, {"deep/down/store/01900000.trace": "1"})
    assert bad_calls([["get(id)", "ok"], ["forget id", "OSError: x"], ["add(user)", "ValueError: x"]])
    assert bad_calls([["get(id)", "NOT_FOUND"], ["add(user)", "ok"]]) == []
