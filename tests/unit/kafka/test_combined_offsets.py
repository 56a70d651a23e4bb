"""A connector's own offsets topic over the global one, where one is out of reach for once."""

from typing import Any

import pytest

from headgate.offsets import encode_key, encode_value
from headgate.ports import LogRecord, TransportError
from headgate_kafka.offset_stores import CombinedOffsetLog

KEY, VALUE = encode_key("c", {"file": "a"}), encode_value({"n": 7})


class Topic:
    topic = "offsets"

    def __init__(self, *records: LogRecord, fails: int = 0) -> None:
        self._records = records
        self._fails = fails

    def read(self, position: int) -> tuple[list[LogRecord], int]:
        if self._fails:
            self._fails -= 1
            raise TransportError("away")
        return list(self._records[position:]), len(self._records)


@pytest.mark.parametrize("fails", [(0, 1), (1, 0), (1, 1), (0, 2)])
def test_what_was_read_before_the_other_topic_failed_is_shown_later(fails: tuple[int, int]) -> None:
    """A task that went on without it would read its source again."""
    record = LogRecord(0, KEY, VALUE, 1_000, (0, 0))
    topics: Any = Topic(record, fails=fails[0]), Topic(fails=fails[1])
    targets: Any = None
    log = CombinedOffsetLog("c", *topics, targets, lambda _line: None)
    for _ in range(sum(fails)):
        with pytest.raises(TransportError):
            log.read(0)
    found, _ = log.read(0)
    assert [(each.key, each.value) for each in found] == [(KEY, VALUE)]
