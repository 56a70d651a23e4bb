"""Warnings about a pipeline before it starts, of things that are not faults."""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from headgate.connector.delivery import delivery_notes
from headgate.connector.error_handling import LETTERS_TOPIC
from headgate.connector.sink_names import sink_topics
from headgate.connector.topic_names import topic_fault
from headgate.topics.config_events import Config
from headgate_runtime.plugins.find import PluginError, connector_kind, find_connector
from headgate_runtime.up.pipeline import Pipeline

_REGISTRY: Final = ("AvroConverter", "JsonSchemaConverter", "ProtobufConverter")


def notes_of(
    pipeline: Pipeline, configs: Mapping[str, Config], existing: Iterable[str]
) -> Iterator[str]:
    """Yield what a user should know before the start, a line each."""
    for line in pipeline.notes:
        yield f"warning: {line}"
    for line in (*unwritten_topics(configs, existing), *unlike(configs, pipeline.settings)):
        yield f"warning: {line}"


def at_least_once(pipeline: Pipeline, configs: Mapping[str, Config]) -> Iterator[str]:
    """Yield a line for each connector that may deliver a record twice after a failure, with the
    reason."""
    enabled = pipeline.settings.get("exactly.once.source.support") == "enabled"
    for name, config in configs.items():
        try:
            connector = find_connector(config.get("connector.class") or "")
        except PluginError:
            continue
        for key, text in delivery_notes(connector, config, exactly_once_enabled=enabled):
            yield f"note: {name}: {key}: {text}"


def unwritten_topics(configs: Mapping[str, Config], existing: Iterable[str]) -> Iterator[str]:
    """Yield a line for each topic that a sink reads, that does not exist, and to which no source
    writes.

    A source may write any topic if its config does not name them. Then only apparent typing errors
    are reported.

    Args:
        configs: all connectors that will run, by name.
        existing: topics in the log.
    """
    there, written, any_topic = set(existing), set[str](), False
    for config in configs.values():
        if letters := config.get(LETTERS_TOPIC):
            written.add(letters)
        if _kind(config) != "source":
            continue
        if topic := config.get("topic"):
            written.add(topic)
        if not topic or "topic.pattern" in config or config.get("transforms"):
            any_topic = True
    known = sorted(there | written)
    for name, config in configs.items():
        if _kind(config) != "sink":
            continue
        for topic in sink_topics(config):
            if topic in there or topic in written:
                continue
            if fault := topic_fault(topic):
                yield f"sink {name}: topic {fault}; the log has none of that name, nor ever will"
                continue
            near = difflib.get_close_matches(topic, known, n=1, cutoff=0.6)
            if near or not any_topic:
                hint = f"; did you mean {near[0]}?" if near else ""
                yield f"sink {name}: no source writes topic {topic}, which does not exist{hint}"


def unlike(configs: Mapping[str, Config], settings: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each sink converter that differs from the source's in its use of a schema
    registry. A sink with another kind would take the ids in the bytes for text.

    Args:
        configs: all connectors that will run, by name.
        settings: those of the workers, whose converters are used by connectors without their own.
    """
    sources = [
        (name, config)
        for name, config in configs.items()
        if _kind(config) == "source"
        and not config.get("transforms")
        and "topic.pattern" not in config
    ]
    sinks = [(name, config) for name, config in configs.items() if _kind(config) == "sink"]
    for sink, reads in sinks:
        for source, writes in sources:
            topic = writes.get("topic") or ""
            if topic not in sink_topics(reads):
                continue
            for key in ("key.converter", "value.converter"):
                one, other = (
                    (each.get(key) or settings.get(key) or "") for each in (writes, reads)
                )
                kinds = _registry_kind(one), _registry_kind(other)
                if kinds[0] != kinds[1] and not other.endswith("ByteArrayConverter"):
                    yield (
                        f"sink {sink} reads topic {topic} with {key} {other}, "
                        f"and source {source} writes it with {one}; give both the same"
                    )


def _registry_kind(converter: str) -> str:
    """Return the format of a converter that uses a schema registry. Empty: it uses none."""
    name = re.split("[.:]", converter)[-1]
    return name if name in _REGISTRY else ""


def _kind(config: Config) -> str:
    try:
        return connector_kind(find_connector(config.get("connector.class") or ""))
    except PluginError:
        return ""
