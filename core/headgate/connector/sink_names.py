"""The consumer group and the topics of a sink connector, from its config."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from headgate.java.pattern import JavaPatternError, compile_java
from headgate.topics.config_events import Config

NO_PROPERTIES: Mapping[str, str] = {}
INTERNAL_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state"}
)
"""Internal topics of the brokers. Source: org.apache.kafka.common.internals.Topic."""


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """``topics.regex`` of a sink. The sink reads all topics whose whole name matches, including
    topics created later. Source: `KafkaConsumer.subscribe(Pattern)`, ConsumerMetadata.retainTopic.

    Raises:
        JavaPatternError: As for `compile_java`.
    """

    text: str
    with_internal: bool = False
    """Whether internal topics of the brokers may match: ``exclude.internal.topics=false``."""

    def __post_init__(self) -> None:
        compile_java(self.text)

    def of(self, names: Iterable[str]) -> list[str]:
        """Return those of `names` that match, sorted."""
        matches = compile_java(self.text).match
        return sorted(
            name
            for name in names
            if matches(name) and (self.with_internal or name not in INTERNAL_TOPICS)
        )


SinkTopics: TypeAlias = Sequence[str] | TopicPattern
"""Topics of a sink: their names, or a pattern of names."""


def sink_group(connector: str, config: Config, worker: Mapping[str, str] = NO_PROPERTIES) -> str:
    """Return the consumer group of a sink connector, as its config or the worker's properties set
    it. Source: Worker.baseConsumerConfigs, SinkUtils.consumerGroupId, KIP-458 overrides."""
    named = config.get("consumer.override.group.id") or worker.get("consumer.group.id")
    return named or f"connect-{connector}"


def sink_topics(config: Config) -> list[str]:
    """Return the topics that ``topics`` names, in order; none if ``topics.regex`` is set
    instead."""
    return [part.strip() for part in (config.get("topics") or "").split(",") if part.strip()]


def topic_pattern(config: Config, worker: Mapping[str, str] = NO_PROPERTIES) -> TopicPattern | None:
    """Return the pattern of ``topics.regex``, with ``exclude.internal.topics`` of the sink's
    consumers; None if ``topics.regex`` is not set.

    Differs: blanks around the pattern are ignored, as with other keys. (Connect's tasks keep them,
    and match nothing.)

    Raises:
        JavaPatternError: Java refuses the pattern, or it is not understood here.
    """
    text = (config.get("topics.regex") or "").strip()
    if not text:
        return None
    key = "exclude.internal.topics"
    exclude = config.get(f"consumer.override.{key}") or worker.get(f"consumer.{key}") or "true"
    try:
        return TopicPattern(text, with_internal=exclude.strip().lower() == "false")
    except JavaPatternError as error:
        raise JavaPatternError(f"topics.regex={text}: {error}") from None


def sink_subscription(config: Config, worker: Mapping[str, str] = NO_PROPERTIES) -> SinkTopics:
    """Return the topics that the tasks of a sink read.

    Raises:
        ValueError: The config names no topics.
        JavaPatternError: As for `topic_pattern`.
    """
    found = sink_topics(config) or topic_pattern(config, worker)
    if not found:
        raise ValueError("a sink names what it reads in `topics` or `topics.regex`, expected one")
    return found


def topics_now(topics: SinkTopics, names: Callable[[], Iterable[str]]) -> list[str]:
    """Return the topics that are read now. `names` returns the names of all topics; it is called
    only for a pattern."""
    return topics.of(names()) if isinstance(topics, TopicPattern) else list(topics)
