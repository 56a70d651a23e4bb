"""Garbage in the internal topics is reported with its place and passed over, and stops no
worker."""

import contextlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer
from support.commands.observing import observe, observed
from support.commands.worker import HeadgateWorker, headgate_worker  # noqa: F401
from support.kafka.broker import Found
from support.kafka.cluster import alter_topic, await_true, create_topic, read_committed

pytestmark = pytest.mark.slow

SECONDS = 60
HUGE = b"x" * 900_000
ODD = (b"{", b"[1]", b"7", b"\xff\xfe", b'{"a":', HUGE)
"""Values that none of the topics can use."""
MANY = 2**31 - 1
"""Tasks, of which nobody can make even the list."""
SETTINGS = {
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "exactly.once.source.support": "enabled",
    "offset.flush.interval.ms": "200",
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "500",
}
Records = list[tuple[bytes | None, bytes | None]]
Place = tuple[str, int, int]
"""Topic, partition, offset."""


def config_garbage(tag: str, connector: str) -> Records:
    """`connector` is one that runs."""
    who = f"{tag}-nobody".encode()
    return [
        *[(b"connector-%s-%d" % (who, n), value) for n, value in enumerate(ODD)],
        (b"task-%s-x" % who, b'{"properties":{}}'),
        (b"commit-" + connector.encode(), b'{"tasks":"two"}'),
        (b"tasks-fencing-" + connector.encode(), b'{"task-count":%d}' % MANY),
        (b"target-state-" + connector.encode(), b'{"state":{}}'),
        (b"session-key", b'{"key":[]}'),
    ]


def status_garbage(tag: str, connector: str) -> Records:
    who = f"{tag}-nobody".encode()
    return [
        *[(b"status-connector-%s-%d" % (who, n), value) for n, value in enumerate(ODD)],
        (b"status-task-%s-x" % who, None),
        (b"status-task-%s-0" % who, b'{"state":["RUNNING"],"generation":1}'),
        (b"status-topic-" + who, b"{}"),
    ]


def offsets_garbage(tag: str, connector: str) -> Records:
    who = f"{tag}-nobody"
    return [
        *[(b'["%s",{"n":%d}]' % (who.encode(), n), value) for n, value in enumerate(ODD)],
        (f'["{who}"]'.encode(), b"{}"),
        (f'["{who}","no partition"]'.encode(), b"{}"),
        (f'["{connector}",{{"filename":"{tag}"}}]'.encode(), b'{"position":[]}'),
        (f'["{connector}",{{"filename":'.encode() + tag.encode(), b"{}"),
    ]


KINDS: dict[str, Callable[[str, str], Records]] = {
    "config": config_garbage,
    "status": status_garbage,
    "offset": offsets_garbage,
}


class InternalTopics:
    """The internal topics of one worker, and the garbage that was written to them."""

    def __init__(self, address: str, group: str) -> None:
        self._address = address
        self.names = {
            "config": f"{group}-configs",
            "status": f"{group}-status",
            "offset": f"{group}-offsets",
        }
        self.places: list[Place] = []
        self.overtaken: list[Place] = []
        """Those of them that a later record of their key hides."""
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "log_level": 0,
                "message.max.bytes": 1_000_000,
                "partitioner": "murmur2_random",  # as workers have it
            }
        )

    def create(self) -> None:
        for kind, topic in self.names.items():
            create_topic(self._address, topic, 1 if kind == "config" else 2)

    @contextlib.contextmanager
    def not_compacted(self) -> Iterator[None]:
        """Meanwhile brokers take records without a key."""
        self._set_policy("delete")
        yield
        self._set_policy("compact")

    def _set_policy(self, policy: str) -> None:
        for topic in self.names.values():
            alter_topic(self._address, topic, {"cleanup.policy": policy})

    def write(self, tag: str, connector: str) -> None:
        """Garbage of every kind to each."""
        with self.not_compacted():
            for kind, topic in self.names.items():
                common: Records = [
                    (f"{tag} of no known kind".encode(), b"{}"),
                    (f"{tag} tombstone".encode(), None),
                    (tag.encode() + b" \xff\xfe", b"{}"),
                    (tag.encode() + b"k" * 10_000, b"{}"),
                ]
                for record in (*common, *KINDS[kind](tag, connector)):
                    self.place(topic, *record)
                await_true(
                    "a record without a key",
                    lambda topic=topic: self._placed(topic, None, b"{}"),
                    SECONDS,
                )

    def place(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        assert self._placed(topic, key, value)

    @property
    def lasting(self) -> list[Place]:
        return sorted(set(self.places) - set(self.overtaken))

    def write_over(self, connector: str, file: Path) -> None:
        """Write over a status of a running connector, which the connector will write again."""
        name = connector.encode()
        own = b'["%s",{"filename":"%s"}]' % (name, str(file).encode())
        self.place(self.names["offset"], own, b"[7]")
        for key in (b"status-task-%s-0" % name, b"status-connector-" + name):
            self.place(self.names["status"], key, b'{"state":"GONE","generation":99}')
        self.overtaken += self.places[-3:]

    def commit_too_many(self, connector: str) -> None:
        """Commit too many tasks. The commit counts, as it does for Java's workers, and the
        connector's owner corrects it."""
        self.place(self.names["config"], b"commit-" + connector.encode(), b'{"tasks":%d}' % MANY)
        self.places.pop()

    def last_commit(self, connector: str) -> bytes | None:
        found = read_committed(self._address, self.names["config"])
        return dict(found).get(b"commit-" + connector.encode())

    def _placed(self, topic: str, key: bytes | None, value: bytes | None) -> bool:
        """False while the broker does not know yet that the topic is not compacted."""
        told: list[tuple[KafkaError | None, Message]] = []
        self._producer.produce(
            topic, value, key, on_delivery=lambda error, message: told.append((error, message))
        )
        assert self._producer.flush(SECONDS) == 0
        error, message = told[0]
        if error is not None:
            assert error.code() == KafkaError.INVALID_RECORD, error
            return False
        partition, offset = message.partition(), message.offset()
        assert partition is not None and offset is not None
        self.places.append((topic, partition, offset))
        return True


def places_told(worker: HeadgateWorker) -> list[Place]:
    """Return the places of the records that the worker's log says it passes over."""
    line = re.compile(r"topic (\S+), partition (\d+), offset (\d+), key .*; passed over$", re.M)
    found = line.findall(worker.log.read_text())
    return [(topic, int(partition), int(offset)) for topic, partition, offset in found]


class Story:
    """A source that runs on one worker, from before its topics have garbage to after that."""

    def __init__(self, worker: HeadgateWorker, topics: InternalTopics, name: str, file: Path):
        self.worker, self.topics, self.name, self.file = worker, topics, name, file
        self.lines: list[str] = []

    @property
    def connector(self) -> str:
        return f"{self.name}-source"

    @property
    def status_keys(self) -> tuple[bytes, bytes]:
        name = self.connector.encode()
        return b"status-connector-" + name, b"status-task-%s-0" % name

    def go_on(self, count: int) -> None:
        """The source reads more lines, and each arrives once; its offset is shown."""
        more = [f"line {n}" for n in range(len(self.lines), len(self.lines) + count)]
        self.lines += more
        with self.file.open("a") as file:
            file.writelines(f"{line}\n" for line in more)
        place = {"filename": str(self.file)}
        wanted = {"partition": place, "offset": {"position": self.file.stat().st_size}}
        await_true("its offset", lambda: wanted in self.offsets(), SECONDS, self.worker.tail)

    def offsets(self) -> list[Any]:
        body: Any = self.worker.rest.get(f"/connectors/{self.connector}/offsets").body
        return list(body.get("offsets", []))

    def states(self) -> list[str]:
        status: Any = self.worker.rest.status(self.connector).body
        return [status["connector"]["state"], *[task["state"] for task in status["tasks"]]]

    def check(self, address: str) -> None:
        """Nothing has failed; what was passed over is in the log, each record once."""
        await_true("two RUNNING", lambda: self.states() == ["RUNNING"] * 2, SECONDS)
        values = [value.decode() for _, value in read_committed(address, self.name)]
        assert values == self.lines
        await_true("told", lambda: not self._untold(), SECONDS, lambda: str(self._untold()))
        log = self.worker.log.read_text()
        assert '"state":"FAILED"' not in log
        assert "Traceback" not in log

    def _untold(self) -> set[Place]:
        return set(self.topics.places) - set(places_told(self.worker))


@pytest.mark.exhaustive
def test_garbage_in_every_topic(
    headgate_worker: Callable[..., HeadgateWorker],  # noqa: F811
    kafka_broker: Found,
    kafka_name: str,
    tmp_path: Path,
) -> None:
    address = kafka_broker.address
    topics = InternalTopics(address, kafka_name)
    topics.create()
    topics.write("before", f"{kafka_name}-source")
    worker = headgate_worker(address, kafka_name, SETTINGS)
    story = Story(worker, topics, kafka_name, tmp_path / "in.txt")
    config = {
        "connector.class": "FileStreamSource",
        "file": str(story.file),
        "topic": kafka_name,
        "tasks.max": "1",
    }
    worker.rest.create(story.connector, config)
    story.go_on(100)
    story.check(address)

    topics.write("meanwhile", story.connector)
    topics.write_over(story.connector, story.file)
    story.go_on(100)
    story.check(address)
    assert sorted(places_told(worker)) == sorted(topics.places)

    worker.stop()
    topics.commit_too_many(story.connector)
    worker.start()
    right = b'{"tasks":1}'
    await_true("commit", lambda: topics.last_commit(story.connector) == right, SECONDS, worker.tail)
    story.go_on(100)
    story.check(address)
    twice = Counter(dict.fromkeys(topics.lasting, 2))
    await_true("told again", lambda: not twice - Counter(places_told(worker)), SECONDS, worker.tail)
    assert set(Counter(places_told(worker)).values()) <= {1, 2}
    check_observed(worker, topics)
    check_group_observed(story, address)


def check_group_observed(story: Story, address: str) -> None:
    """In our own protocol, observe shows the leader, the owners, and the generation that statuses
    have."""
    view = observed("--properties", str(story.worker.file))
    group, connector = view["group"], view["connectors"][story.connector]
    own = story.worker.url.removeprefix("http://")
    assert (group["state"], group["protocol"], group["leader"]) == ("Stable", "headgate", own)
    assert [member["tasks"] for member in group["members"]] == [[f"{story.connector}-0"]]
    assert (connector["owner"], connector["tasks"][0]["owner"]) == (own, own)
    assert connector["fencing"] == {"pending": False, "count": 1, "waiting": False}
    newest = dict(read_committed(address, story.topics.names["status"], 2))
    generations = [json.loads(newest[key])["generation"] for key in story.status_keys]
    assert group["generation"] == max(generations)


def check_observed(worker: HeadgateWorker, topics: InternalTopics) -> None:
    file = str(worker.folder / "worker.properties")
    view, shown = observed("--properties", file), observe("--properties", file)
    words = " ".join(shown.stdout.split())
    found: list[Place] = []
    for kind, topic in topics.names.items():
        rejected = view[kind]["rejected"]
        assert (view[kind]["topic"], view[kind]["rejected_count"]) == (topic, len(rejected))
        found += [(topic, one["partition"], one["offset"]) for one in rejected]
        assert f"{len(rejected)} records of" in words
        first = rejected[0]
        assert f"partition {first['partition']}, offset {first['offset']}, key" in words
        assert max(len(one["key"] + one["reason"]) for one in rejected) < 400
    assert sorted(found) == topics.lasting
