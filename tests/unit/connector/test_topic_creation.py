"""Groups of topics that a source creates (KIP-158), and the errors in their configs."""

from collections.abc import Mapping

import pytest

from headgate.connector.topic_creation import (
    TopicSettings,
    topic_creation_errors,
    topic_groups,
    topic_keys,
)

CONFIG = {
    "topic.creation.default.replication.factor": "3",
    "topic.creation.default.partitions": "5",
    "topic.creation.groups": "tables, default, logs",
    "topic.creation.tables.include": "table-.*, users",
    "topic.creation.tables.exclude": "table-old.*",
    "topic.creation.tables.partitions": "1",
    "topic.creation.tables.cleanup.policy": "compact",
    "topic.creation.logs.include": ".*logs",
    "topic.creation.logs.replication.factor": "-1",
    "topic.creation.logs.retention.ms": "1000",
}


@pytest.mark.parametrize(
    ("topic", "wanted"),
    [
        ("table-a", TopicSettings(1, 3, {"cleanup.policy": "compact"})),
        ("users", TopicSettings(1, 3, {"cleanup.policy": "compact"})),
        ("table-old-logs", TopicSettings(5, -1, {"retention.ms": "1000"})),
        ("users2", TopicSettings(5, 3)),  # a pattern matches the whole name
        ("table-old", TopicSettings(5, 3)),
        ("table-logs", TopicSettings(1, 3, {"cleanup.policy": "compact"})),  # the first group
    ],
)
def test_a_topic_has_the_settings_of_its_first_group(topic: str, wanted: TopicSettings) -> None:
    assert topic_groups(CONFIG, TopicSettings()).settings(topic) == wanted


def test_without_groups_the_default_holds() -> None:
    assert topic_groups({}, TopicSettings(7)).settings("t") == TopicSettings(7)
    assert topic_creation_errors(CONFIG) == {}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topic.creation.default.partitions": "0"}, "Partitions must be positive, or -1"),
        ({"topic.creation.tables.partitions": "x"}, "Invalid value x for configuration"),
        (
            {"topic.creation.tables.replication.factor": "-2"},
            "Replication factor must be positive, or -1 to use the broker's default",
        ),
        ({"topic.creation.tables.include": "a("}, "Invalid regex"),
        ({"topic.creation.logs.exclude": "b, ["}, "Invalid regex"),
    ],
)
def test_what_is_wrong_is_named_by_its_key(given: Mapping[str, str], said: str) -> None:
    errors = topic_creation_errors({**CONFIG, **given})
    (wrong,) = given
    assert list(errors) == [wrong]
    assert said in errors[wrong][0]


def test_keys_of_a_group_that_is_not_named_mean_nothing() -> None:
    config = {**CONFIG, "topic.creation.tabels.include": "x", "topic.creation.enable": "true"}
    assert set(config) - topic_keys(config) == {
        "topic.creation.tabels.include",
        "topic.creation.enable",
    }
