"""The quick way of polled records to the log: those that need nothing but their converters.

The loop of `SourcePerformer` serves transforms, headers, new topics and errors, too; most records
have none of these.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from headgate.connector.api import SourceRecord
from headgate.ports import ProducerRecord

_T = TypeVar("_T")
_NONE = object()
_FromConnect = Callable[..., bytes | None]


def convert_plain(
    polled: Sequence[_T],
    batch: list[Any],
    sources: list[Any],
    from_connect: tuple[_FromConnect, _FromConnect, object],
    known: Collection[str],
) -> Sequence[_T]:
    """Convert the first of `polled`, up to one that needs more than its converters.

    A converter that raises ends it, too: whoever goes on asks the converter again, and the error
    is met where it belongs to its record.

    Args:
        batch: gets what is to be sent.
        sources: gets the record that each item of `batch` was made of.
        from_connect: converts keys and values.
        known: topics that exist.

    Returns:
        The rest of `polled`.
    """
    key_of, value_of, _ = from_connect
    add, before = batch.append, len(batch)
    last: object = _NONE
    try:
        record: Any
        for record in polled:
            if type(record) is not SourceRecord or record.headers:
                break
            topic, key, time_ms = record.topic, record.key, record.timestamp_ms
            if topic is not last:
                if type(topic) is not str or topic not in known:
                    break
                last = topic
            if time_ms is not None and time_ms < 0:
                break
            sent_key = None if key is None else key_of(topic, key, record.key_schema)
            value = value_of(topic, record.value, record.value_schema)
            add(ProducerRecord(topic, record.partition, sent_key, value, (), time_ms))
    except Exception:  # the caller converts this record anew, and tells the error as that record's
        pass
    done = len(batch) - before
    sources += polled[:done]
    return polled[done:]
