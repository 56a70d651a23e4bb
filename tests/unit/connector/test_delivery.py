"""A connector's config gets a note where its records are delivered at least once only."""

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from headgate.connector.api import (
    Connector,
    ExactlyOnceSupport,
    SinkConnector,
    SinkTask,
    SourceConnector,
    SourceTask,
)
from headgate.connector.delivery import delivery_notes
from headgate_runtime.plugins.find import find_connector

LETTERS = "errors.deadletterqueue.topic.name"
SUPPORT = "exactly.once.support"


def source(support: Any) -> type[SourceConnector]:
    class Source(SourceConnector):
        TASK: ClassVar[type[SourceTask]] = SourceTask

        @classmethod
        def exactly_once_support(cls, config: Mapping[str, str]) -> ExactlyOnceSupport | None:
            if isinstance(support, Exception):
                raise support
            found: ExactlyOnceSupport | None = support
            return found

    return Source


class Sink(SinkConnector):
    TASK: ClassVar[type[SinkTask]] = SinkTask


def notes(
    connector: type[Connector] | str, enabled: bool = True, **config: str
) -> list[tuple[str, str]]:
    found = find_connector(connector) if isinstance(connector, str) else connector
    given = {key.replace("_", "."): value for key, value in config.items()}
    return delivery_notes(found, given, exactly_once_enabled=enabled)


@pytest.mark.parametrize(
    ("support", "text"),
    [
        (ExactlyOnceSupport.UNSUPPORTED, "Source reads at least once with this config: after a"),
        (None, "Source does not say whether it reads exactly once: after a"),
        (RuntimeError("no"), "Source does not say whether it reads exactly once: after a"),
    ],
)
def test_a_source_without_exactly_once_is_told_of(support: Any, text: str) -> None:
    ((key, told),) = notes(source(support))
    assert key == SUPPORT
    assert told.startswith(text)
    assert f"{SUPPORT} = required refuses" in told


def test_a_source_is_told_of_only_where_the_worker_has_exactly_once() -> None:
    """Without exactly-once support on the worker, all sources deliver at least once. If it is
    required and not supported, the config is refused, as in Connect."""
    assert notes(source(None), enabled=False) == []
    assert notes(source(None), **{SUPPORT.replace(".", "_"): "required"}) == []
    assert notes(source(ExactlyOnceSupport.SUPPORTED)) == []


@pytest.mark.parametrize("enabled", [True, False])
def test_a_sink_whose_group_keeps_its_offsets_is_told_of(enabled: bool) -> None:
    ((key, told),) = notes(Sink, enabled)
    assert key == "connector.class"
    assert told.startswith("Sink does not say that it writes exactly once: its consumer group")


@pytest.mark.parametrize(
    ("name", "config", "once"),
    [
        ("FileStreamSource", {"file": "f"}, True),
        ("FileStreamSource", {}, False),
        ("DirectorySource", {}, True),
        ("DeltaSource", {}, True),
        ("IcebergSource", {}, True),
        ("SparkSource", {}, True),
        ("FileStreamSink", {}, False),
        ("DirectorySink", {}, True),
        ("DeltaSink", {}, True),
        ("IcebergSink", {}, True),
        ("SparkFileSink", {}, True),
        ("SparkSink", {}, True),
        ("SparkSink", {"delivery": "at_least_once"}, False),
    ],
)
def test_what_our_own_connectors_say(name: str, config: Mapping[str, str], once: bool) -> None:
    told = notes(name, **config)
    assert (told == []) == once
    assert all("at least once" in text for _, text in told)


def test_dead_letters_of_an_exactly_once_sink_are_told_of() -> None:
    ((key, told),) = notes("DirectorySink", **{LETTERS.replace(".", "_"): "letters"})
    assert key == LETTERS
    assert told.startswith("dead letters are written to letters at least once")
    assert len(notes("FileStreamSink", **{LETTERS.replace(".", "_"): "letters"})) == 2
