"""A task finds its source offsets whatever its connector is called, and whenever it asks."""

from collections.abc import Sequence

import pytest

from headgate.offsets import encode_key, encode_value
from headgate.ports import LogRecord
from headgate_runtime.tasks.offsets import SourceOffsets


class OneTopic:
    """An offsets topic that is written before it is read."""

    def __init__(self, key: bytes, value: bytes | None) -> None:
        self.records = [LogRecord(0, key, value)]

    def append(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        raise AssertionError(records)

    def read(self, position: int, limit: int = 5_000) -> tuple[Sequence[LogRecord], int]:
        return self.records[position : position + limit], len(self.records)

    def end(self) -> int:
        return len(self.records)

    def rest(self) -> None:
        """It holds nothing."""


@pytest.mark.parametrize("name", ["src", 'quote"', "a/b c", "größe", "😀", "tab\there"])
def test_offsets_are_found(name: str) -> None:
    topic = OneTopic(encode_key(name, {"f": "x"}), encode_value({"n": 1}))
    assert SourceOffsets(topic, name).offset({"f": "x"}) == {"n": 1}
    assert SourceOffsets(topic, name + "2").offset({"f": "x"}) is None


def test_a_name_written_without_escapes_is_found_as_well() -> None:
    topic = OneTopic('["😀",{"f":"x"}]'.encode(), b'{"n":1}')
    assert SourceOffsets(topic, "😀").offset({"f": "x"}) == {"n": 1}


def test_who_asks_again_after_a_rest_finds_what_is_there_then() -> None:
    """A tombstone may be gone by then, as what it stood for."""
    topic = OneTopic(encode_key("src", {"f": "x"}), encode_value({"n": 1}))
    topic.records.append(LogRecord(1, encode_key("src", {"f": "y"}), encode_value({"n": 2})))
    offsets = SourceOffsets(topic, "src")
    assert offsets.offsets([{"f": "x"}, {"f": "y"}]) == [{"n": 1}, {"n": 2}]
    offsets.rest()
    topic.records = [LogRecord(0, encode_key("src", {"f": "y"}), encode_value({"n": 3}))]
    assert offsets.offsets([{"f": "x"}, {"f": "y"}]) == [None, {"n": 3}]
