"""The SQLite file: its tables, its creation, and the check that refuses files of other kinds."""

import os
import struct
import time
from pathlib import Path
from typing import Final
from urllib.parse import quote

import apsw

from headgate.ports import TransportError
from headgate_embedded.descriptors import kept_open
from headgate_embedded.private import create_private, make_private, make_private_folder

FILE_NAME: Final = "headgate.db"
APPLICATION_ID: Final = int.from_bytes(b"HEDG", "big")
SCHEMA_VERSION: Final = 1
BATCHES_VERSION: Final = 2
"""Version of a file that holds batches of Arrow rows. An older Headgate refuses it by this number.
The tables are the same."""
VERSIONS: Final = (SCHEMA_VERSION, BATCHES_VERSION)
SQLITE_VERSION_MIN: Final = (3, 51, 3)
PAGE_SIZE: Final = 8192
CHECKS: Final = 50
CHECK_PAUSE_S: Final = 0.02
_HEADER: Final = struct.Struct(">60xI4xI")
"""The database header: user version and application id."""

TABLES: Final[dict[str, str]] = {
    # Every record is kept: compacting by key can lose a commit whose connector record moved
    # behind it.
    "config_log": """create table config_log(
        position integer primary key, key text not null, value blob, timestamp_ms integer not null
    )""",
    # The last claim of the right to write privileged records. `epoch` counts claims.
    "claims": """create table claims(
        name text primary key, generation integer not null, epoch integer not null
    ) without rowid""",
    # Offsets topic and status topic: the latest value of each key, and the number of its last
    # change.
    "latest": """create table latest(
        log text not null, change integer not null, key blob not null, value blob,
        timestamp_ms integer not null, primary key (log, change)
    )""",
    "changes": "create table changes(log text primary key, last integer not null) without rowid",
    "topics": """create table topics(
        id integer primary key, name text not null unique, partitions integer not null
    )""",
    "heads": """create table heads(
        topic integer not null, part integer not null, next integer not null,
        primary key (topic, part)
    ) without rowid""",
    # One row per batch: 4 to 6 times as fast as one row per record.
    "batches": """create table batches(
        id integer primary key, topic integer not null, part integer not null,
        base integer not null, count integer not null, data blob not null
    )""",
    # `owner` is for people. A producer is fenced by raising its epoch by 1.
    "producers": """create table producers(
        tid text primary key, epoch integer not null, owner text not null
    ) without rowid""",
    "committed": """create table committed(
        grp text not null, topic text not null, part integer not null, position integer not null,
        primary key (grp, topic, part)
    ) without rowid""",
    # State of the coordinator machine. If `boot` is another one, all memberships have ended.
    "groups": """create table groups(
        name text primary key, boot text not null, deadline_ms integer, state blob not null
    ) without rowid""",
    "responses": """create table responses(
        id integer primary key, mailbox text not null, body blob not null,
        made_ms integer not null
    )""",
    # The mailbox that gets the responses to a member's requests.
    "mailboxes": """create table mailboxes(
        grp text not null, member_id text not null, mailbox text not null,
        primary key (grp, member_id)
    ) without rowid""",
    # Calls from worker to worker. After `deadline_ms` (monotonic), or another boot, no caller
    # waits.
    "calls": """create table calls(
        id text primary key, url text not null, payload blob not null, hops integer not null,
        boot text not null, deadline_ms integer not null, taken integer not null default 0,
        answer blob
    ) without rowid""",
}
INDEXES: Final[tuple[str, ...]] = (
    "create unique index latest_by_key on latest(log, key)",
    "create unique index batches_by_base on batches(topic, part, base)",
    "create index responses_by_mailbox on responses(mailbox, id)",
    "create index calls_by_url on calls(url, taken)",
)


class RefusedError(TransportError):
    """This file, library or machine cannot serve as the embedded log. Trying again does not
    help."""


def check_library(version: str) -> None:
    """Refuse SQLite before 3.51.3. Versions 3.7.0 to 3.51.2 can lose committed pages in WAL mode
    when a commit races with a second checkpoint of another process. (SQLite's documentation calls
    it the WAL-reset bug.)

    Raises:
        RefusedError: `version` is too old.
    """
    if tuple(int(part) for part in version.split(".")[:3]) < SQLITE_VERSION_MIN:
        raise RefusedError(
            f"SQLite {version} can lose committed data when several processes write (WAL-reset "
            "bug), expected 3.51.3 or later: install a newer apsw"
        )


def make_if_absent(path: Path) -> None:
    """Create the file atomically, unless it exists. Several processes may try at once.

    Only its owner may access the file, also if it existed before. The files that SQLite makes
    beside it get the same mode.
    """
    if path.exists():
        make_private([path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")])
        return
    if not path.parent.exists():
        make_private_folder(path.parent)
    draft = path.with_name(f"{path.name}.{os.getpid()}.{os.urandom(4).hex()}.new")
    try:
        create_private(draft)
        connection = apsw.Connection(str(draft))
        try:
            connection.execute(f"pragma page_size = {PAGE_SIZE}")
            connection.execute("pragma journal_mode = wal")
            connection.execute("begin immediate")
            connection.execute(f"pragma application_id = {APPLICATION_ID}")
            connection.execute(f"pragma user_version = {SCHEMA_VERSION}")
            for statement in (*TABLES.values(), *INDEXES):
                connection.execute(statement)
            connection.execute("commit")
        finally:
            connection.close()
        try:
            os.link(draft, path)  # unlike a rename, it never replaces an existing file
        except FileExistsError:
            return
    except (apsw.Error, OSError) as error:
        raise TransportError(f"{path} cannot be made: {error}") from error
    finally:
        draft.unlink(missing_ok=True)


def check_file(path: Path) -> None:
    """Refuse a file that is not an embedded log of a known version. Neither the file nor its folder
    is changed.

    The file is read without locks. So it may seem corrupt while another process copies the
    write-ahead log into it. It is refused only if two checks in a row find the same file with the
    same fault.

    Raises:
        RefusedError: the file is no such log.
    """
    seen: tuple[object, ...] = ()
    for left in reversed(range(CHECKS)):
        try:
            _check_once(path)
        except RefusedError as error:
            now = (str(error), *_signature(path))
            if now == seen or not left:
                raise
            seen = now
            time.sleep(CHECK_PAUSE_S)
        else:
            return


def _signature(path: Path) -> tuple[int, ...]:
    """Return a value that differs once the file or its write-ahead log has changed."""
    found: list[int] = []
    for one in (path, path.with_name(path.name + "-wal")):
        try:
            stat = one.stat()
        except OSError:
            found.append(-1)
        else:
            found += stat.st_size, stat.st_mtime_ns, stat.st_ino
    return tuple(found)


def _check_once(path: Path) -> None:
    try:
        header = os.pread(kept_open(path), 100, 0)
    except OSError as error:
        raise RefusedError(f"{path} cannot be read: {error}") from error
    if len(header) < 100 or not header.startswith(b"SQLite format 3\0"):
        raise RefusedError(f"{path} is no SQLite database; left as is: name another data folder")
    version, application_id = _HEADER.unpack_from(header)
    if application_id != APPLICATION_ID:
        raise RefusedError(
            f"{path} is a database of another application (id {application_id:#x}, expected "
            f"{APPLICATION_ID:#x}); left as is: name another data folder"
        )
    if version not in VERSIONS:
        raise RefusedError(
            f"{path} has schema version {version}, expected {SCHEMA_VERSION} or "
            f"{BATCHES_VERSION}; left as is"
        )
    write_ahead = path.with_name(path.name + "-wal")
    try:
        behind = write_ahead.stat().st_size > 0
    except FileNotFoundError:
        behind = False
    if not behind:
        _check_tables(path)
    # With a write-ahead log, after a crash for example, the tables may only be in there, and SQLite
    # recovers them.


def _check_tables(path: Path) -> None:
    """Check that all tables exist. The file is opened as `immutable`: without locks, write-ahead
    log and recovery."""
    try:
        connection = apsw.Connection(
            f"file:{quote(str(path))}?immutable=1",
            flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
        )
        try:
            rows = connection.execute("select name from sqlite_schema where type = 'table'")
            tables = {row[0] for row in rows}
        finally:
            connection.close()
    except apsw.Error as error:
        raise RefusedError(f"{path} is corrupt: {error}; left as is") from error
    if missing := sorted(TABLES.keys() - tables):
        raise RefusedError(f"{path} is corrupt: no table {', '.join(missing)}; left as is")
