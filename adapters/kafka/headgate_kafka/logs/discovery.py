"""Recognition of the internal topics of Connect clusters by the keys of their records.

Only the workers' properties say which topics a group uses. But the keys in these topics are
unmistakable (see `config_records`, `status` and `offsets` in `headgate.topics`), so an observer
does not need the properties.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

from headgate.ports import TransportError
from headgate.topics.offsets import decode_key
from headgate.topics.status import CONNECTOR_PREFIX, TASK_PREFIX, TOPIC_PREFIX
from headgate_kafka.failures import kafka_error
from headgate_kafka.logs.reading import TopicReader, Topics

PEEK: Final = 200
"""How many offsets of each partition are read to recognise a topic."""
PEEK_S: Final = 2.0

_STATUS: Final = tuple(prefix.encode() for prefix in (CONNECTOR_PREFIX, TASK_PREFIX, TOPIC_PREFIX))
_CONFIG: Final = (
    b"connector-",
    b"task-",
    b"commit-",
    b"target-state-",
    b"tasks-fencing-",
    b"restart-connector-",
    b"logger-cluster-",
)
_SESSION_KEY: Final = b"session-key"
_CUSTOMARY: Final = {
    "connect-configs": "config",
    "connect-status": "status",
    "connect-offsets": "offset",
}


class TopicKind(StrEnum):
    CONFIG = "config"
    STATUS = "status"
    OFFSET = "offset"
    """The workers' offsets topic or a connector's own one. They look the same."""


class TopicsNotFoundError(Exception):
    """The topics cannot be recognised. The message says which were seen and how to name them."""


def kind_of(keys: Iterable[bytes | None]) -> TopicKind | None:
    """Return the kind of an internal topic with these keys. None: it is no internal topic, or the
    keys do not tell.

    One key of another form rules a topic out, since data topics may have keys of any form.
    """
    found: set[TopicKind | None] = set()
    for key in keys:
        if key is None:
            return None
        if key.startswith(_STATUS):
            found.add(TopicKind.STATUS)
        elif key == _SESSION_KEY or key.startswith(_CONFIG):
            found.add(TopicKind.CONFIG)
        elif decode_key(key) is not None:
            found.add(TopicKind.OFFSET)
        else:
            return None
    return found.pop() if len(found) == 1 else None


def find_topics(
    topics: Topics, reader_settings: Mapping[str, Any], warn: Callable[[str], None]
) -> dict[TopicKind, list[str]]:
    """Return the names of the internal topics by kind, sorted. A topic without records is
    recognised by its name, if that is one from Connect's example properties.

    Raises:
        TransportError: the brokers did not answer.
    """
    found: dict[TopicKind, list[str]] = {kind: [] for kind in TopicKind}
    for name in _compacted(topics):
        keys = _peek(topics, reader_settings, name, warn)
        kind = kind_of(keys) if keys else None
        if not keys and name in _CUSTOMARY:
            kind = TopicKind(_CUSTOMARY[name])
        if kind is not None:
            found[kind].append(name)
    return found


def the_one(found: Mapping[TopicKind, list[str]], kind: TopicKind, option: str, at: str) -> str:
    """Return the only topic of this kind.

    Raises:
        TopicsNotFoundError: there is none, or more than one.
    """
    names = found[kind]
    if len(names) == 1:
        return names[0]
    if not names:
        raise TopicsNotFoundError(
            f"no compacted topic at {at} looks like the {kind} topic of Connect workers: name it "
            f"with {option}, or give the workers' properties file with --properties"
        )
    raise TopicsNotFoundError(
        f"{len(names)} topics at {at} look like {kind} topics of Connect workers "
        f"({', '.join(names)}): name the one of this group with {option}, or give the workers' "
        "properties file with --properties"
    )


def list_topics(topics: Topics) -> list[str]:
    """Return the names of all topics except the brokers' own (``__...``), sorted.

    Raises:
        TransportError: the brokers did not answer.
    """
    return [name for name in topics.names() if not name.startswith("__")]


def _compacted(topics: Topics) -> list[str]:
    names = list_topics(topics)
    if not names:
        return []
    try:
        asked = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        settings = topics.settings(asked)
    except KafkaException as failed:
        what = "the settings of the topics could not be read"
        raise topics.contact.error(what, kafka_error(failed)) from None
    return [name for name in names if "compact" in str(settings[name]["cleanup.policy"].value)]


def _peek(
    topics: Topics, reader_settings: Mapping[str, Any], name: str, warn: Callable[[str], None]
) -> list[bytes | None]:
    """Return the keys of some records at the beginning of each partition. If reading stops, warn
    and return the keys that were read so far."""
    partitions = range(topics.partitions(name))
    ends = {place[1]: end for place, end in topics.ends([(name, p) for p in partitions]).items()}
    reader = TopicReader(reader_settings, name, warn)
    keys: list[bytes | None] = []
    try:
        reader.start(dict.fromkeys((p for p, end in ends.items() if end), 0))
        if reader.positions:
            awaited = {p: min(ends[p], PEEK) for p in reader.positions}
            reader.wait_past(
                awaited, round(PEEK_S * 1000), lambda taken: keys.extend(m.key() for m in taken)
            )
    except TransportError as error:
        warn(f"topic {name} was not looked at to its end: {error}")
    finally:
        reader.close()
    return keys
