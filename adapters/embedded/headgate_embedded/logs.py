"""Internal topics on the embedded log: the config log, and compacted logs."""

import threading
from collections.abc import Sequence
from typing import Any, Final

import apsw

from headgate.ports import FencedError, LogRecord
from headgate_embedded.database import Database, Watch
from headgate_embedded.machine import wall_ms

_CLAIM: Final = "config"


class EmbeddedConfigLog:
    """The config topic. It keeps every record, and always fences privileged writers."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._watch = Watch(database)
        self._mutex = threading.Lock()
        self._end = 0
        self._epoch: int | None = None

    def claim(self, generation: int) -> None:
        with self._database.write() as connection:
            row = connection.execute(
                "select generation, epoch from claims where name = ?", (_CLAIM,)
            ).fetchone()
            held, epoch = row or (-1, 0)
            if generation < held:
                raise FencedError(
                    f"the config log was claimed in generation {held}, after generation "
                    f"{generation} of this worker"
                )
            connection.execute(
                "replace into claims(name, generation, epoch) values(?, ?, ?)",
                (_CLAIM, generation, epoch + 1),
            )
        self._epoch = epoch + 1

    def append(self, records: Sequence[tuple[str, bytes | None]], *, privileged: bool) -> int:
        now = wall_ms()
        with self._database.write() as connection:
            if privileged:
                row = connection.execute(
                    "select epoch, generation from claims where name = ?", (_CLAIM,)
                ).fetchone()
                if self._epoch is None or row is None or row[0] != self._epoch:
                    raise FencedError(
                        f"claim {self._epoch} of the config log is over; the last one is {row[0]}, "
                        f"made in generation {row[1]}"
                        if row and self._epoch is not None
                        else "the config log was not claimed by this writer"
                    )
            end = _config_end(connection)
            connection.executemany(
                "insert into config_log(position, key, value, timestamp_ms) values(?, ?, ?, ?)",
                [(end + n, key, value, now) for n, (key, value) in enumerate(records)],
            )
        return end + len(records)

    def read(self, position: int, limit: int = 5_000) -> tuple[Sequence[LogRecord], int]:
        with self._mutex:
            if not self._watch.changed() and position >= self._end:
                return [], position
            with self._watch.looking(), self._database.read() as connection:
                rows: list[Any] = connection.execute(
                    "select position, key, value, timestamp_ms from config_log "
                    "where position >= ? order by position limit ?",
                    (position, limit),
                ).fetchall()
                self._end = _config_end(connection)
        found = [LogRecord(row[0], row[1].encode(), row[2], row[3]) for row in rows]
        return found, found[-1].offset + 1 if found else position

    def end(self) -> int:
        with self._database.read() as connection:
            return _config_end(connection)

    def end_in(self, connection: apsw.Connection) -> int:
        """As `end`, inside the caller's transaction."""
        return _config_end(connection)

    def close(self) -> None:
        self._watch.close()


class EmbeddedKeyedLog:
    """The offsets topic or the status topic: the latest value of each key, in order of change."""

    def __init__(self, database: Database, name: str) -> None:
        self._database = database
        self._name = name
        self._watch = Watch(database)
        self._mutex = threading.Lock()
        self._end = -1

    def append(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        with self._database.write() as connection:
            append_latest(connection, self._name, records)

    def read(self, position: int, limit: int = 5_000) -> tuple[Sequence[LogRecord], int]:
        with self._mutex:
            if not self._watch.changed() and position >= self._end:
                return [], position
            with self._watch.looking(), self._database.read() as connection:
                rows: list[Any] = connection.execute(
                    "select change, key, value, timestamp_ms from latest "
                    "where log = ? and change > ? order by change limit ?",
                    (self._name, position, limit),
                ).fetchall()
                self._end = _last_change(connection, self._name)
        if not rows:
            return [], position
        return [LogRecord(*row) for row in rows], int(rows[-1][0])

    def end(self) -> int:
        with self._database.read() as connection:
            return _last_change(connection, self._name)

    def rest(self) -> None:
        """Do nothing. A reader holds only a connection, which belongs to the database."""

    def close(self) -> None:
        self._watch.close()


def append_latest(
    connection: apsw.Connection, log: str, records: Sequence[tuple[bytes, bytes | None]]
) -> None:
    """Set the latest values of keys, inside the caller's transaction. Tombstones are kept."""
    if not records:
        return
    change = _last_change(connection, log)
    now = wall_ms()
    connection.executemany(
        "replace into latest(log, change, key, value, timestamp_ms) values(?, ?, ?, ?, ?)",
        [(log, change + n, key, value, now) for n, (key, value) in enumerate(records, start=1)],
    )
    connection.execute("replace into changes(log, last) values(?, ?)", (log, change + len(records)))


def _last_change(connection: apsw.Connection, log: str) -> int:
    row = connection.execute("select last from changes where log = ?", (log,)).fetchone()
    return int(row[0]) if row else 0


def _config_end(connection: apsw.Connection) -> int:
    row = connection.execute("select max(position) + 1 from config_log").fetchone()
    return int(row[0]) if row and row[0] is not None else 0
