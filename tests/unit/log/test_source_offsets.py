"""A task finds its source offsets whatever its connector's name is, and whenever it asks."""

import pytest
from support.herder.log_records import OneTopic, log_records

from headgate.ports import LogRecord
from headgate.topics.offsets import OffsetFormatError, encode_key, encode_value
from headgate_runtime.tasks.offsets import SourceOffsets


@pytest.mark.parametrize("name", ["src", 'quote"', "a/b c", "größe", "😀", "tab\there"])
def test_offsets_are_found(name: str) -> None:
    topic = OneTopic(log_records([(encode_key(name, {"f": "x"}), encode_value({"n": 1}))]))
    assert SourceOffsets(topic, name).offset({"f": "x"}) == {"n": 1}
    assert SourceOffsets(topic, name + "2").offset({"f": "x"}) is None


def test_a_name_written_without_escapes_is_found_as_well() -> None:
    topic = OneTopic(log_records([('["😀",{"f":"x"}]'.encode(), b'{"n":1}')]))
    assert SourceOffsets(topic, "😀").offset({"f": "x"}) == {"n": 1}


def test_who_asks_again_after_a_rest_finds_what_is_there_then() -> None:
    """By then a tombstone may be gone, together with the record that it deleted."""
    topic = OneTopic(log_records([(encode_key("src", {"f": "x"}), encode_value({"n": 1}))]))
    topic.records.append(LogRecord(1, encode_key("src", {"f": "y"}), encode_value({"n": 2})))
    offsets = SourceOffsets(topic, "src")
    assert offsets.offsets([{"f": "x"}, {"f": "y"}]) == [{"n": 1}, {"n": 2}]
    offsets.rest()
    topic.records = [LogRecord(0, encode_key("src", {"f": "y"}), encode_value({"n": 3}))]
    assert offsets.offsets([{"f": "x"}, {"f": "y"}]) == [None, {"n": 3}]


def test_an_offset_that_cannot_be_read_is_of_concern_only_to_who_asks_for_it() -> None:
    """An unreadable offset is not a missing one: the source would be read from its beginning."""
    topic = OneTopic(log_records([(encode_key("src", {"f": "x"}), encode_value({"n": 1}))]))
    topic.records.append(LogRecord(1, encode_key("src", {"f": "y"}), b"[7]", place=(3, 12)))
    offsets = SourceOffsets(topic, "src")
    offsets.read_to_end()
    assert offsets.offset({"f": "x"}) == {"n": 1}
    for _ in range(2):
        with pytest.raises(OffsetFormatError, match=r"an array, .*partition 3, offset 12") as told:
            offsets.offsets([{"f": "x"}, {"f": "y"}])
    assert "alter or reset its offsets" in str(told.value)
    topic.records.append(LogRecord(2, encode_key("src", {"f": "y"}), encode_value({"n": 2})))
    assert offsets.offset({"f": "y"}) == {"n": 2}


def test_a_tombstone_of_one_key_forgets_nothing_of_another() -> None:
    """A writer that writes a source partition under another key removes the old key, and this
    tombstone may be read last."""
    topic = OneTopic(log_records([(encode_key("src", {"a": 1, "b": 2}), b'{"n":2}')]))
    topic.records.append(LogRecord(1, b'["src",{"b":2,"a":1}]', None, timestamp_ms=9))
    assert SourceOffsets(topic, "src").offset({"b": 2, "a": 1}) == {"n": 2}
