"""The group port when a broker does not answer, or refuses."""

import contextlib
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from support.kafka.member import KafkaMember, until

from headgate.membership.messages import GroupError, JoinedGroup, JoinGroup
from headgate.ports import TransportError
from headgate.topics.config_records import encode_connector
from headgate_kafka.admin.topics import prepare_internal_topics
from headgate_kafka.group.describe import GroupDescriber
from headgate_kafka.group.port import GroupRefusedError, KafkaGroup
from headgate_kafka.transport import open_transport
from local_kafka.broker import Broker

pytestmark = pytest.mark.slow

GROUP = "workers"


@pytest.fixture
def member(own_broker: Callable[..., Broker]) -> Iterator[tuple[Broker, KafkaMember]]:
    """The only worker of a group, and one connector that it runs."""
    broker = own_broker()
    made = KafkaMember(broker.address, GROUP, "connect-one:1", protocols=("headgate",))
    prepare_internal_topics(made.properties, warn=lambda _line: None)
    with contextlib.closing(open_transport(made.properties)) as transport:
        transport.config_log.claim(1)
        transport.config_log.append(
            [encode_connector("a", {"connector.class": "C"})], privileged=True
        )
    made.start()
    until(lambda: made.steady and made.running == {"a"}, [made])
    yield broker, made
    made.close()


@pytest.mark.exhaustive
@pytest.mark.parametrize("end", ["kill", "freeze"])
def test_without_its_coordinator_a_worker_stops_and_goes_on_when_it_is_back(
    member: tuple[Broker, KafkaMember], end: str
) -> None:
    broker, worker = member
    began = time.monotonic()
    getattr(broker, end)()
    until(lambda: not worker.running, [worker])
    # A heartbeat, its time-out (a third of the session), and an interval without the coordinator.
    seen_late_s = 0.5
    assert time.monotonic() - began < worker.session_timeout_ms / 1000 + seen_late_s
    assert worker.stops == ["a"]
    until(lambda: worker.said, [worker])  # on a busy machine its own clock may be first
    assert f"group {GROUP!r}" in worker.said[0] and broker.address in worker.said[0]
    broker.thaw() if end == "freeze" else broker.start()
    until(lambda: worker.steady and worker.running == {"a"}, [worker], timeout_s=60)


class Client:
    """One join, and its outcome."""

    def __init__(self, group: KafkaGroup, name: str = GROUP) -> None:
        self.group = group
        group.send(JoinGroup(name, "", "me", "connect", (("p", b""),), 6_000, 10_000, 1))

    def outcome(self, timeout_s: float = 20.0) -> JoinedGroup | TransportError:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            try:
                for answer in self.group.receive():
                    assert isinstance(answer, JoinedGroup)
                    return answer
            except TransportError as error:
                return error
            time.sleep(0.01)
        raise TimeoutError


@pytest.mark.exhaustive
def test_what_a_broker_refuses_is_named_with_operation_resource_and_principal(
    own_broker: Callable[..., Broker],
) -> None:
    broker = own_broker(users={"alice": "alices secret"})
    settings = {
        "bootstrap_servers": [broker.sasl_address],
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "alice",
        "sasl_plain_password": "alices secret",
    }
    wrong = {**settings, "sasl_plain_password": "another secret"}
    with contextlib.closing(KafkaGroup(wrong)) as group:
        refused = Client(group).outcome()
    # Its answer, and not only that it closes the connection behind it.
    assert isinstance(refused, GroupRefusedError)
    assert str(refused).startswith(f"no connection for User:alice at {broker.sasl_address}: ")
    assert "Invalid username or password; check name and password" in str(refused)
    assert "another secret" not in str(refused)
    with contextlib.closing(KafkaGroup(settings)) as group:
        client = Client(group)
        refused = client.outcome()
        assert isinstance(refused, GroupRefusedError)
        assert str(refused).startswith(
            f"FindCoordinator on group {GROUP!r} was refused at {broker.sasl_address}: "
            "GROUP_AUTHORIZATION_FAILED; User:alice needs the operation Describe on the resource "
            f"Group:{GROUP}"
        )
        with contextlib.closing(GroupDescriber(settings)) as describer:
            with pytest.raises(GroupRefusedError, match=r"User:alice needs the operation Describe"):
                describer.describe(GROUP)
            allow(broker, AclOperation.DESCRIBE)
            assert describer.describe(GROUP).state == "Dead"
        until_told(client, "JoinGroup on group 'workers' was refused", "Read on the resource")
        allow(broker, AclOperation.READ)
        until_joined(client)


def allow(broker: Broker, operation: AclOperation) -> None:
    binding = AclBinding(
        ResourceType.GROUP,
        GROUP,
        ResourcePatternType.LITERAL,
        "User:alice",
        "*",
        operation,
        AclPermissionType.ALLOW,
    )
    client = AdminClient({"bootstrap.servers": broker.address})
    client.create_acls([binding])[binding].result(10)


def until_told(client: Client, *texts: str) -> None:
    deadline = time.monotonic() + 20
    while not all(text in str(client.outcome()) for text in texts):
        assert time.monotonic() < deadline, client.outcome()
        time.sleep(0.05)


def until_joined(client: Client) -> None:
    deadline = time.monotonic() + 20
    while not isinstance(answer := client.outcome(), JoinedGroup):
        assert time.monotonic() < deadline, answer
        time.sleep(0.05)
    assert answer.error is GroupError.MEMBER_ID_REQUIRED
