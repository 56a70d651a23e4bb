"""Garbage in an internal topic is logged with its place. A topic full of it does not fill the
log."""

import logging
import threading
from collections.abc import Callable

import pytest

from headgate.ports import TransportError
from headgate.topics.config_events import RecordRejected
from headgate.topics.status import StatusRejected
from headgate_runtime.worker import offsets_look
from headgate_runtime.worker.offsets_look import OffsetsLook
from headgate_runtime.worker.rejected_log import NAMED, Rejected, RejectedLog

SECONDS = 30


def rejected(offset: int) -> StatusRejected:
    return StatusRejected(f"k{offset}", "a key of no known kind", 3, offset)


def test_where_it_is_and_what_is_wrong(caplog: pytest.LogCaptureFixture) -> None:
    RejectedLog("status", "t").report(rejected(7))
    RejectedLog("config", "").report(RecordRejected(4, "x" * 1_000, "not JSON"))
    assert caplog.messages == [
        "status topic t, partition 3, offset 7, key 'k7': a key of no known kind; passed over",
        f"config topic, partition 0, offset 4, key '{'x' * 100}... (1000 characters)': not JSON; "
        "passed over",
    ]


def test_a_million_of_them_take_some_lines(caplog: pytest.LogCaptureFixture) -> None:
    told = RejectedLog("status", "t")
    for offset in range(1_000_000):
        told.report(rejected(offset))
    named = [line for line in caplog.messages if line.endswith("; passed over")]
    assert len(named) == NAMED
    rest = caplog.messages[NAMED:]
    assert rest[0].startswith("status topic t has more records that cannot be used")
    assert rest[1].startswith("status topic t: 100 records cannot be used so far; the last: ")
    assert "partition 3, offset 99, key 'k99'" in rest[1]
    assert len(rest) == 15


def test_a_look_that_fails_is_told_and_made_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offsets_look, "PAUSE_S", 0.0)
    caplog.set_level(logging.INFO)
    looked = threading.Semaphore(0)
    answers: list[Exception | None] = [TransportError("no broker"), None]

    def look(report: Callable[[Rejected], None]) -> None:
        looked.release()
        if (failure := answers.pop(0)) is not None:
            raise failure
        report(rejected(7))
        looked.release()

    made = OffsetsLook(look, "o")
    for wanted in (1, 2):
        made.soon()
        for _ in range(wanted):
            assert looked.acquire(timeout=SECONDS)
    made.close()
    assert caplog.messages == [
        "the offsets topic was not looked through: no broker",
        "offsets topic o, partition 3, offset 7, key 'k7': a key of no known kind; passed over",
    ]
