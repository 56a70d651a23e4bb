"""What a sink connector's config says of where it reads: its consumer group, its topics."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from headgate.java.pattern import JavaPatternError, compile_java
from headgate.topics.config_events import Config

NO_PROPERTIES: Mapping[str, str] = {}
INTERNAL_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state"}
)
"""The brokers' own, which they mark so. Source: org.apache.kafka.common.internals.Topic."""


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """``topics.regex`` of a sink: it reads the topics whose whole name matches, those too that come
    later. Source: `KafkaConsumer.subscribe(Pattern)`, ConsumerMetadata.retainTopic.

    Raises:
        JavaPatternError: as `compile_java`.
    """

    text: str
    with_internal: bool = False
    """Whether the brokers' own topics may match: ``exclude.internal.topics=false``."""

    def __post_init__(self) -> None:
        compile_java(self.text)

    def of(self, names: Iterable[str]) -> list[str]:
        """Which of the topics that there are it means, sorted."""
        matches = compile_java(self.text).match
        return sorted(
            name
            for name in names
            if matches(name) and (self.with_internal or name not in INTERNAL_TOPICS)
        )


SinkTopics: TypeAlias = Sequence[str] | TopicPattern
"""What a sink reads: topics by their names, or what matches at a time."""


def sink_group(connector: str, config: Config, worker: Mapping[str, str] = NO_PROPERTIES) -> str:
    """Consumer group of a sink connector: what its config or the worker's properties say to its
    consumers. Source: Worker.baseConsumerConfigs, SinkUtils.consumerGroupId, KIP-458 overrides."""
    named = config.get("consumer.override.group.id") or worker.get("consumer.group.id")
    return named or f"connect-{connector}"


def sink_topics(config: Config) -> list[str]:
    """Topics that ``topics`` names, in its order; none where ``topics.regex`` is set."""
    return [part.strip() for part in (config.get("topics") or "").split(",") if part.strip()]


def topic_pattern(config: Config, worker: Mapping[str, str] = NO_PROPERTIES) -> TopicPattern | None:
    """What ``topics.regex`` says, and ``exclude.internal.topics`` of the sink's consumers; None
    where topics are named. Differs: blanks around the pattern do not count, as with other keys
    (Connect's tasks leave them, and match nothing).

    Raises:
        JavaPatternError: it is none to Java, or not understood here.
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
    """What the tasks of a sink read.

    Raises:
        ValueError: nothing.
        JavaPatternError: as `topic_pattern`.
    """
    found = sink_topics(config) or topic_pattern(config, worker)
    if not found:
        raise ValueError("a sink names what it reads in `topics` or `topics.regex`, expected one")
    return found


def topics_now(topics: SinkTopics, names: Callable[[], Iterable[str]]) -> list[str]:
    """What is read now; `names`, of all topics that there are, is called where it matters."""
    return topics.of(names()) if isinstance(topics, TopicPattern) else list(topics)
