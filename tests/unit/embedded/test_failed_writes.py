"""A write that SQLite refuses is reported once as `TransportError`, leaves nothing half done, and
can be repeated."""

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from headgate.membership.consumer import ConsumerSettings
from headgate.ports import ProducerRecord, TransportError
from headgate_embedded import EmbeddedTransport
from headgate_embedded import database as database_module
from headgate_embedded.database import Database
from headgate_embedded.machine import MonotonicClock
from headgate_embedded.schema import FILE_NAME


class FullDisk:
    """A log that may not grow until `free` is called."""

    def __init__(self, folder: Path) -> None:
        self._database = Database(folder / FILE_NAME)
        self.transport = EmbeddedTransport(
            self._database, "", MonotonicClock(), ConsumerSettings(), "none"
        )
        self.transport.record_log.create_topic("t", 1)
        self._limit("1")

    def free(self) -> None:
        self._limit("1000000")

    def _limit(self, pages: str) -> None:
        # The connection that was used last is the next to be used.
        with self._database.write() as connection:
            connection.execute(f"pragma max_page_count = {pages}").fetchall()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FullDisk]:
    made = FullDisk(tmp_path)
    yield made
    made.transport.close()


RECORDS = [ProducerRecord("t", 0, None, b"%d" % n + b"x" * 1_000) for n in range(500)]


def values(disk: FullDisk) -> list[bytes | None]:
    return [r.value for r in disk.transport.record_log.read("t", 0, 0, 1_000, 1_000)]


def test_transaction_stays_open(disk: FullDisk) -> None:
    producer = disk.transport.record_log.producer("c", "g-c-0", None)
    producer.init()
    producer.send(RECORDS)
    with pytest.raises(TransportError, match="FullError"):
        producer.commit([(b"source", b"1")])
    assert values(disk) == []
    assert disk.transport.offset_log.read(0) == ([], 0)
    disk.free()
    producer.commit([(b"source", b"1")])
    assert values(disk) == [r.value for r in RECORDS]
    assert [r.value for r in disk.transport.offset_log.read(0)[0]] == [b"1"]


def test_records_without_transaction_stay_buffered(disk: FullDisk) -> None:
    producer = disk.transport.record_log.producer("c", None, None)
    producer.send(RECORDS)
    with pytest.raises(TransportError, match="FullError"):
        producer.acks()
    disk.free()
    [ack] = producer.acks()
    assert (ack.first, ack.last) == (0, 499)
    assert values(disk) == [r.value for r in RECORDS]


def test_append_leaves_nothing(disk: FullDisk) -> None:
    log = disk.transport.config_log
    with pytest.raises(TransportError, match="FullError"):
        log.append([(f"k{n}", b"x" * 10_000) for n in range(10)], privileged=False)
    assert (log.end(), log.read(0)) == (0, ([], 0))
    disk.free()
    assert log.append([("k", b"v")], privileged=False) == 1


def test_a_connection_whose_transaction_cannot_be_ended_is_not_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database(tmp_path / FILE_NAME)

    def fail(_connection: apsw.Connection, _statement: str) -> None:
        raise apsw.IOError("disk on fire")

    with monkeypatch.context() as broken:
        broken.setattr(database_module, "_end", fail)
        with pytest.raises(TransportError, match="on fire"), database.write():
            raise ValueError("the writer's own")
    for _ in range(2):
        with database.write() as connection:
            connection.execute("insert into changes(log, last) values(hex(randomblob(4)), 1)")
    database.close()
