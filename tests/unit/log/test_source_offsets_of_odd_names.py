"""A task finds its source offsets whatever characters its connector's name has."""

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


@pytest.mark.parametrize("name", ["src", 'quote"', "a/b c", "größe", "😀", "tab\there"])
def test_offsets_are_found(name: str) -> None:
    topic = OneTopic(encode_key(name, {"f": "x"}), encode_value({"n": 1}))
    assert SourceOffsets(topic, name).offset({"f": "x"}) == {"n": 1}
    assert SourceOffsets(topic, name + "2").offset({"f": "x"}) is None


def test_a_name_written_without_escapes_is_found_as_well() -> None:
    topic = OneTopic('["😀",{"f":"x"}]'.encode(), b'{"n":1}')
    assert SourceOffsets(topic, "😀").offset({"f": "x"}) == {"n": 1}
