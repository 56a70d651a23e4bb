"""Messages of confluent-kafka's consumer as columns. Records are made only on demand."""

from collections.abc import Sequence
from typing import cast

from confluent_kafka import Message

from headgate.log.record_columns import RecordColumns
from headgate.ports import ConsumerRecord, TopicPartition
from headgate_kafka.records.consumer import headers_of, record_of, timestamp_ms


class MessageColumns(RecordColumns):
    """Messages of one partition, none of which is an error."""

    def __init__(self, place: TopicPartition, messages: Sequence[Message]) -> None:
        self.place = place
        self._messages = messages
        self.after = offset_of(messages[-1]) + 1 if messages else None

    @property
    def readable(self) -> bool:
        try:
            for message in self._messages:
                headers_of(message)
        except (SystemError, UnicodeDecodeError):
            return False
        return True

    def values(self) -> Sequence[bytes | None]:
        return [message.value() for message in self._messages]

    def keys(self) -> Sequence[bytes | None]:
        return [message.key() for message in self._messages]

    def offsets(self) -> Sequence[int]:
        return [offset_of(message) for message in self._messages]

    def timestamps_ms(self) -> Sequence[int]:
        return [timestamp_ms(message) for message in self._messages]

    def records(self) -> Sequence[ConsumerRecord]:
        return [record_of(message) for message in self._messages]


def offset_of(message: Message) -> int:
    """Return the offset of a message that is not an error, and so always has one."""
    return cast(int, message.offset())
