"""Internal topics are recognised by their keys."""

import json
from pathlib import Path

import pytest

from headgate_kafka.logs.discovery import TopicKind, TopicsNotFoundError, kind_of, the_one

GOLDEN = Path(__file__).parents[2] / "data" / "golden"


def golden_keys(name: str) -> list[bytes]:
    lines = (GOLDEN / f"{name}.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line)["key"].encode() for line in lines]


def test_the_topics_of_real_workers_are_told() -> None:
    assert kind_of(golden_keys("configs")) is TopicKind.CONFIG
    assert kind_of(golden_keys("status")) is TopicKind.STATUS
    assert kind_of(golden_keys("offsets")) is TopicKind.OFFSET


@pytest.mark.parametrize(
    "keys",
    [
        [],
        [None],
        [b"session-key", None],
        [b"commit-a", b"status-task-a-0"],
        [b"connector-a", b"customer-7"],
        [b'["a",{"f":1}]', b'["a",1]'],
        [b"status-task-a-0", b"\xff"],
    ],
)
def test_other_topics_are_not_taken_for_them(keys: list[bytes | None]) -> None:
    assert kind_of(keys) is None


def test_none_and_several_are_refused_with_what_to_do() -> None:
    found = {TopicKind.CONFIG: ["a", "b"], TopicKind.STATUS: []}
    with pytest.raises(TopicsNotFoundError, match=r"2 topics at h:1 .*\(a, b\).*--config-topic"):
        the_one(found, TopicKind.CONFIG, "--config-topic", "h:1")
    with pytest.raises(TopicsNotFoundError, match=r"no compacted topic at h:1 .*--status-topic"):
        the_one(found, TopicKind.STATUS, "--status-topic", "h:1")
