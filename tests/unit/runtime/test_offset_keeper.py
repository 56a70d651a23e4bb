"""Source offsets of a standalone worker are kept equal in its log and in the user's file."""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from headgate_embedded import EmbeddedTransport, open_transport, transport_settings
from headgate_runtime.standalone.offset_file import OffsetFile, OffsetFileError
from headgate_runtime.transports import standalone as standalone_transport
from headgate_runtime.transports.standalone import OffsetKeeper

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
    until(lambda: file.load() == {A: b"1", B: b"1"})
    written = file.path.stat().st_mtime_ns
    time.sleep(0.3)
    assert file.path.stat().st_mtime_ns == written  # unchanged, it is left alone
    log.offset_log.append([(A, b"2"), (B, None)])
    keeper.close()
    assert file.load() == {A: b"2"}


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Refusing(OffsetFile):
    """A file that counts how often it was tried to write it, and may be made to fail."""

    error: OSError | None = None
    tried = 0

    def save(self, offsets: Mapping[bytes, bytes | None]) -> None:
        self.tried += 1
        if self.error is not None:
            raise self.error
        super().save(offsets)


def test_a_file_that_cannot_be_written_is_tried_again_and_told_of_once(
    log: EmbeddedTransport,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(standalone_transport, "SAVE_S", 0.01)
    file = Refusing(tmp_path / "connect.offsets")
    keeper = OffsetKeeper(file, log.offset_log)
    keeper.load()
    full, gone = OSError(28, "No space left on device"), OSError(2, "No such file or directory")
    for count, error, times in ((1, full, 1), (2, gone, 2), (3, None, 2), (4, gone, 3)):
        file.error, tried = error, file.tried
        log.offset_log.append([(A, b"%d" % count)])
        if error is None:
            until(lambda: file.load() == {A: b"3"})
        else:
            until(lambda least=tried + 5: file.tried > least)
        told = [record.getMessage() for record in caplog.records]
        assert len(told) == times
    assert told[0] == f"{file.path} cannot be written, trying again: No space left on device"
    file.error = None
    keeper.close()
    assert file.load() == {A: b"4"}


def test_offsets_that_are_lost_at_the_end_are_told_of(
    log: EmbeddedTransport, tmp_path: Path
) -> None:
    file = Refusing(tmp_path / "connect.offsets")
    keeper = OffsetKeeper(file, log.offset_log)
    keeper.load()
    log.offset_log.append([(A, b"1")])
    file.error = OSError(28, "No space left on device")
    with pytest.raises(
        OffsetFileError, match=r"offsets cannot be written: No space .* were not written"
    ):
        keeper.close()


def test_a_strange_file_ends_the_start(log: EmbeddedTransport, file: OffsetFile) -> None:
    file.path.write_text("mine")
    with pytest.raises(OffsetFileError):
        OffsetKeeper(file, log.offset_log).load()
    assert file.path.read_text() == "mine"
