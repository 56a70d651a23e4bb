"""The config of a sink names the topics that it reads. tests/differential compares the expressions
with Java's."""

import pytest

from headgate.connector.sink_names import TopicPattern, sink_subscription, topic_pattern, topics_now
from headgate.java.pattern import JavaPatternError

NAMES = ["logs-b1", "logs-a1", "more-logs-a1", "__consumer_offsets", "__mine"]


def test_topics_by_name_are_all_there_is_to_it() -> None:
    topics = sink_subscription({"topics": " b , a,"})
    assert topics == ["b", "a"]
    assert topics_now(topics, lambda: pytest.fail("nobody need list topics")) == ["b", "a"]


def test_a_pattern_is_of_whole_names_that_are_there() -> None:
    topics = sink_subscription({"topics.regex": " logs-.* "})
    assert topics == TopicPattern("logs-.*")
    assert topics_now(topics, lambda: NAMES) == ["logs-a1", "logs-b1"]


def test_topics_of_the_brokers_are_left_out_unless_the_consumer_takes_them() -> None:
    config = {"topics.regex": "__.*"}
    key = "exclude.internal.topics"
    all_of_them = ["__consumer_offsets", "__mine"]
    for more, worker, found in (
        ({}, {}, ["__mine"]),
        ({}, {f"consumer.{key}": "false"}, all_of_them),
        ({f"consumer.override.{key}": "FALSE"}, {}, all_of_them),
        ({f"consumer.override.{key}": "true"}, {f"consumer.{key}": "false"}, ["__mine"]),
    ):
        pattern = topic_pattern({**config, **more}, worker)
        assert pattern is not None
        assert pattern.of(NAMES) == found, (more, worker)


@pytest.mark.parametrize("config", [{}, {"topics": " , "}, {"topics.regex": " "}])
def test_nothing_to_read_is_an_error(config: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"`topics` or `topics\.regex`, expected one"):
        sink_subscription(config)


def test_a_pattern_that_is_none_is_an_error_at_once() -> None:
    with pytest.raises(
        JavaPatternError, match=r"^topics\.regex=\*: Dangling meta character '\*' near index 0"
    ):
        sink_subscription({"topics.regex": "*"})
