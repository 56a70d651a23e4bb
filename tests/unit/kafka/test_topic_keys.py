"""Which of a worker's keys say how an internal topic is created."""

from headgate_kafka.admin.topics import internal_topics, offset_topic

WORKER = {f"{kind}.storage.topic": kind for kind in ("offset", "status", "config")}


def test_those_of_the_same_prefix() -> None:
    prefixes = [topic.prefix for topic in internal_topics(WORKER)]
    assert prefixes == ["offset.storage.", "status.storage.", "config.storage."]


def test_a_connectors_own_offsets_topic_is_made_as_the_workers() -> None:
    own = offset_topic(WORKER, "own")
    assert (own.name, own.key, own.prefix) == ("own", "offsets.storage.topic", "offset.storage.")


def test_what_is_not_said_of_them_is_as_connect_has_it() -> None:
    made = {t.prefix: (t.partitions, t.replication_factor) for t in internal_topics(WORKER)}
    assert made == {
        "offset.storage.": (25, 3),
        "status.storage.": (5, 3),
        "config.storage.": (1, 3),
    }


def test_what_is_said_of_them_but_the_partitions_of_the_config_topic() -> None:
    said = {
        f"{kind}.storage.{key}": "2"
        for kind in ("offset", "status", "config")
        for key in ("partitions", "replication.factor")
    }
    made = [(t.partitions, t.replication_factor) for t in internal_topics({**WORKER, **said})]
    assert made == [(2, 2), (2, 2), (1, 2)]
