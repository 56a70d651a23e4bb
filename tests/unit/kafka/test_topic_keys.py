"""Which of a worker's keys say how an internal topic is made."""

from headgate_kafka.topics import internal_topics, offset_topic

WORKER = {f"{kind}.storage.topic": kind for kind in ("offset", "status", "config")}


def test_those_of_the_same_prefix() -> None:
    prefixes = [topic.prefix for topic in internal_topics(WORKER)]
    assert prefixes == ["offset.storage.", "status.storage.", "config.storage."]


def test_a_connectors_own_offsets_topic_is_made_as_the_workers() -> None:
    own = offset_topic(WORKER, "own")
    assert (own.name, own.key, own.prefix) == ("own", "offsets.storage.topic", "offset.storage.")
