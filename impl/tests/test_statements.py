"""How SQL may be run, and what may touch the database's files: lints over the source, each tried on source it must refuse.

APSW's `execute` is lazy, so what stands behind a first statement may never run. And POSIX drops every lock that a process
has on a file when it closes any descriptor of it, so whoever opens the database beside SQLite takes its locks away.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

import holdtrue
from holdtrue.store.statements import one, run

SOURCE = Path(holdtrue.__file__).parent
RUNNER = Path("store/statements.py")

_SQL = re.compile(
    r"\s*(SELECT|INSERT|UPDATE|DELETE|REPLACE|CREATE|DROP|ALTER|PRAGMA|BEGIN|COMMIT|ROLLBACK|WITH|ATTACH)\b"
)
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)


def parsed(root: Path) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(root.rglob("*.py")):
        yield path.relative_to(root), ast.parse(path.read_text(encoding="utf-8"))


def called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def literal(node: ast.AST) -> str | None:
    """The text of a string literal or a sum with one; a `?` stands for what is filled in or joined on."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "?" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = [literal(node.left), literal(node.right)]
        return None if parts == [None, None] else "".join(part or "?" for part in parts)
    return None


def holds_several(statement: str) -> bool:
    return ";" in _QUOTED.sub("", statement).rstrip().removesuffix(";")


def bare_executes(root: Path) -> list[str]:
    """Every mention of a connection's own `execute`, called or passed on, outside the one module that may."""
    return [
        f"{path}:{node.lineno}: {node.attr}"
        for path, tree in parsed(root)
        if path != RUNNER
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in ("execute", "executemany")
    ]


def several_statements(root: Path) -> list[str]:
    """String literals that hold more than one statement: whatever `run` or `one` is given, and all that looks like SQL."""
    faults = set()
    for path, tree in parsed(root):
        for node in ast.walk(tree):
            texts = [literal(node)]
            if isinstance(node, ast.Call) and called(node) in ("run", "one") and len(node.args) > 1:
                texts = [literal(part) for part in ast.walk(node.args[1])]
            elif texts[0] is not None and not _SQL.match(texts[0]):
                continue
            faults |= {f"{path}:{node.lineno}" for text in texts if text is not None and holds_several(text)}
    return sorted(faults)


_TOUCHING = {
    *(
        "open",
        "fdopen",
        "openat",
        "open_code",
        "copy",
        "copy2",
        "copyfile",
        "copyfileobj",
        "copytree",
        "move",
        "rmtree",
    ),
    *("unlink", "remove", "rename", "renames", "replace", "link", "symlink", "hardlink_to", "symlink_to", "truncate"),
    *("read_bytes", "read_text", "write_bytes", "write_text", "touch", "sendfile", "mmap", "lockf", "flock", "chmod"),
}
_FILE = r"memory\.db|-wal\b|-shm\b|DATABASE_NAME"


def foreign_hands(root: Path) -> list[str]:
    """Calls that open, copy, move or remove a file whose expression names the database, its WAL or its shared memory.

    A name that was bound to such an expression in the same file counts as one.
    """
    faults = []
    for path, tree in parsed(root):
        names = _FILE
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and re.search(_FILE, ast.unparse(node.value), re.IGNORECASE):
                names += "".join(rf"|\b{target.id}\b" for target in node.targets if isinstance(target, ast.Name))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and called(node) in _TOUCHING:
                receiver = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
                words = " ".join(
                    [receiver, *map(ast.unparse, node.args), *(ast.unparse(k.value) for k in node.keywords)]
                )
                if re.search(names, words, re.IGNORECASE):
                    faults.append(f"{path}:{node.lineno}: {ast.unparse(node)}")
    return faults


def test_no_statement_is_executed_but_by_the_runner() -> None:
    assert bare_executes(SOURCE) == []


def test_no_literal_of_the_product_holds_several_statements() -> None:
    assert several_statements(SOURCE) == []


def test_nothing_but_sqlite_touches_the_files_of_the_database() -> None:
    assert foreign_hands(SOURCE) == []


def source(folder: Path, text: str) -> Path:
    (folder / "store").mkdir(exist_ok=True)
    (folder / "store" / "planted.py").write_text(text)
    (folder / RUNNER).write_text("def run(connection, s): return connection.execute(s).fetchall()")
    return folder


@pytest.mark.parametrize(
    "text",
    [
        "connection.execute('SELECT 1')",
        "def f():\n    for row in self._connection.cursor().execute(sql): yield row",
        "connection.executemany('INSERT INTO t VALUES(?)', rows)",
        "go = connection.execute\ngo('SELECT 1')",
    ],
)
def test_a_bare_execute_is_found(tmp_path: Path, text: str) -> None:
    assert len(bare_executes(source(tmp_path, text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "run(c, 'DELETE FROM t; DELETE FROM u')",
        "run(c, f'DELETE FROM {table}; DELETE FROM u;')",
        "run(c, 'VACUUM; ' + rest)",
        "one(c, 'VACUUM; SELECT 1')",
        "MIGRATIONS = ('CREATE TABLE a(x)', 'CREATE TABLE b(x); CREATE TABLE c(x)')",
        "run(c, 'SELECT 1 -- a note; and more\\n; SELECT 2')",
    ],
)
def test_several_statements_in_one_literal_are_found(tmp_path: Path, text: str) -> None:
    assert len(several_statements(source(tmp_path, text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "run(c, 'DELETE FROM t;')",
        """run(c, "SELECT 'a;b', ';' FROM t -- e; f")""",
        "run(c, SELECT_RECORD + ' WHERE m.id = ?', (';',))",
        "hint = 'Nothing was stored; try again.'",
    ],
)
def test_one_statement_with_semicolons_in_it_is_allowed(tmp_path: Path, text: str) -> None:
    assert several_statements(source(tmp_path, text)) == []


@pytest.mark.parametrize(
    "text",
    [
        "open(folder / 'memory.db', 'rb')",
        "os.open(f'{path}-wal', os.O_RDONLY)",
        "shutil.copy(folder / DATABASE_NAME, target)",
        "(folder / 'memory.db-shm').unlink()",
        "Path(str(folder / DATABASE_NAME) + '-wal').rename(aside)",
        "size = 1\nbase = folder / DATABASE_NAME\nbase.read_bytes()",
        "os.replace(src=new, dst=folder / 'memory.db')",
        "from shutil import move\nmove(folder / 'memory.db', aside)",
    ],
)
def test_a_hand_on_the_files_of_the_database_is_found(tmp_path: Path, text: str) -> None:
    assert len(foreign_hands(source(tmp_path, text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "exists = (folder / DATABASE_NAME).exists()",
        "os.open(folder / 'turn.outer', os.O_RDWR)",
        "name = f'{folder / DATABASE_NAME}'\nStoreConnection(quote(name), flags)",
        "raise StoreError('memory.db belongs to another program')",
    ],
)
def test_naming_the_database_without_touching_it_is_allowed(tmp_path: Path, text: str) -> None:
    assert foreign_hands(source(tmp_path, text)) == []


def test_the_runner_runs_a_statement_to_its_end_and_returns_every_row() -> None:
    connection = apsw.Connection(":memory:")
    run(connection, "CREATE TABLE t(x)")
    assert run(connection, "INSERT INTO t VALUES(?), (?) RETURNING x", (1, 2)) == [(1,), (2,)]
    assert run(connection, "SELECT x FROM t ORDER BY x") == [(1,), (2,)]
    assert one(connection, "SELECT x FROM t ORDER BY x DESC") == (2,)
    assert one(connection, "SELECT x FROM t WHERE x > 2") is None
