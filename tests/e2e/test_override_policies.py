"""A worker's `connector.client.config.override.policy` refuses some overrides, and brokers see the
others."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclOperation,
    AdminClient,
    ResourceType,
)
from support.kafka.broker import Found
from support.kafka.cluster import (
    await_true,
    create_topic,
    described_transaction,
    read_committed,
)
from support.kafka.rights import PASSWORD, USER, allow
from support.kafka.worker import KafkaWorker, kafka_worker

from headgate_kafka.group.describe import DescribedMember, GroupDescriber
from local_kafka.broker import Broker

pytestmark = pytest.mark.slow

SECONDS = 60
PACKAGE = "org.apache.kafka.connect.connector.policy."
TIMEOUT = "producer.override.transaction.timeout.ms"
GROUP = "consumer.override.group.id"


class Connectors:
    """A file, a source of its line, a sink of the source's topic."""

    def __init__(self, worker: KafkaWorker, address: str, group: str, folder: Path) -> None:
        self.worker, self.address, self.group = worker, address, group
        self.file = folder / "in.txt"
        self.file.write_text("a line\n")
        self.output = folder / "out.txt"

    def config(self, name: str, more: Mapping[str, str]) -> dict[str, str]:
        """`name`: source or sink."""
        kinds = {
            "source": {"file": str(self.file), "topic": self.group},
            "sink": {"file": str(self.output), "topics": self.group},
        }
        return {"connector.class": f"FileStream{name.title()}", **kinds[name], **more}

    def create(self, name: str, more: Mapping[str, str]) -> Any:
        return self.worker.rest.create(name, self.config(name, more))

    def refused(self, name: str, more: Mapping[str, str], policy: str) -> None:
        """Assert that the request is refused with the answer of Java's worker, and that no
        connector was made."""
        reply = self.create(name, more)
        wrong = [
            f"The '{policy}' policy does not allow '{key.partition('.override.')[2]}' to be "
            "overridden in the connector configuration."
            for key in more
        ]
        lines = [
            f"Connector configuration is invalid and contains the following {len(more)} error(s):",
            *wrong,
            "You can also find the above list of errors at the endpoint "
            "`/connector-plugins/{connectorType}/config/validate`",
        ]
        assert (reply.status, reply.body) == (
            400,
            {"error_code": 400, "message": "\n".join(lines)},
        )
        assert self.worker.rest.get("/connectors").body == []

    def await_timeout(self, timeout_ms: int) -> None:
        """The source runs, and its transactions have this limit."""
        self.await_line()
        found = described_transaction(self.address, f"{self.group}-source-0")
        assert found.transaction_timeout_ms == timeout_ms

    def await_line(self) -> None:
        def values() -> list[Any]:
            return [value for _, value in read_committed(self.address, self.group)]

        def why() -> str:
            return f"{values()}, {self.worker.rest.status('source').body}"

        await_true("line", lambda: values() == [b"a line"], SECONDS, why)


@pytest.fixture
def connectors(
    tmp_path: Path, kafka_broker: Found, kafka_name: str
) -> Iterator[Callable[..., Connectors]]:
    """``make(policy)``: on a worker of the session's broker with that policy; ``allowlist`` is what
    the policy of that name lets pass."""
    with contextlib.ExitStack() as stack:

        def make(policy: str, allowlist: str = "") -> Connectors:
            properties = {
                "connector_client_config_override_policy": policy,
                "connector_client_config_override_allowlist": allowlist,
            }
            address = kafka_broker.address
            worker = stack.enter_context(kafka_worker(tmp_path, address, kafka_name, **properties))
            create_topic(address, kafka_name)
            return Connectors(worker, address, kafka_name, tmp_path)

        yield make


MakeConnectors = Callable[..., Connectors]


@pytest.mark.exhaustive
def test_all_lets_everything_pass(connectors: MakeConnectors) -> None:
    found = connectors(f"{PACKAGE}AllConnectorClientConfigOverridePolicy")
    assert found.create("source", {TIMEOUT: "12345"}).status == 201
    found.await_timeout(12_345)
    group = f"{found.group}-sinks"
    assert found.create("sink", {GROUP: group}).status == 201
    await_true("its line", lambda: found.output.exists() and found.output.read_text(), SECONDS)
    (member,) = members(found.address, group)
    assert member.client_id == "connector-consumer-sink-0"


@pytest.mark.exhaustive
def test_none_lets_nothing_pass(connectors: MakeConnectors) -> None:
    found = connectors("None")
    login = {"producer.override.sasl.mechanism": "PLAIN"}
    found.refused("source", {TIMEOUT: "12345", **login}, "None")
    found.refused("sink", {GROUP: "mine"}, "None")
    assert found.create("source", {}).status == 201
    found.await_timeout(60_000)
    # Nor is one that runs changed.
    reply = found.worker.rest.put("/connectors/source/config", found.config("source", login))
    assert (reply.status, "'None' policy" in str(reply.body)) == (400, True)
    assert found.worker.rest.get("/connectors/source/config").body.keys().isdisjoint(login)


@pytest.mark.exhaustive
def test_the_allowlist_lets_its_keys_pass(connectors: MakeConnectors) -> None:
    found = connectors("Allowlist", "linger.ms, transaction.timeout.ms")
    found.refused("source", {"producer.override.acks": "all"}, "Allowlist")
    found.refused("sink", {GROUP: "mine"}, "Allowlist")
    assert found.create("source", {TIMEOUT: "12345"}).status == 201
    found.await_timeout(12_345)


@pytest.mark.exhaustive
def test_principal_lets_logins_pass(
    own_broker: Callable[..., Broker], kafka_name: str, tmp_path: Path
) -> None:
    """The worker's own clients have no login; where producers are to write, one is asked for."""
    broker = own_broker(users={USER: PASSWORD})
    create_topic(broker.address, kafka_name)
    topic = (ResourceType.TOPIC, kafka_name, AclOperation.WRITE)
    allow(AdminClient({"bootstrap.servers": broker.address}), topic)
    properties = {
        "connector_client_config_override_policy": "PrincipalConnectorClientConfigOverridePolicy",
        "producer_bootstrap_servers": broker.sasl_address,
        "exactly_once_source_support": "disabled",
    }
    login = {
        "producer.override.security.protocol": "SASL_PLAINTEXT",
        "producer.override.sasl.mechanism": "PLAIN",
        "producer.override.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'username="{USER}" password="{PASSWORD}";'
        ),
    }
    with kafka_worker(tmp_path, broker.address, kafka_name, **properties) as worker:
        found = Connectors(worker, broker.address, kafka_name, tmp_path)
        found.refused("source", {"producer.override.linger.ms": "1"}, "Principal")
        found.refused("sink", {GROUP: "mine"}, "Principal")
        assert found.create("source", login).status == 201
        found.await_line()


def members(address: str, group: str) -> Sequence[DescribedMember]:
    describer = GroupDescriber({"bootstrap_servers": address})
    try:
        return describer.describe(group).members
    finally:
        describer.close()
