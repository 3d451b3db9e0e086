"""The tables of a store and how older ones become them.

Owns: the schema version, the base tables, the migrations. Faults it survives: several first openers at once, a kill
between any two statements (a migration is one transaction), a store made by a newer version (refused, untouched).
"""

from __future__ import annotations

import apsw

from holdtrue import failpoints
from holdtrue.clock import now_us
from holdtrue.enforces import enforces
from holdtrue.errors import StoreTooNew, StoreUnusable
from holdtrue.store.statements import one, run

APPLICATION_ID = 0x486F6C64  # "Hold", so that `file memory.db` and a stray database can be told apart

PAGE_BYTES = 4096  # what SQLite chooses for a new database

# Tables that hold what was told to us. Every other table is derived from them and belongs to the registry.
BASE_TABLES = frozenset(
    {
        *("meta", "names", "memories", "tags", "keys", "sources", "revisions", "tombstones", "erasures", "events"),
        *("aliases", "copies", "stale_vectors"),
    }
)

# Left out where sqlite-vec cannot be loaded; the next writer that has it makes the table, see `store.vectors`.
# A write after another process' write reads its chunk again: 128 vectors a chunk make that a third cheaper than the
# default 1,024, and a search is as fast.
VECTOR_TABLE = """CREATE VIRTUAL TABLE IF NOT EXISTS memories_vec USING vec0(embedding float[256] distance_metric=cosine,
    user_id integer, project_id integer, session_id integer, at_us integer, chunk_size=128)"""

_VERSION_1 = (
    "CREATE TABLE meta(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE names(id INTEGER PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL, UNIQUE(kind, name))",
    """CREATE TABLE memories(
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        text TEXT NOT NULL,
        digest BLOB NOT NULL CHECK(length(digest) = 32),
        user_id INTEGER NOT NULL REFERENCES names(id),
        project_id INTEGER NOT NULL REFERENCES names(id),
        session_id INTEGER NOT NULL REFERENCES names(id),
        speaker TEXT NOT NULL,
        at_us INTEGER NOT NULL,
        valid_from_us INTEGER NOT NULL,
        created_us INTEGER NOT NULL,
        updated_us INTEGER NOT NULL,
        metadata TEXT NOT NULL,
        source TEXT NOT NULL,
        revision INTEGER NOT NULL CHECK(revision >= 1),
        UNIQUE(user_id, project_id, digest))""",
    "CREATE INDEX memories_by_time ON memories(at_us DESC, seq DESC)",
    """CREATE TABLE tags(memory INTEGER NOT NULL REFERENCES memories(seq) ON DELETE CASCADE, tag TEXT NOT NULL,
        PRIMARY KEY(tag, memory)) WITHOUT ROWID""",
    "CREATE INDEX tags_by_memory ON tags(memory)",
    """CREATE TABLE keys(user_id INTEGER NOT NULL, project_id INTEGER NOT NULL, key TEXT NOT NULL,
        digest BLOB NOT NULL, memory INTEGER NOT NULL REFERENCES memories(seq) ON DELETE CASCADE,
        PRIMARY KEY(user_id, project_id, key)) WITHOUT ROWID""",
    "CREATE INDEX keys_by_memory ON keys(memory)",
    """CREATE TABLE sources(memory INTEGER NOT NULL REFERENCES memories(seq) ON DELETE CASCADE, source TEXT NOT NULL,
        times INTEGER NOT NULL, last_us INTEGER NOT NULL, PRIMARY KEY(memory, source)) WITHOUT ROWID""",
    """CREATE TABLE revisions(memory INTEGER NOT NULL REFERENCES memories(seq) ON DELETE CASCADE,
        revision INTEGER NOT NULL, text TEXT NOT NULL, from_us INTEGER NOT NULL, until_us INTEGER NOT NULL,
        PRIMARY KEY(memory, revision)) WITHOUT ROWID""",
    "CREATE TABLE tombstones(id TEXT PRIMARY KEY, forgotten_us INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE erasures(id TEXT PRIMARY KEY, since_us INTEGER NOT NULL) WITHOUT ROWID",
    """CREATE TABLE events(seq INTEGER PRIMARY KEY, at_us INTEGER NOT NULL, kind TEXT NOT NULL,
        memory TEXT NOT NULL)""",
    # Derived from here on.
    "CREATE VIRTUAL TABLE memories_fts USING fts5(body, tokenize='porter unicode61 remove_diacritics 2')",
    "INSERT INTO memories_fts(memories_fts, rank) VALUES('secure-delete', 1)",
    "CREATE TABLE pending_vectors(memory INTEGER PRIMARY KEY, since_us INTEGER NOT NULL, reason TEXT NOT NULL)",
)

_VERSION_2 = (
    # For the filters of a search, and to tell whether a name is still used by any memory.
    "CREATE INDEX memories_by_project ON memories(project_id, at_us DESC, seq DESC)",
    "CREATE INDEX memories_by_session ON memories(session_id, at_us DESC, seq DESC)",
    # Files that may hold what is forgotten later: a receipt names them.
    """CREATE TABLE copies(path TEXT PRIMARY KEY, kind TEXT NOT NULL, at_us INTEGER NOT NULL, holds INTEGER NOT NULL)
        WITHOUT ROWID""",
    # Rows of memories_vec that a process without sqlite-vec could not remove; the next one with it does.
    "CREATE TABLE stale_vectors(memory INTEGER PRIMARY KEY)",
    # Ids of imported memories whose text another one had already: they are forgotten with it.
    """CREATE TABLE aliases(id TEXT PRIMARY KEY, memory INTEGER NOT NULL REFERENCES memories(seq) ON DELETE CASCADE)
        WITHOUT ROWID""",
    "CREATE INDEX aliases_by_memory ON aliases(memory)",
)

# Migration N brings version N - 1 to N.
MIGRATIONS: tuple[tuple[str, ...], ...] = (_VERSION_1, _VERSION_2)
VERSION = len(MIGRATIONS)


@enforces("INV-018")
def version_of(connection: apsw.Connection) -> int:
    """The schema version; 0 for an empty file. Raises `StoreUnusable` for another program's database."""
    version = int(connection.pragma("user_version"))
    application = int(connection.pragma("application_id"))
    if application not in (0, APPLICATION_ID):
        raise StoreUnusable("memory.db belongs to another program.", hint="Choose another --store folder.")
    if application == 0 and (version != 0 or one(connection, "SELECT 1 FROM sqlite_schema LIMIT 1")):
        raise StoreUnusable("memory.db is a database, but not a HoldTrue store.", hint="Choose another --store folder.")
    if version > VERSION:
        raise StoreTooNew(f"The store has schema version {version}; this program knows {VERSION}.")
    return version


def has_vec0(connection: apsw.Connection) -> bool:
    """Whether sqlite-vec is loaded into this connection."""
    return one(connection, "SELECT 1 FROM pragma_module_list WHERE name = 'vec0'") is not None


@enforces("INV-003", "INV-018")
def migrate(connection: apsw.Connection) -> None:
    """Bring the store to `VERSION`, in one transaction an upgrade.

    The version is read again inside BEGIN IMMEDIATE: whoever waited for the lock finds the work done and does nothing.
    """
    failpoints.hit("schema.before_begin")
    run(connection, "BEGIN IMMEDIATE")
    try:
        for number in range(version_of(connection) + 1, VERSION + 1):
            for statement in MIGRATIONS[number - 1]:
                failpoints.hit("schema.statement")
                run(connection, statement)
            connection.pragma("user_version", number)
        connection.pragma("application_id", APPLICATION_ID)
        if has_vec0(connection):
            failpoints.hit("schema.statement")
            run(connection, VECTOR_TABLE)
        run(connection, "INSERT OR IGNORE INTO meta VALUES('created_us', ?)", (str(now_us()),))
        failpoints.hit("schema.before_commit")
        run(connection, "COMMIT")
    except BaseException:
        if connection.in_transaction:
            run(connection, "ROLLBACK")
        raise
