"""Retention of the embedded log: its settings, and what one pass over a partition may delete.

A log deletes whole batches, the oldest first, as Kafka deletes segments. The age of a record counts
from its writing to the log, not from its own timestamp; else records read from old files would be
deleted at once. Differs: Kafka uses the timestamps of records (KIP-32, CreateTime).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Final

from headgate.connector.sink_names import sink_group, sink_topics, topic_pattern
from headgate.java.pattern import JavaPatternError
from headgate.ports import ProducerRecord
from headgate.topics.config_events import Config

UNLIMITED: Final = -1
MESSAGE_BYTES: Final = 64 * 1024 * 1024
MESSAGE_BYTES_MAX: Final = 900_000_000
"""Largest value of ``max.message.bytes``; a row of the log holds a billion bytes."""
CHECK_INTERVAL_MS: Final = 60_000
_LONG_MAX: Final = 2**63 - 1
_TOPICS: Final = "topics."


@dataclass(frozen=True, slots=True)
class TopicLimits:
    """Limits of one topic."""

    retention_ms: int = UNLIMITED
    retention_bytes: int = UNLIMITED
    """Number of bytes that each partition keeps."""
    past_sinks: bool = False
    """Whether records that a sink has not committed may be deleted."""
    message_bytes: int = MESSAGE_BYTES
    """Largest size of one record in bytes: key, value and headers."""

    @property
    def keeps_all(self) -> bool:
        return self.retention_ms == self.retention_bytes == UNLIMITED


@dataclass(frozen=True, slots=True)
class LogLimits:
    """Limits in the table ``[log]``: of all topics, and of single topics."""

    default: TopicLimits = TopicLimits()
    topics: Mapping[str, TopicLimits] = field(default_factory=dict[str, TopicLimits])
    check_interval_ms: int = CHECK_INTERVAL_MS

    def of(self, topic: str) -> TopicLimits:
        return self.topics.get(topic, self.default)

    @property
    def message_bytes_least(self) -> int:
        """Record size that every topic accepts."""
        return min(one.message_bytes for one in (self.default, *self.topics.values()))

    @property
    def keeps_all(self) -> bool:
        return all(one.keeps_all for one in (self.default, *self.topics.values()))


class LimitsError(ValueError):
    """Settings are not valid; `problems` has the errors by key."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{key}: {text}" for key, text in problems.items()))
        self.problems = problems


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            number = int(text.strip())
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            raise ValueError(f'"{text}", expected a whole number from {low} to {high}')
        return number

    return parse


def _switch(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError(f'"{text}", expected true or false')
    return text.strip().lower() == "true"


_OF_TOPICS: Final[Mapping[str, tuple[str, Callable[[str], int | bool]]]] = {
    "retention.ms": ("retention_ms", _whole(UNLIMITED, _LONG_MAX)),
    "retention.bytes": ("retention_bytes", _whole(UNLIMITED, _LONG_MAX)),
    "retention.past.sinks": ("past_sinks", _switch),
    "max.message.bytes": ("message_bytes", _whole(1, MESSAGE_BYTES_MAX)),
}
CHECK_INTERVAL: Final = "retention.check.interval.ms"
TOPIC_KEYS: Final = tuple(_OF_TOPICS)
KEYS: Final = (*TOPIC_KEYS, CHECK_INTERVAL)


def parse_limits(texts: Mapping[str, str]) -> LogLimits:
    """Return limits from texts by key. Keys of one topic begin with ``topics.<name>.``.

    Raises:
        LimitsError: It holds all errors.
    """
    problems: dict[str, str] = {}
    own: dict[str, dict[str, int | bool]] = {}
    interval = CHECK_INTERVAL_MS
    for full, text in texts.items():
        topic, key = _split(full)
        try:
            if full == CHECK_INTERVAL:
                interval = _whole(100, _LONG_MAX)(text)
            elif key not in _OF_TOPICS:
                problems[full] = f"unknown key, expected one of {', '.join(KEYS)}"
            else:
                name, parse = _OF_TOPICS[key]
                own.setdefault(topic, {})[name] = parse(text)
        except ValueError as error:
            problems[full] = str(error)
    if problems:
        raise LimitsError(problems)
    default = replace(TopicLimits(), **own.pop("", {}))  # type: ignore[arg-type]
    topics = {
        topic: replace(default, **given)  # type: ignore[arg-type]
        for topic, given in own.items()
    }
    return LogLimits(default, topics, interval)


def _split(full: str) -> tuple[str, str]:
    """Return topic and key; the topic is empty for a setting of all topics."""
    if full.startswith(_TOPICS):
        for key in _OF_TOPICS:
            if full.endswith(f".{key}") and (topic := full[len(_TOPICS) : -len(key) - 1]):
                return topic, key
    return "", full


def limit_texts(limits: LogLimits) -> dict[str, str]:
    """Return the texts from which `parse_limits` makes `limits`, without defaults."""
    texts = _texts("", limits.default, TopicLimits())
    for topic, own in limits.topics.items():
        texts |= _texts(f"{_TOPICS}{topic}.", own, limits.default)
    if limits.check_interval_ms != CHECK_INTERVAL_MS:
        texts[CHECK_INTERVAL] = str(limits.check_interval_ms)
    return texts


def _texts(before: str, own: TopicLimits, default: TopicLimits) -> dict[str, str]:
    names = {name: key for key, (name, _) in _OF_TOPICS.items()}
    return {
        f"{before}{names[one.name]}": str(getattr(own, one.name)).lower()
        for one in fields(own)
        if getattr(own, one.name) != getattr(default, one.name)
    }


# -- what a pass may delete --


@dataclass(frozen=True, slots=True)
class StoredBatch:
    base: int
    count: int
    size: int
    """Size in bytes."""

    @property
    def end(self) -> int:
        return self.base + self.count


def deletable(batches: Sequence[StoredBatch], limits: TopicLimits, expired: int) -> int:
    """Return the offset below which all batches exceed `limits`; 0 if none does.

    Args:
        batches: Batches of a partition, in order.
        expired: Records below this offset were written at least ``retention.ms`` ago.
    """
    cut = 0
    left = sum(one.size for one in batches)
    for one in batches:
        left -= one.size
        too_old = limits.retention_ms != UNLIMITED and one.end <= expired
        too_much = limits.retention_bytes != UNLIMITED and left >= limits.retention_bytes
        if not too_old and not too_much:
            break
        cut = one.end
    return cut


def whole_batches(batches: Iterable[StoredBatch], cut: int) -> list[StoredBatch]:
    """Return the batches that end at or below `cut`."""
    return [one for one in batches if one.end <= cut]


def deletion_step(batches: Sequence[StoredBatch], size_max: int) -> Sequence[StoredBatch]:
    """Return the first of `batches`, at least one and at most `size_max` bytes in all: the batches
    that one transaction deletes."""
    size = 0
    for count, one in enumerate(batches):
        size += one.size
        if count and size > size_max:
            return batches[:count]
    return batches


# -- how old records are --

MARKS_PER_PERIOD: Final = 200
"""Number of marks within ``retention.ms``."""


@dataclass(frozen=True, slots=True)
class AgeMark:
    """The next offset of a partition at a time of the wall clock."""

    next: int
    at_ms: int


def is_mark_due(marks: Iterable[AgeMark], now_ms: int, retention_ms: int) -> bool:
    """Return whether another mark is due. A mark in the future is ignored, since the clock was set
    back."""
    since = now_ms - retention_ms // MARKS_PER_PERIOD
    return not any(since < one.at_ms <= now_ms for one in marks)


def expired(marks: Iterable[AgeMark], now_ms: int, retention_ms: int) -> int:
    """Return the offset below which records were written at least `retention_ms` ago."""
    return max((one.next for one in marks if one.at_ms <= now_ms - retention_ms), default=0)


# -- what sinks have not read --


@dataclass(frozen=True, slots=True)
class SinkReads:
    """Topics that one sink connector reads, and the group that holds its offsets."""

    connector: str
    group: str
    reads: Callable[[str], bool]
    """Returns whether the connector reads a topic."""


def allowed(
    reads: Iterable[SinkReads], topic: str, committed: Callable[[str], int], wanted: int
) -> tuple[int, SinkReads | None]:
    """Return the offset below which records may be deleted, at most `wanted`, and the sink that
    holds back the rest.

    Args:
        committed: Returns the partition's offset that a group has committed; 0 if none.
    """
    found, by = wanted, None
    for one in reads:
        if one.reads(topic) and (offset := committed(one.group)) < found:
            found, by = offset, one
    return found, by


def sink_reads(connector: str, config: Config) -> SinkReads:
    """Return the topics that a sink with this config reads. If they are not known, as with a
    reference to a config provider, they are all topics: retention then waits for the sink."""
    return SinkReads(connector, sink_group(connector, config), _reads(config))


def _reads(config: Config) -> Callable[[str], bool]:
    if "${" in f"{config.get('topics')}{config.get('topics.regex')}":
        return lambda _topic: True
    named = frozenset(sink_topics(config))
    try:
        pattern = topic_pattern(config)
    except JavaPatternError:
        return lambda _topic: True
    if pattern is None:
        return named.__contains__
    return lambda topic: topic in named or bool(pattern.of([topic]))


# -- records that are too large --


def record_size(record: ProducerRecord) -> int:
    """Return the number of bytes in key, value and headers."""
    size = len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += len(name.encode()) + len(value or b"")
    return size


def too_large(topic: str, size: int, limits: LogLimits) -> str:
    """Return why a record of `size` bytes is refused; empty if it is not."""
    most = limits.of(topic).message_bytes
    if size <= most:
        return ""
    return (
        f"a record for topic {topic} has {size} bytes, expected at most {most}: raise "
        f'max.message.bytes in [log] or [log.topics."{topic}"], or keep it out'
    )
