"""Tasks that lack a right fail and name it, as Connect's do."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclOperation,
    AdminClient,
    NewTopic,
    ResourceType,
)
from support.kafka.rights import PASSWORD, TOPICS, USER, allow, make_topics, with_login

from headgate.connector.sink_names import SinkTopics, TopicPattern
from headgate.ports import ProducerRecord, RefusedError, TransactionOverError
from headgate_kafka.clients.roles import WorkerClients
from headgate_kafka.clients.settings import consumer_settings
from headgate_kafka.logs.reading import TopicReader
from headgate_kafka.logs.writing import PlainWriter
from headgate_kafka.transport import KafkaTransport, open_transport
from local_kafka.broker import Broker

pytestmark = pytest.mark.slow
SECONDS = 30


@dataclass
class Guarded:
    """A broker with ACLs. Its user may read `lines`, with a record, and the internal topics, be in
    the groups `g` and `g-pattern`, write to `written`, as `tx` too, and to `denied`, which is not
    there."""

    properties: dict[str, str]
    log: Any

    def polled(self, group: str, topics: SinkTopics) -> list[Any]:
        """Return the first records that a sink gets."""
        consumer = self.log.consumer(group, topics, "c")
        deadline = time.monotonic() + SECONDS
        try:
            while time.monotonic() < deadline:
                if found := consumer.poll(10, 100):
                    return list(found)
        finally:
            consumer.close()
        raise AssertionError(f"nothing came within {SECONDS} s")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    broker = Broker(tmp_path_factory.mktemp("guarded"), users={USER: PASSWORD})
    opened: KafkaTransport | None = None
    try:
        broker.start()
        admin = AdminClient({"bootstrap.servers": broker.address})
        make_topics(admin)
        more = admin.create_topics([NewTopic(name, 1, 1) for name in ("lines-secret", "written")])
        for made in more.values():
            made.result(15)
        allow(
            admin,
            *((ResourceType.TOPIC, name, AclOperation.READ) for name in TOPICS.values()),
            (ResourceType.TOPIC, "lines", AclOperation.READ),
            *((ResourceType.TOPIC, name, AclOperation.WRITE) for name in ("denied", "written")),
            (ResourceType.TRANSACTIONAL_ID, "tx", AclOperation.WRITE),
            *((ResourceType.GROUP, name, AclOperation.READ) for name in ("g", "g-pattern")),
        )
        producer = Producer({"bootstrap.servers": broker.address})
        producer.produce("lines", b"a")
        assert producer.flush(15) == 0
        properties = {"kind": "kafka", **with_login(broker)}
        opened = open_transport(properties)
        yield Guarded(properties, opened.record_log)
    finally:
        if opened is not None:
            opened.close()
        broker.kill()


def test_a_reader_needs_no_right_on_the_group_that_it_does_not_use(guarded: Guarded) -> None:
    """Java's consumers that only assign need none. librdkafka looks up the group's coordinator all
    the same."""
    settings = consumer_settings(guarded.properties, client_id="c", group_id="headgate-reader")
    reader = TopicReader(settings, "lines", lambda _line: None)
    try:
        reader.start({0: 0})
        found: list[Any] = []
        until = time.monotonic() + 3
        while time.monotonic() < until:
            found += reader.take(10, 0.1)
        assert [message.value() for message in found] == [b"a"]
    finally:
        reader.close()
    assert guarded.log.read("lines", 0, 0, 1, 10)[0].value == b"a"


def test_a_sink_without_a_right_on_its_group_is_refused(guarded: Guarded) -> None:
    with pytest.raises(RefusedError, match="User:connect lacks Read on Group:g-no"):
        guarded.polled("g-no", ["lines"])


def test_a_sink_without_a_right_on_its_topic_is_refused(guarded: Guarded) -> None:
    lacks = "cannot read.*lines-secret.*User:connect lacks Read on that topic"
    with pytest.raises(RefusedError, match=lacks):
        guarded.polled("g", ["lines-secret"])
    assert [record.value for record in guarded.polled("g", ["lines"])] == [b"a"]


def test_topics_that_match_and_may_not_be_described_are_not_seen(guarded: Guarded) -> None:
    found = guarded.polled("g-pattern", TopicPattern("lines.*"))
    assert [(record.topic, record.value) for record in found] == [("lines", b"a")]


def test_who_may_not_create_a_topic_is_refused(guarded: Guarded) -> None:
    guarded.log.create_topic("lines", 1)  # is there
    with pytest.raises(RefusedError, match=r"User:connect lacks .*Topic:unseen"):
        guarded.log.create_topic("unseen", 1)
    lacks = "'denied' could not be created.*User:connect lacks Create on Topic:denied"
    with pytest.raises(RefusedError, match=lacks):
        guarded.log.create_topic("denied", 1)


def test_who_may_not_write_to_a_topic_is_told_so(guarded: Guarded) -> None:
    producer = guarded.log.producer("c", None, None)
    try:
        producer.send([ProducerRecord("lines", 0, None, b"x")])
        until = time.monotonic() + SECONDS
        acks: list[Any] = []
        while not acks and time.monotonic() < until:
            acks = list(producer.acks())
        assert "User:connect lacks Write on Topic:lines" in str(acks[0].error)
    finally:
        producer.close()


@pytest.mark.parametrize(
    ("topic", "lacks"),
    [
        ("lines", "Write on Topic:lines"),
        ("written", "Write on Topic:written or Topic:offsets"),
    ],
)
def test_whose_transaction_may_not_be_written_is_told_so(
    guarded: Guarded, topic: str, lacks: str
) -> None:
    """The offsets topic is one of those it writes to; brokers do not say which they refused."""
    producer = guarded.log.producer("c", "tx", None)
    try:
        producer.init()
        producer.send([ProducerRecord(topic, 0, None, b"x")])
        with pytest.raises(TransactionOverError, match=f"User:connect lacks {lacks}"):
            producer.commit([(b'["c",{}]', b"{}")])
    finally:
        producer.close()


def test_a_copy_that_may_not_be_written_is_told_of(
    guarded: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody waits for it: offsets of a connector's own topic, copied to the workers' one."""
    settings = WorkerClients(guarded.properties, print).writer("offsets")
    writer = PlainWriter(settings, lambda _line: None)
    writer.append_later(TOPICS["offset"], [(b"k", b"v")])
    writer.close()  # sends what is left
    assert "a copy was not written" in caplog.text
    assert "User:connect lacks Write on Topic:offsets" in caplog.text
