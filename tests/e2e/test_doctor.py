"""`headgate doctor` on a broker with ACLs names what is denied. It tries each operation and does
not guess."""

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclOperation,
    AdminClient,
    ResourceType,
)
from support.commands.doctoring import Doctored, doctor, lines_of  # noqa: F401
from support.kafka.cluster import producer_epoch
from support.kafka.rights import (
    PASSWORD,
    RIGHTS,
    USER,
    allow,
    make_topics,
    properties,
    security_of,
    with_login,
)

from headgate.topics.config_records import encode_commit, encode_connector
from local_kafka.broker import Broker

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]
CONFIG = {
    "connector.class": "FileStreamSource",
    "file": "in.txt",
    "topic": "lines",
    "tasks.max": "1",
    "name": "src",
}


def test_each_right_that_is_missing_is_named(
    own_broker: Callable[..., Broker],
    doctor: Callable[[dict[str, str]], Doctored],  # noqa: F811
) -> None:
    broker = own_broker(users={USER: PASSWORD})
    admin = AdminClient({"bootstrap.servers": broker.address})
    make_topics(admin)
    worker = with_login(broker)

    nothing = lines_of(doctor(worker))
    for denied in (
        "Read on Group:workers",
        "Write on Topic:configs",
        "Describe on TransactionalId:connect-cluster-workers",
        "Write on TransactionalId:connect-cluster-workers",
    ):
        # A user who may not see the group cannot tell if it is idle. Nothing is fenced then.
        not_tried = denied.startswith("Write on Trans")
        assert f"{'not tried' if not_tried else 'denied'}: {denied}" in nothing
    assert "Nothing is to be mended" not in nothing

    # A user who may see the group but not read it, before it had a member.
    allow(admin, (ResourceType.GROUP, "workers", AclOperation.DESCRIBE))
    assert "denied: Read on Group:workers" in lines_of(doctor(worker))

    # Group and topics first, so that the connector in the config topic is seen.
    allow(admin, *(right for right in RIGHTS if right[0] is not ResourceType.TRANSACTIONAL_ID))
    write_connector(broker)
    most = doctor(worker)
    assert most.returncode == 1
    text = lines_of(most)
    assert "denied: Write on TransactionalId:connect-cluster-workers" in text
    assert "permissions of connector src: denied: Write on TransactionalId:workers-src-0" in text
    assert "--operation Write --transactional-id workers-src-0" in text
    assert "denied: Read" not in text

    allow(admin, *RIGHTS)
    all_of_it = doctor(worker)
    assert all_of_it.returncode == 0, all_of_it.stdout + all_of_it.stderr
    assert "Nothing is to be mended." in all_of_it.stdout
    assert "12 of 12 are granted" in all_of_it.stdout
    assert "4 of 4 are granted" in all_of_it.stdout

    unserved = doctor({**worker, "listeners": "foo"})
    assert unserved.returncode == 1
    assert "REST: Invalid value foo for configuration listeners" in lines_of(unserved)
    assert "1 to mend" in unserved.stdout
    check_that_no_member_is_fenced(broker, lambda: lines_of(doctor(worker)))


def check_that_no_member_is_fenced(broker: Broker, look: Callable[[], str]) -> None:
    """While the group has a member, a check must not fence its producer."""
    member = Consumer({"bootstrap.servers": broker.address, "group.id": "workers"})
    member.subscribe(["lines"])
    deadline = time.monotonic() + 20
    while not member.assignment() and time.monotonic() < deadline:
        member.poll(0.1)
    before = epoch(broker)
    assert "not tried: Write on TransactionalId:connect-cluster-workers" in look()
    assert epoch(broker) == before
    member.close()
    look()
    assert epoch(broker) > before, "tried, where nobody is at work"


def epoch(broker: Broker) -> tuple[int, int]:
    return producer_epoch(broker.address, "connect-cluster-workers")


def write_connector(broker: Broker, name: str = "src", **more: str) -> None:
    producer = Producer({"bootstrap.servers": broker.address})
    config = {**CONFIG, "name": name, **more}
    for key, value in (encode_connector(name, config), encode_commit(name, 0)):
        producer.produce("configs", key=key, value=value)
    producer.flush(15)


def test_each_client_of_a_connector_is_tried_as_it_logs_in(
    own_broker: Callable[..., Broker],
    doctor: Callable[[dict[str, str]], Doctored],  # noqa: F811
) -> None:
    """And what none may create is named before a worker or a task needs it."""
    broker = own_broker(users={USER: PASSWORD, "writer": PASSWORD})
    admin = AdminClient({"bootstrap.servers": broker.address})
    make_topics(admin)
    topic, transactional = ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID
    allow(admin, *RIGHTS)
    allow(admin, (topic, "offsets", AclOperation.WRITE), user="writer")
    allow(admin, (transactional, "workers-src-0", AclOperation.WRITE), user="writer")
    worker = with_login(broker)
    write_connector(broker, **as_producer("writer", PASSWORD))
    # The worker's user may write, and it is the producer's that may not.
    denied = lines_of(doctor(worker))
    assert "connector src's producer: denied: Write on Topic:lines" in denied
    assert "connector src's producer: 3 of 4 are granted" in denied
    assert "connector src's admin client: 2 of 2 are granted" in denied
    assert "1 to mend" in denied
    allow(admin, (topic, "lines", AclOperation.WRITE), user="writer")
    assert "Nothing is to be mended" in lines_of(doctor(worker))

    # No login of a producer, and a wrong one.
    write_connector(broker, "bare")
    write_connector(broker, "wrong", **as_producer("writer", "other"))
    half = {key: text for key, text in worker.items() if not key.startswith("producer.")}
    text = lines_of(doctor(half))
    assert "BAD permissions of connector bare's producer: the brokers do not answer" in text
    assert "give the worker producer.sasl.*" in text
    assert "BAD permissions of connector wrong's producer: the brokers do not answer" in text
    assert "check name and password in sasl.jaas.config" in text
    assert "Nothing" not in text

    # A user who may read and write a missing topic may not create it yet.
    later = {**worker, "status.storage.topic": "later", "status.storage.replication.factor": "1"}
    both = (AclOperation.READ, AclOperation.WRITE)
    allow(admin, *((topic, "later", each) for each in both))
    text = lines_of(doctor(later))
    assert "later: it does not exist, and User:connect lacks Create on Topic:later" in text
    allow(admin, (topic, "later", AclOperation.CREATE))
    text = lines_of(doctor(later))
    assert "later: will be created at the first start" in text
    assert "later" not in admin.list_topics(timeout=15).topics, "only asked for"
    check_own_topic(broker, admin, lambda: lines_of(doctor(ones(worker))))


def check_own_topic(broker: Broker, admin: AdminClient, look: Callable[[], str]) -> None:
    topic = ResourceType.TOPIC
    write_connector(broker, "own", **{"offsets.storage.topic": "mine"})
    allow(admin, (topic, "mine", AclOperation.READ), (topic, "mine", AclOperation.WRITE))
    about = "offsets.storage.topic of connector own: mine: it does not exist"
    assert f"{about}, and User:connect lacks Create on Topic:mine" in look()
    allow(admin, (topic, "mine", AclOperation.CREATE))
    assert about not in look()


def ones(worker: dict[str, str]) -> dict[str, str]:
    """Return the properties with one replica for the offsets topic, since there is one broker."""
    return {**worker, "offset.storage.replication.factor": "1"}


def as_producer(user: str, password: str) -> dict[str, str]:
    login = security_of(user, password)
    return {f"producer.override.{key}": text for key, text in login.items()}


def test_topics_that_workers_would_refuse_are_named(
    own_broker: Callable[..., Broker],
    doctor: Callable[[dict[str, str]], Doctored],  # noqa: F811
) -> None:
    broker = own_broker()
    admin = AdminClient({"bootstrap.servers": broker.address})
    make_topics(admin, config_partitions=2)
    plain = properties(broker.address)
    wrong = doctor({**plain, "status.storage.topic": "lines"})
    assert wrong.returncode == 1
    text = lines_of(wrong)
    assert "configs: it has 2 partitions, expected a single one" in text
    assert "lines: its cleanup.policy is delete, expected compact" in text

    absent = doctor(
        {
            **plain,
            "offset.storage.topic": "later",
            "status.storage.topic": "never",
            "offset.storage.replication.factor": "1",
            "status.storage.replication.factor": "3",
        }
    )
    assert absent.returncode == 1
    text = lines_of(absent)
    assert "never: it does not exist, and no worker can make it with 3 replicas: " in text
    assert "only 1 broker(s) are registered" in text
    assert "Set status.storage.replication.factor" in text
    assert "later: will be created at the first start" in text

    nobody = doctor({**plain, "bootstrap.servers": "127.0.0.1:1"})
    assert nobody.returncode == 1
    assert "127.0.0.1:1" in nobody.stdout
    broken = doctor({**plain, "headgate.task.runer": "x"})
    assert broken.returncode == 2
    assert "headgate.task.runner" in broken.stderr


def test_own_offsets_topics_that_are_older_than_the_global_one_are_named(
    own_broker: Callable[..., Broker],
    doctor: Callable[[dict[str, str]], Doctored],  # noqa: F811
) -> None:
    """Named by the connector, or implied by the other cluster that it writes to."""
    broker, elsewhere = own_broker(), own_broker()
    make_topics(AdminClient({"bootstrap.servers": broker.address}))
    make_topics(AdminClient({"bootstrap.servers": elsewhere.address}))
    configs = {
        "named": {"offsets.storage.topic": "own"},
        "implied": {"producer.override.bootstrap.servers": elsewhere.address},
        "fresh": {"offsets.storage.topic": "own"},
        "absent": {"offsets.storage.topic": "not-made-yet"},
        "unclear": {"producer.override.security.protocol": "SASL_SSL"},
    }
    here, there = (Producer({"bootstrap.servers": each.address}) for each in (broker, elsewhere))
    for name, config in configs.items():
        for key, value in (
            encode_connector(name, {**CONFIG, "name": name, **config}),
            encode_commit(name, 0),
        ):
            here.produce("configs", key=key, value=value)
        key = f'["{name}",{{"file":"x"}}]'
        here.produce("offsets", key=key, value='{"n":2}', timestamp=2_000_000)
        if name not in ("absent", "unclear"):
            producer, own = (there, "offsets") if name == "implied" else (here, "own")
            old_ms = 1_990_000 if name == "fresh" else 1_000_000
            producer.produce(own, key=key, value='{"n":1}', timestamp=old_ms)
    assert here.flush(15) == there.flush(15) == 0
    asked = doctor(properties(broker.address))
    assert asked.returncode == 1
    text = lines_of(asked)
    assert "named: offsets in its own topic own are 1000 s older than those in offsets" in text
    assert "implied: offsets in its own topic offsets are 1000 s older" in text
    assert text.count("s older than those") == 2
    assert "BAD permissions of connector unclear's producer: sasl.jaas.config" in text
    assert "connector absent: not-made-yet: it does not exist, and no worker can make it" in text
    assert "Traceback" not in asked.stderr
