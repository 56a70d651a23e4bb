"""Connectors whose admin client logs in as another principal than their producers and consumers.

The tests show which missing right fails what, in whose name, and that `headgate doctor` reports it
before.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclOperation,
    AdminClient,
    NewTopic,
    ResourceType,
)
from support.commands.doctoring import Doctored, doctor, lines_of  # noqa: F401
from support.kafka.cluster import read_committed
from support.kafka.rights import (
    PASSWORD,
    RIGHTS,
    USER,
    allow,
    make_topics,
    properties,
    security_of,
)

from headgate.ports import ProducerRecord, RecordLog, TransportError
from headgate.topics.config_records import encode_commit, encode_connector
from headgate_kafka.admin.topics import TopicRefusedError
from headgate_kafka.task_transport import KafkaTaskTransport, open_task_transport
from local_kafka.broker import Broker

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]
SECONDS = 30
READ, DESCRIBE, DELETE = AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DELETE
Operations = tuple[AclOperation, ...]

SINKS: Final[Mapping[str, tuple[Operations, Operations]]] = {
    # What the admin client of each may do with its group and with its topic.
    "all": ((READ, DELETE), (READ,)),
    "no-group": ((), (READ,)),
    "no-topic": ((READ, DELETE), ()),
    "no-group-read": ((DELETE,), (READ,)),
    "no-topic-read": ((READ, DELETE), (DESCRIBE,)),
    "no-delete": ((READ,), (READ,)),
}
DENIED: Final = {
    "all": set[str](),
    "no-group": {"Describe on Group", "Read on Group", "Delete on Group"},
    "no-topic": {"Describe on Topic", "Read on Topic"},
    "no-group-read": {"Read on Group"},
    "no-topic-read": {"Read on Topic"},
    "no-delete": {"Delete on Group"},
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    users = dict.fromkeys((USER, "writer", "reader", "boss"), PASSWORD)
    made = Broker(tmp_path_factory.mktemp("rights"), users=users)
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def worker(broker: Broker) -> dict[str, str]:
    """A worker with a sink of each kind and two sources, all with their own logins."""
    admin = AdminClient({"bootstrap.servers": broker.address})
    make_topics(admin)
    sinks = [NewTopic(f"{name}-topic", 1, 1) for name in SINKS]
    new = [*sinks, NewTopic("mine", 1, 1, config={"cleanup.policy": "compact"})]
    for future in admin.create_topics(new).values():
        future.result(15)
    group, topic = ResourceType.GROUP, ResourceType.TOPIC
    allow(admin, *RIGHTS)
    allow(admin, (topic, "lines", AclOperation.WRITE), user="writer")
    allow(admin, (topic, "mine", AclOperation.WRITE), user="writer")
    allow(admin, (topic, "mine", READ), user="reader")
    for name, (of_group, of_topic) in SINKS.items():
        allow(
            admin, (group, f"connect-{name}", READ), (topic, f"{name}-topic", READ), user="reader"
        )
        given = [
            *((group, f"connect-{name}", each) for each in of_group),
            *((topic, f"{name}-topic", each) for each in of_topic),
        ]
        allow(admin, *given, user="boss")
        commit_as_anybody(broker.address, f"connect-{name}", f"{name}-topic")
    logins = {"producer": "writer", "consumer": "reader", "admin": "boss"}
    return {
        **properties(broker.sasl_address),
        **security_of(USER, PASSWORD),
        **{
            f"{role}.{key}": text
            for role, user in logins.items()
            for key, text in security_of(user, PASSWORD).items()
        },
        "exactly.once.source.support": "disabled",
    }


def commit_as_anybody(address: str, group: str, topic: str) -> None:
    client = Consumer({"bootstrap.servers": address, "group.id": group})
    client.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    client.close()


def opened(worker: dict[str, str], name: str, **config: str) -> KafkaTaskTransport:
    kind: Any = "sink" if "topics" in config else "source"
    return open_task_transport(worker, config, connector=name, kind=kind, exactly_once=False)


@pytest.fixture
def sink_log(worker: dict[str, str]) -> Iterator[Callable[[str], RecordLog]]:
    made: list[KafkaTaskTransport] = []

    def of(name: str) -> RecordLog:
        made.append(opened(worker, name, topics=f"{name}-topic"))
        return made[-1].record_log

    yield of
    for transport in made:
        transport.close()


def refused(call: Callable[..., object], *arguments: object) -> str:
    try:
        call(*arguments)
    except TransportError as error:
        what, user, lacks = str(error).partition("User:")
        return user + lacks or what
    return ""


def test_the_calls_about_a_sinks_offsets(sink_log: Callable[[str], RecordLog]) -> None:
    found: dict[str, tuple[str, ...]] = {}
    for name in SINKS:
        log, group, place = sink_log(name), f"connect-{name}", (f"{name}-topic", 0)
        found[name] = (
            refused(log.committed, group),
            refused(log.commit_unguarded, group, {place: 0}),
            refused(log.commit_unguarded, group, {place: None}),
        )
    assert found == {
        "all": ("", "", ""),
        "no-group": (
            "User:boss lacks Describe on Group:connect-no-group",
            "User:boss lacks Read on Group:connect-no-group",
            "User:boss lacks Delete on Group:connect-no-group",
        ),
        "no-topic": (
            "",
            "User:boss lacks Read on Topic:no-topic-topic",
            "User:boss lacks Read on Topic:no-topic-topic",
        ),
        "no-group-read": ("", "User:boss lacks Read on Group:connect-no-group-read", ""),
        "no-topic-read": (
            "",
            "User:boss lacks Read on Topic:no-topic-read-topic",
            "User:boss lacks Read on Topic:no-topic-read-topic",
        ),
        "no-delete": ("", "", "User:boss lacks Delete on Group:connect-no-delete"),
    }
    assert sink_log("no-topic").committed("connect-no-topic") == {}, "one that it may not see"
    assert sink_log("no-delete").committed("connect-no-delete") == {("no-delete-topic", 0): 0}


def test_a_sources_producers_are_asked_for_topics_that_its_admin_client_may_not_see(
    broker: Broker, worker: dict[str, str]
) -> None:
    transport = opened(worker, "src")
    log = transport.record_log
    producer = log.producer("c", None, None)
    try:
        log.create_topic("lines", None)
        producer.send([ProducerRecord("lines", None, None, b"x")])
        until = time.monotonic() + SECONDS
        while not (acks := producer.acks()) and time.monotonic() < until:
            pass
        assert [ack.error for ack in acks] == [None]
        assert [value for _, value in read_committed(broker.address, "lines")] == [b"x"]
        lacks = (
            "User:writer lacks Describe on Topic:unseen; producers need Write on Topic:unseen, "
            "which implies it"
        )
        assert refused(log.create_topic, "unseen", None) == lacks
    finally:
        producer.close()
        transport.close()


def test_the_doctor_names_what_an_admin_client_lacks(
    broker: Broker,
    worker: dict[str, str],
    doctor: Callable[[dict[str, str]], Doctored],  # noqa: F811
) -> None:
    own = {"offsets.storage.topic": "mine"}
    with pytest.raises(TopicRefusedError, match="User:boss lacks Describe on Topic:mine"):
        opened(worker, "own", **own)
    producer = Producer({"bootstrap.servers": broker.address})
    sinks = {
        name: {"connector.class": "FileStreamSink", "topics": f"{name}-topic"} for name in SINKS
    }
    source = {"connector.class": "FileStreamSource", "file": "in.txt", "topic": "lines"}
    for name, config in {**sinks, "src": source, "own": {**source, **own}}.items():
        for key, value in (encode_connector(name, config), encode_commit(name, 0)):
            producer.produce("configs", key=key, value=value)
    assert producer.flush(SECONDS) == 0
    text = lines_of(doctor(worker))
    for name, expected in DENIED.items():
        about = rf"note permissions of connector {name}'s admin client: denied: (\w+ on \w+):"
        assert set(re.findall(about, text)) == expected, name
        granted = 5 - len(expected)
        assert f"connector {name}'s admin client: {granted} of 5 are granted" in text
        assert f"connector {name}'s consumer: 2 of 2 are granted" in text
    assert "BAD permissions of connector own's admin client: denied: Describe on Topic:mine" in text
    assert "connector src's producer: 1 of 1 are granted" in text
    assert "connector src's admin client: none is known to be needed" in text
    admin = AdminClient({"bootstrap.servers": broker.address})
    allow(admin, (ResourceType.TOPIC, "mine", DESCRIBE), user="boss")
    opened(worker, "own", **own).close()
    assert "denied: Describe on Topic:mine" not in lines_of(doctor(worker))
