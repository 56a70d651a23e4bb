"""Files that the embedded log refuses to open, and leaves as they were."""

import sqlite3
from pathlib import Path

import apsw
import pytest

from headgate import ports
from headgate.ports import ProducerRecord, TransportError
from headgate_embedded import (
    RefusedError,
    boot_id,
    check_machine,
    open_reader,
    open_transport,
    schema,
    transport_settings,
)
from headgate_embedded.schema import FILE_NAME, check_library


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def refused(folder: Path, match: str) -> None:
    before = contents(folder)
    with pytest.raises(RefusedError, match=match):
        open_transport(transport_settings(folder))
    with pytest.raises(RefusedError, match=match):
        open_reader(folder)
    assert contents(folder) == before


def test_log_is_made_and_found_again(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    one = open_transport(transport_settings(folder))
    one.config_log.append([("k", b"v")], privileged=False)
    one.close()
    other = open_transport(transport_settings(folder))
    assert [r.value for r in other.config_log.read(0)[0]] == [b"v"]
    other.close()
    reader = open_reader(folder)
    assert reader.config_log.end() == 1
    assert reader.describe_group("workers").members == ()
    reader.close()


def test_topics_under_names_that_no_new_one_may_have_stay(tmp_path: Path) -> None:
    """Earlier versions made them."""
    open_transport(transport_settings(tmp_path)).close()
    file = sqlite3.connect(tmp_path / FILE_NAME)
    file.execute("insert into topics(name, partitions) values('a b/../c', 1)")
    file.execute("insert into heads(topic, part, next) select id, 0, 0 from topics")
    file.commit()
    file.close()
    transport = open_transport(transport_settings(tmp_path))
    log = transport.record_log
    assert log.topic_names() == ["a b/../c"]
    log.create_topic("a b/../c", 3)
    assert log.partitions("a b/../c") == 1
    producer = log.producer("p", None, None)
    producer.send([ProducerRecord("a b/../c", 0, None, b"v")])
    assert [one.error for one in producer.acks()] == [None]
    assert [one.value for one in log.read("a b/../c", 0, 0, 1, 10)] == [b"v"]
    with pytest.raises(ports.RefusedError, match="is no name of a topic"):
        log.create_topic("a b/../d", 1)
    transport.close()


def test_text_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("not a database\n" * 100)
    refused(tmp_path, "no SQLite database")


def test_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).touch()
    refused(tmp_path, "no SQLite database")


def test_folder_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).mkdir()
    refused(tmp_path, "cannot be read|no SQLite database")


def test_database_of_another_application_is_refused(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    connection.execute("create table config_log(position, key, value)")
    connection.commit()
    connection.close()
    refused(tmp_path, "another application")


def test_foreign_database_with_a_log_to_recover_is_refused(tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / FILE_NAME))
    connection.pragma("journal_mode", "wal")
    connection.execute("create table theirs(x)")
    assert (tmp_path / (FILE_NAME + "-wal")).stat().st_size > 0
    refused(tmp_path, "another application")
    connection.close()


def test_other_schema_version_is_refused(tmp_path: Path) -> None:
    open_transport(transport_settings(tmp_path)).close()
    connection = apsw.Connection(str(tmp_path / FILE_NAME))
    connection.execute("pragma user_version = 99")
    connection.close()
    refused(tmp_path, "schema version 99, expected 1")


@pytest.mark.parametrize("kept", [8192 + 100, 40_000])
def test_file_cut_short_is_refused(tmp_path: Path, kept: int) -> None:
    open_transport(transport_settings(tmp_path)).close()
    path = tmp_path / FILE_NAME
    path.write_bytes(path.read_bytes()[:kept])
    refused(tmp_path, "corrupt")


def test_file_overwritten_behind_its_header_is_refused(tmp_path: Path) -> None:
    open_transport(transport_settings(tmp_path)).close()
    path = tmp_path / FILE_NAME
    data = bytearray(path.read_bytes())
    data[100:8192] = b"\xff" * (8192 - 100)
    path.write_bytes(data)
    refused(tmp_path, "corrupt")


def test_a_file_that_another_process_is_changing_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that moves its write-ahead log into the file makes it look corrupt for a moment."""
    open_transport(transport_settings(tmp_path)).close()
    path = tmp_path / FILE_NAME
    whole = path.read_bytes()
    halves = [whole[:40_000], whole[:50_000], whole]
    path.write_bytes(whole[:30_000])
    monkeypatch.setattr(schema.time, "sleep", lambda _: path.write_bytes(halves.pop(0)))
    open_transport(transport_settings(tmp_path)).close()
    assert halves == []


def test_log_of_a_process_that_crashed_is_recovered(tmp_path: Path) -> None:
    one = open_transport(transport_settings(tmp_path))
    one.config_log.append([("k", b"v")], privileged=False)
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in (FILE_NAME, FILE_NAME + "-wal"):
        (copy / name).write_bytes((tmp_path / name).read_bytes())
    assert (copy / (FILE_NAME + "-wal")).stat().st_size > 0
    one.close()
    other = open_transport(transport_settings(copy))
    assert [r.value for r in other.config_log.read(0)[0]] == [b"v"]
    other.close()


def test_reader_of_no_log_makes_none(tmp_path: Path) -> None:
    with pytest.raises(RefusedError):
        open_reader(tmp_path)
    assert contents(tmp_path) == {}


def test_reader_does_not_write(tmp_path: Path) -> None:
    open_transport(transport_settings(tmp_path)).close()
    reader = open_reader(tmp_path)
    with pytest.raises(TransportError, match="opened for reading"):
        reader.config_log.append([("k", b"v")], privileged=False)
    reader.close()


def test_calls_after_close_are_told_so(tmp_path: Path) -> None:
    transport = open_transport(transport_settings(tmp_path))
    transport.close()
    with pytest.raises(TransportError, match="was closed"):
        transport.config_log.read(0)


@pytest.mark.parametrize("version", ["3.40.1", "3.51.2"])
def test_sqlite_with_the_wal_reset_bug_is_refused(version: str) -> None:
    with pytest.raises(RefusedError, match="WAL-reset bug"):
        check_library(version)


def test_sqlite_without_it_is_taken() -> None:
    check_library("3.51.3")
    check_library("3.100.0")


def test_process_on_another_machine_is_refused_before_it_opens_anything(tmp_path: Path) -> None:
    settings = transport_settings(tmp_path / "data")
    check_machine(settings)
    with pytest.raises(RefusedError, match=boot_id()):
        open_transport(settings | {"boot.id": "11111111-2222-3333-4444-555555555555"})
    assert not (tmp_path / "data").exists()
