"""A connector's own offsets topic is read over the global one, also when one of them was out of
reach."""

from typing import Any

import pytest

from headgate.ports import LogRecord, TransportError
from headgate.topics.offsets import encode_key, encode_value
from headgate_kafka.admin.doctor import _written
from headgate_kafka.logs.offset_stores import CombinedOffsetLog, stale_own_topic

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

    def end(self) -> int:
        return len(self._records)


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


OTHER = encode_key("c", {"file": "b"})
OLD_MS, NEW_MS = 1_000_000, 2_000_000


@pytest.mark.parametrize(
    ("own", "shared", "stale"),
    [
        # Reset while exactly-once was off.
        ([(KEY, VALUE, OLD_MS)], [(KEY, VALUE, OLD_MS), (KEY, None, NEW_MS)], True),
        # Forgotten in both while it was on, the one partition or all.
        (
            [(OTHER, VALUE, OLD_MS), (KEY, None, NEW_MS)],
            [(OTHER, VALUE, OLD_MS), (KEY, None, NEW_MS - 50)],
            False,
        ),
        ([(KEY, VALUE, OLD_MS), (KEY, None, NEW_MS)], [(KEY, None, NEW_MS)], False),
        # What was forgotten long ago wins over nothing.
        ([(KEY, VALUE, 1), (KEY, None, OLD_MS)], [(KEY, VALUE, NEW_MS)], False),
        ([], [(KEY, VALUE, NEW_MS)], False),
    ],
)
def test_what_was_forgotten_counts_as_written(own: Any, shared: Any, stale: bool) -> None:
    told: list[str] = []
    topics: Any = tuple(
        Topic(*(LogRecord(n, *record, (0, n)) for n, record in enumerate(records, 1)))
        for records in (own, shared)
    )
    targets: Any = None
    CombinedOffsetLog("c", *topics, targets, told.append).end()
    assert bool(told) == stale
    # The doctor, of the same topics.
    own_ms, stands = _written(topics[0], "c")
    shared_ms, _ = _written(topics[1], "c")
    said = stale_own_topic("c", "own", "offsets", own_ms if stands else 0, shared_ms)
    assert bool(said) == stale
