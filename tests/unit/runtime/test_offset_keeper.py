"""Source offsets of a standalone worker, between its log and the user's file."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate_embedded import EmbeddedTransport, open_transport, transport_settings
from headgate_runtime import standalone_transport
from headgate_runtime.offset_file import OffsetFile, OffsetFileError
from headgate_runtime.standalone_transport import OffsetKeeper

A, B = b'["c",{"file":"a"}]', b'["c",{"file":"b"}]'


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedTransport]:
    transport = open_transport(transport_settings(tmp_path / "log"))
    yield transport
    transport.close()


@pytest.fixture
def file(tmp_path: Path) -> OffsetFile:
    return OffsetFile(tmp_path / "connect.offsets")


def test_tasks_see_what_the_file_has(log: EmbeddedTransport, file: OffsetFile) -> None:
    file.save({A: b"1", B: None})
    keeper = OffsetKeeper(file, log.offset_log)
    keeper.load()
    records, _ = log.offset_log.read(0)
    assert {record.key: record.value for record in records} == {A: b"1"}
    keeper.close()
    assert file.load() == {A: b"1", B: None}  # nothing was new, so it is as it was


def test_the_file_follows_the_log(
    log: EmbeddedTransport, file: OffsetFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standalone_transport, "SAVE_S", 0.05)
    keeper = OffsetKeeper(file, log.offset_log)
    keeper.load()
    assert not file.path.exists()
    log.offset_log.append([(A, b"1"), (B, b"1")])
    until = time.monotonic() + 20
    while file.load() != {A: b"1", B: b"1"}:
        assert time.monotonic() < until
        time.sleep(0.01)
    written = file.path.stat().st_mtime_ns
    time.sleep(0.3)
    assert file.path.stat().st_mtime_ns == written  # unchanged, it is left alone
    log.offset_log.append([(A, b"2"), (B, None)])
    keeper.close()
    assert file.load() == {A: b"2"}


def test_a_file_that_cannot_be_written_is_tried_again(
    log: EmbeddedTransport, file: OffsetFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standalone_transport, "SAVE_S", 0.05)
    keeper = OffsetKeeper(OffsetFile(file.path.parent / "none" / "connect.offsets"), log.offset_log)
    keeper.load()
    log.offset_log.append([(A, b"1")])
    time.sleep(0.3)
    (file.path.parent / "none").mkdir()
    keeper.close()
    assert OffsetFile(file.path.parent / "none" / "connect.offsets").load() == {A: b"1"}


def test_a_strange_file_ends_the_start(log: EmbeddedTransport, file: OffsetFile) -> None:
    file.path.write_text("mine")
    with pytest.raises(OffsetFileError):
        OffsetKeeper(file, log.offset_log).load()
    assert file.path.read_text() == "mine"
