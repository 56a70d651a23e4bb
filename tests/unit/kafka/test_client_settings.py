"""Java's client properties become settings of the two Python clients, each for the clients that
need it."""

import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from headgate_kafka.clients import keys as client_keys
from headgate_kafka.clients.settings import (
    ROLES,
    ClientSettingsError,
    Role,
    admin_settings,
    check_worker_clients,
    checked,
    client_id_base,
    consumer_settings,
    java_only,
    kafka_python,
    librdkafka,
    poll_records,
    producer_settings,
    worker_client_settings,
)
from headgate_kafka.logs.config_log import LeaderWriter

QUICK = {"reconnect.backoff.ms": "20", "reconnect.backoff.max.ms": "1000"}
"""Where the user says nothing of it."""

WORKER = {
    "bootstrap.servers": "kafka:9092",
    "group.id": "connect",
    "session.timeout.ms": "10000",
    "key.converter": "x",
    "request.timeout.ms": "20000",
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="w" password="worker secret";',
    "producer.linger.ms": "5",
    "producer.batch.size": "1000",
    "consumer.fetch.min.bytes": "7",
    "admin.retry.backoff.ms": "33",
}
CLASSES: dict[Role, Any] = {"producer": Producer, "consumer": Consumer, "admin": AdminClient}


def accepted(role: Role, settings: Mapping[str, str]) -> None:
    """librdkafka itself takes them; making a client needs no broker."""
    base = {"group.id": "g"} if role == "consumer" else {}
    CLASSES[role]({**base, "log_level": "0", **settings})


@pytest.mark.parametrize(
    ("role", "given", "wanted"),
    [
        ("producer", {"acks": "-1"}, {"acks": "-1"}),
        ("producer", {"max.request.size": "2000"}, {"message.max.bytes": "2000"}),
        ("producer", {"max.request.size": "2147483647"}, {"message.max.bytes": "1000000000"}),
        ("producer", {"request.timeout.ms": "2147483647"}, {"socket.timeout.ms": "300000"}),
        ("producer", {"send.buffer.bytes": "-1"}, {"socket.send.buffer.bytes": "0"}),
        ("producer", {"linger.ms": " 7 "}, {"linger.ms": "7"}),
        (
            "producer",
            {
                "compression.type": "zstd",
                "compression.zstd.level": "4",
                "compression.gzip.level": "9",
            },
            {"compression.type": "zstd", "compression.level": "4"},
        ),
        ("producer", {"batch.size": "0"}, {"batch.size": "1"}),
        *(
            (
                "producer",
                {"compression.type": kind, f"compression.{kind}.level": java},
                {"compression.type": kind, "compression.level": level},
            )
            for kind, java, level in (
                ("zstd", "22", "12"),
                ("zstd", "-5", "1"),
                ("zstd", "0", "0"),
                ("lz4", "17", "12"),
                ("lz4", "1", "1"),
                ("gzip", "-1", "-1"),
                ("gzip", "9", "9"),
            )
        ),
        (
            "producer",
            {"compression.type": "snappy", "compression.gzip.level": "9"},
            {"compression.type": "snappy"},
        ),
        ("producer", {"queue.buffering.max.messages": "5"}, {"queue.buffering.max.messages": "5"}),
        ("producer", {"buffer.memory": "1", "max.block.ms": "2", "nonsense": "3"}, {}),
        ("consumer", {"fetch.max.wait.ms": "3"}, {"fetch.wait.max.ms": "3"}),
        ("consumer", {"auto.offset.reset": "none"}, {"auto.offset.reset": "error"}),
        ("consumer", {"auto.offset.reset": "latest"}, {"auto.offset.reset": "latest"}),
        (
            "consumer",
            {
                "partition.assignment.strategy": "com.acme.Own, "
                "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
            },
            {"partition.assignment.strategy": "cooperative-sticky"},
        ),
        (
            "admin",
            {"client.dns.lookup": "use_all_dns_ips"},
            {"client.dns.lookup": "use_all_dns_ips"},
        ),
        ("admin", {"acks": "all"}, {}),
        ("admin", {"security.protocol": "ssl"}, {"security.protocol": "ssl"}),
        (
            "admin",
            {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""},
            {"security.protocol": "ssl", "ssl.endpoint.identification.algorithm": "none"},
        ),
    ],
)
def test_java_to_librdkafka(role: Role, given: dict[str, str], wanted: dict[str, str]) -> None:
    made = librdkafka(given, role)
    accepted(role, made)
    made.setdefault("security.protocol", "plaintext")
    expected = {"security.protocol": "plaintext", **QUICK, **wanted}
    if expected["security.protocol"] == "ssl":
        expected.setdefault("ssl.endpoint.identification.algorithm", "https")
    assert made == expected


@pytest.mark.parametrize("role", ROLES)
def test_every_name_and_both_ends_of_every_range_are_librdkafkas(role: Role) -> None:
    for java, name in client_keys.RENAMED[role].items():
        if name in client_keys.LIMITS:
            for huge in ("-5", "99999999999"):
                accepted(role, _alone(role, java, huge))
    tuning = {name: "1" for name in client_keys.NATIVE if name != "debug"}
    accepted(role, librdkafka({**tuning, "socket.nagle.disable": "true"}, role))


@pytest.mark.parametrize("role", ROLES)
def test_javas_choices_are_librdkafkas_and_no_others(role: Role) -> None:
    for key in client_keys.CHOICES.keys() & client_keys.RENAMED[role].keys():
        for value in client_keys.CHOICES[key]:
            made = checked({key: value}, role)
            assert checked({key: f" {value.upper()} "}, role).keys() == made.keys()
            accepted(role, made)
        for other in ("foo", ""):
            with pytest.raises(ClientSettingsError, match=rf"^{key}: '{other}' is none of"):
                librdkafka({key: other}, role)


@pytest.mark.parametrize(
    ("role", "given", "key", "text"),
    [
        ("producer", {"linger.ms": "1", "debug": "foo"}, "debug", "'foo' is refused by librdkafka"),
        ("admin", {"log_level": "8"}, "log_level", "outside allowed range 0..7"),
        (
            "producer",
            {"linger.ms": "1", "acks": "1", "enable.idempotence": "true"},
            "acks",
            "`acks` must be set to `all`",
        ),
        (
            "producer",
            {"retries": "7", "max.in.flight.requests.per.connection": "6", "transactional.id": "t"},
            "max.in.flight.requests.per.connection",
            "`max.in.flight.requests.per.connection` must be set <= 5",
        ),
        (
            "producer",
            {"delivery.timeout.ms": "1", "linger.ms": "5"},
            "delivery.timeout.ms",
            "`delivery.timeout.ms` must be greater than `linger.ms`",
        ),
        (
            "consumer",
            {"client.rack": "r", "session.timeout.ms": "9000", "group.protocol": "consumer"},
            "session.timeout.ms",
            "is not supported for `group.protocol=consumer`",
        ),
        ("producer", {"debug": "foo", "log_level": "8"}, "debug", "refused by librdkafka"),
        ("consumer", {"group.id": " "}, "group.id", "is empty"),
        (
            "producer",
            {"compression.type": "zstd", "compression.zstd.level": "best"},
            "compression.zstd.level",
            "'best' is not a whole number",
        ),
    ],
)
def test_what_no_client_can_be_made_of_is_refused_with_the_users_key(
    role: Role, given: dict[str, str], key: str, text: str
) -> None:
    with pytest.raises(ClientSettingsError, match=re.escape(text)) as caught:
        checked({"client.id": "c", "bootstrap.servers": "kafka:9092", **given}, role)
    assert caught.value.key == key
    assert "Failed to create" not in str(caught.value)


def test_connectors_clients_are_asked_for_with_what_librdkafka_takes() -> None:
    for role, make in (
        ("producer", lambda wrong: producer_settings({}, wrong, client_id="c")),
        ("consumer", lambda wrong: consumer_settings({}, wrong, client_id="c", group_id="g")),
        ("admin", lambda wrong: admin_settings({}, wrong, client_id="c")),
    ):
        with pytest.raises(ClientSettingsError, match=r"^debug: 'foo' is refused"):
            make({f"{role}.override.debug": "foo"})


def test_trying_settings_is_heard_nowhere_and_leaves_nothing(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Nor does it connect: no server, no login."""
    before = _threads()
    with socket.create_server(("127.0.0.1", 0)) as server:
        servers = f"127.0.0.1:{server.getsockname()[1]}"
        for role in ROLES:
            checked({"debug": "all", "bootstrap.servers": servers}, role)
        server.settimeout(0.2)
        with pytest.raises(TimeoutError):
            server.accept()
    assert _threads() <= before, "those of others may end meanwhile"
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("key", ["debug", "producer.debug"])
def test_a_workers_own_clients_are_tried_and_not_its_connectors(key: str) -> None:
    """Writers of internal topics set some keys as they need them, so any value of such a key
    passes."""
    login = {"sasl.jaas.config": None, "security.protocol": None}
    worker = {**WORKER, **login, "acks": "1", "enable.idempotence": "true", "retries": "0"}
    check_worker_clients(worker, in_group=True)
    wrong = {**worker, key: "foo"}
    if key == "debug":
        with pytest.raises(ClientSettingsError, match=r"^debug: 'foo' is refused"):
            check_worker_clients(wrong, in_group=True)
    else:
        check_worker_clients(wrong, in_group=True)


def test_a_worker_without_a_group_has_no_producer_of_its_own() -> None:
    worker = {"compression.type": "foo"}
    check_worker_clients(worker, in_group=False)
    with pytest.raises(ClientSettingsError, match=r"^compression\.type: 'foo' is none of"):
        check_worker_clients(worker, in_group=True)


def _threads() -> set[str]:
    """Return the threads of this process, those of librdkafka included."""
    return {path.name for path in Path("/proc/self/task").iterdir()}


def _alone(role: Role, java: str, value: str) -> dict[str, str]:
    """Return the settings of one key, with the other keys against which librdkafka checks its
    number."""
    made = librdkafka({java: value}, role)
    made.pop("fetch.wait.max.ms" if made.get("socket.timeout.ms") == "10" else "", None)
    if made.get("socket.timeout.ms") == "10" and role == "consumer":
        made["fetch.wait.max.ms"] = "0"
    if int(made.get("fetch.wait.max.ms", "0")) > 60_000:
        made["socket.timeout.ms"] = "300000"
        made["fetch.wait.max.ms"] = "299000"
    if made.get("retry.backoff.ms") == "300000":
        made["retry.backoff.max.ms"] = "300000"
    if made.get("retry.backoff.max.ms") == "1":
        made["retry.backoff.ms"] = "1"
    return made


@pytest.mark.parametrize(
    ("role", "given", "wanted"),
    [
        (
            "producer",
            {"transactional.id": "t", "request.timeout.ms": "120000"},
            {"socket.timeout.ms": "60000"},
        ),
        (
            "producer",
            {
                "transactional.id": "t",
                "transaction.timeout.ms": "20000",
                "request.timeout.ms": "30000",
                "delivery.timeout.ms": "2147483647",
            },
            {"socket.timeout.ms": "20000", "delivery.timeout.ms": "20000"},
        ),
        (
            "producer",
            {"transactional.id": "t", "transaction.timeout.ms": "500"},
            {"transaction.timeout.ms": "1000"},
        ),
        (
            "producer",
            {"transactional.id": "t", "transaction.timeout.ms": "3600000"},
            {"socket.timeout.ms": "60000"},
        ),
        (
            "producer",
            {
                "transactional.id": "t",
                "transaction.timeout.ms": "3600000",
                "request.timeout.ms": "1000",
            },
            {"socket.timeout.ms": "1000"},
        ),
        (
            "producer",
            {"transactional.id": "t", "linger.ms": "100000"},
            {"linger.ms": "59999"},
        ),
        ("producer", {"request.timeout.ms": "120000"}, {"socket.timeout.ms": "120000"}),
        ("consumer", {"max.poll.interval.ms": "30000"}, {"session.timeout.ms": "30000"}),
        (
            "consumer",
            {
                "max.poll.interval.ms": "30000",
                "session.timeout.ms": "60000",
                "heartbeat.interval.ms": "20000",
            },
            {"session.timeout.ms": "30000", "heartbeat.interval.ms": "10000"},
        ),
        (
            "consumer",
            {"session.timeout.ms": "600000"},
            {"session.timeout.ms": "300000"},
        ),
        (
            "consumer",  # brokers refuse a shorter session
            {"max.poll.interval.ms": "2000"},
            {"session.timeout.ms": "6000", "max.poll.interval.ms": "6000"},
        ),
        (
            "consumer",
            {"max.poll.interval.ms": "30000", "group.protocol": "consumer"},
            {"max.poll.interval.ms": "30000"},
        ),
        ("consumer", {"fetch.max.bytes": "524288"}, {"message.max.bytes": "524288"}),
        ("consumer", {"fetch.max.bytes": "0"}, {"fetch.max.bytes": "1000"}),
        (
            "admin",
            {"reconnect.backoff.ms": "20000"},
            {"reconnect.backoff.ms": "20000", "reconnect.backoff.max.ms": "20000"},
        ),
        (
            "admin",
            {"reconnect.backoff.ms": "500"},
            {"reconnect.backoff.ms": "500", "reconnect.backoff.max.ms": "500"},
        ),
        (
            "admin",
            {"reconnect.backoff.max.ms": "5"},
            {"reconnect.backoff.ms": "5", "reconnect.backoff.max.ms": "5"},
        ),
        (
            "admin",
            {"reconnect.backoff.ms": "70", "reconnect.backoff.max.ms": "50"},
            {"reconnect.backoff.ms": "50", "reconnect.backoff.max.ms": "50"},
        ),
    ],
)
def test_two_settings_that_java_takes_together(
    role: Role, given: dict[str, str], wanted: dict[str, str]
) -> None:
    made = librdkafka(given, role)
    accepted(role, made)
    assert made.items() >= wanted.items()


@pytest.mark.parametrize(
    "given",
    [{}, {"request.timeout.ms": "120000"}, {"transaction.timeout.ms": "5000"}],
)
def test_the_leaders_producer_can_be_made(given: dict[str, str]) -> None:
    worker = {**WORKER, "security.protocol": "PLAINTEXT", "sasl.jaas.config": None, **given}
    settings = worker_client_settings(worker, "producer", client_id="c")
    writer = LeaderWriter("configs", settings, "connect-cluster-g", lambda _line: None)
    accepted("producer", writer._contact._given)


def test_who_is_given_what() -> None:
    connector = {"producer.override.linger.ms": "9", "consumer.override.group.id": "mine"}
    internal = worker_client_settings(
        WORKER, "producer", client_id="c", forced={"acks": "all", "enable.idempotence": "true"}
    )
    assert internal == {
        "bootstrap.servers": "kafka:9092",
        "socket.timeout.ms": "20000",
        "client.id": "c",
        "acks": "all",
        "enable.idempotence": "true",
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "w",
        "sasl.password": "worker secret",
        **QUICK,
    }
    # Neither the worker's login nor its timeouts: as in Connect these need the prefix `producer.`.
    assert producer_settings(WORKER, connector, client_id="p") == {
        "bootstrap.servers": "kafka:9092",
        "acks": "all",
        "max.in.flight.requests.per.connection": "1",
        "delivery.timeout.ms": "2147483647",
        "client.id": "p",
        "linger.ms": "9",
        "batch.size": "1000",
        "security.protocol": "plaintext",
        "partitioner": "murmur2_random",
        **QUICK,
    }
    consumer = consumer_settings(WORKER, connector, client_id="k", group_id="connect-x")
    assert consumer["group.id"] == "mine"
    assert consumer["fetch.min.bytes"] == "7"
    assert "session.timeout.ms" not in consumer
    assert "sasl.username" not in consumer
    admin = admin_settings(WORKER, connector, client_id="a")
    assert (admin["sasl.username"], admin["retry.backoff.ms"]) == ("w", "33")
    for role, made in (("producer", internal), ("consumer", consumer), ("admin", admin)):
        accepted(role, made)  # type: ignore[arg-type]


def test_the_workers_membership_is_not_its_readers() -> None:
    made = worker_client_settings(WORKER, "consumer", client_id="c")
    assert not {"group.id", "session.timeout.ms", "heartbeat.interval.ms"} & set(made)


@pytest.mark.parametrize(
    ("timeout", "delivery", "wanted"),
    [
        (None, None, "60000"),
        ("900000", None, "900000"),
        ("5000", None, "5000"),
        (None, "1000", "1000"),
        ("5000", "120000", "5000"),
    ],
)
def test_a_transactional_producer(timeout: str | None, delivery: str | None, wanted: str) -> None:
    said: list[str] = []
    connector = {
        "producer.override.transactional.id": "own",
        "producer.override.enable.idempotence": "false",
        "producer.override.transaction.timeout.ms": timeout,
        "producer.override.delivery.timeout.ms": delivery,
    }
    made = producer_settings(
        WORKER, connector, client_id="p", transactional_id="g-c-0", warn=said.append
    )
    accepted("producer", made)
    assert made["transactional.id"] == "g-c-0"
    assert made["enable.idempotence"] == "true"
    assert made["delivery.timeout.ms"] == wanted
    assert said == [
        "enable.idempotence is true here; the value given for it, false, is not used",
        "transactional.id is g-c-0 here; the value given for it, own, is not used",
    ]


def test_readers_of_committed_records() -> None:
    said: list[str] = []
    made = consumer_settings(
        WORKER,
        {"consumer.override.isolation.level": "read_uncommitted"},
        client_id="c",
        group_id="g",
        isolation_level="read_committed",
        warn=said.append,
    )
    assert made["isolation.level"] == "read_committed"
    assert made["enable.auto.commit"] == "false"
    assert len(said) == 1


def test_what_the_jvm_alone_understands_is_named() -> None:
    worker = {
        **WORKER,
        "metric.reporters": "x",
        "producer.buffer.memory": "1",
        "producer.linger.ms": "1",
        "consumer.interceptor.classes": "y",
        "admin.nonsense": "z",
        "consumer.queued.min.messages": "1",
    }
    assert java_only(worker) == [
        "admin.nonsense",
        "consumer.interceptor.classes",
        "metric.reporters",
        "producer.buffer.memory",
    ]
    said: list[str] = []
    override = {"producer.override.buffer.memory": "1", "producer.override.linger.ms": "1"}
    producer_settings(worker, override, client_id="p", warn=said.append)
    assert len(said) == 1
    assert "producer.override.buffer.memory" in said[0]
    assert "linger" not in said[0]


@pytest.mark.parametrize(
    ("override", "found"), [({}, 7), ({"consumer.override.max.poll.records": " 5 "}, 5)]
)
def test_how_many_records_a_poll_gives(override: dict[str, str], found: int) -> None:
    worker = {**WORKER, "consumer.max.poll.records": "7"}
    assert poll_records(worker, override) == found
    assert poll_records(WORKER, {}) is None
    assert java_only(worker) == []
    said: list[str] = []
    made = consumer_settings(worker, override, client_id="c", group_id="g", warn=said.append)
    accepted("consumer", made)
    assert said == []


@pytest.mark.parametrize("value", ["0", "-1", "many"])
def test_a_poll_gives_one_record_at_least(value: str) -> None:
    with pytest.raises(ClientSettingsError, match=r"less than 1|not a whole number") as caught:
        librdkafka({"max.poll.records": value}, "consumer")
    assert caught.value.key == "max.poll.records"


def test_kafka_python_takes_numbers() -> None:
    assert kafka_python({"request.timeout.ms": "5", "send.buffer.bytes": "-1"}) == {
        "bootstrap_servers": ["localhost:9092"],
        "request_timeout_ms": 5,
        "security_protocol": "PLAINTEXT",
    }


@pytest.mark.parametrize(
    ("worker", "base"),
    [
        ({"group.id": "g"}, "g-"),
        ({"group.id": "g", "client.id": " c "}, "g-c-"),
        ({"client.id": ""}, "connect-"),
    ],
)
def test_client_ids_begin_as_connects(worker: dict[str, str], base: str) -> None:
    assert client_id_base(worker) == base
