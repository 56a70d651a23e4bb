"""The quick way of polled records to the log, for records that need little more than converters.

The loop of `SourcePerformer` also serves every transform, headers, new topics and errors, which
most records do not have. Transforms that look at topic and headers alone, as RegexRouter and
InsertHeader do, are applied here once for each topic, not once for each record.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, TypeAlias, TypeVar, final

from headgate.connector.api import SourceRecord
from headgate.connector.transforms import by_topic, transform_source
from headgate.ports import Headers, ProducerRecord

_T = TypeVar("_T")
_NONE = object()
_FromConnect: TypeAlias = Callable[..., bytes | None]
_Way: TypeAlias = tuple[str, Headers]
WAYS_MAX: Final = 1_000
"""Topics whose way is remembered. A task may use a topic for each value of a field."""


@final
class PlainRecords:
    """Converter of a task's simple records.

    Args:
        from_connect: converters of keys, values and headers.
        chain: the task's transforms.
        known: topics that exist; more may be added.
    """

    def __init__(
        self,
        from_connect: tuple[_FromConnect, _FromConnect, Callable[..., Headers]],
        chain: Sequence[Any],
        known: Collection[str],
    ) -> None:
        self._key_of, self._value_of, self._headers_of = from_connect
        self._transforms = chain
        self._known = known
        self._ways: dict[str, _Way] = {}
        """Topic and headers to send, by the topic that the task has given."""
        self.possible = by_topic(chain)
        """Whether any record can take this way."""

    def convert(self, polled: Sequence[_T], batch: list[Any], sources: list[Any]) -> Sequence[_T]:
        """Convert the first of `polled`, up to one that needs more.

        A converter or transform that raises ends it, too. The caller then calls it again for that
        record, and reports the error there.

        Args:
            batch: gets the records to send.
            sources: gets the record of which each item of `batch` was made.

        Returns:
            The rest of `polled`.
        """
        key_of, value_of = self._key_of, self._value_of
        add, before = batch.append, len(batch)
        last: object = _NONE
        topic = ""
        headers: Headers = ()
        try:
            record: Any
            for record in polled:
                if type(record) is not SourceRecord or record.headers or record.header_schemas:
                    break
                key, time_ms = record.key, record.timestamp_ms
                if record.topic is not last:
                    way = self._way(record.topic)
                    if way is None:
                        break
                    topic, headers = way
                    last = record.topic
                if time_ms is not None and (type(time_ms) is not int or time_ms < 0):
                    break
                sent_key = None if key is None else key_of(topic, key, record.key_schema)
                value = value_of(topic, record.value, record.value_schema)
                add(ProducerRecord(topic, record.partition, sent_key, value, headers, time_ms))
        except Exception:  # the caller converts this record again and reports the error
            pass
        done = len(batch) - before
        sources += polled[:done]
        return polled[done:]

    def _way(self, topic: Any) -> _Way | None:
        """Return topic and headers to send. Return None if its records need more or it is no topic
        name."""
        if type(topic) is not str:
            return None
        way = self._ways.get(topic)
        if way is None:
            way = self._find_way(topic)
            if way is None:
                return None
            if len(self._ways) == WAYS_MAX:
                self._ways.clear()
            self._ways[topic] = way
        return way

    def _find_way(self, topic: str) -> _Way | None:
        out = transform_source(self._transforms, SourceRecord({}, {}, topic, None))
        if out is None or type(out.topic) is not str or out.topic not in self._known:
            return None
        sent: Headers = ()
        if out.headers:
            sent = self._headers_of(out.topic, out.headers, out.header_schemas)
        return out.topic, sent
