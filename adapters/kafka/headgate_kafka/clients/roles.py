"""Settings of each client of a worker and of a connector.

They are made from the worker's properties, with Connect's keys, and the connector's overrides.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from headgate_kafka.admin.raw_admin import RawAdmin
from headgate_kafka.clients.settings import (
    Properties,
    admin_properties,
    client_id_base,
    consumer_settings,
    librdkafka,
    poll_records,
    producer_settings,
    worker_client_settings,
    worker_kafka_python,
)
from headgate_kafka.login.token_trial import try_for_token
from headgate_kafka.logs.reading import Topics
from headgate_kafka.records.topics import ClientsSettings

Warn = Callable[[str], None]
_SECURITY: Final = ("security.", "sasl.", "ssl.", "enable.ssl.")
WORKERS_ONLY: Final = (
    "The worker's own security settings are not for a connector's {0}s: give the worker {0}.sasl.*,"
    " {0}.ssl.* and {0}.security.protocol, or the connector {0}.override.*"
)
_CONSUMER_SECURITY: Final = tuple(f"consumer.override.{prefix}" for prefix in _SECURITY)


@dataclass(frozen=True, slots=True)
class WorkerClients:
    """Settings and clients of the worker itself, from its properties."""

    properties: Mapping[str, str]
    warn: Warn

    def reader(self, what: str) -> dict[str, Any]:
        settings = worker_client_settings(self.properties, "consumer", client_id=self._id(what))
        # librdkafka requires a group. Nothing is ever committed under it.
        return {**settings, "group.id": self.properties.get("group.id") or "headgate"}

    def writer(self, what: str) -> dict[str, Any]:
        return dict(worker_client_settings(self.properties, "producer", client_id=self._id(what)))

    def topics(self) -> Topics:
        return Topics(self._admin(), self.warn)

    def try_for_token(self) -> None:
        """As `headgate_kafka.login.token_trial.try_for_token`."""
        try_for_token(self._admin())

    def administered_as(self, properties: Mapping[str, str]) -> bool:
        """Return whether a connector's admin client has the same settings as the worker's own. Then
        the two can share one client."""
        named = {**properties, "client.id": ""}
        return librdkafka(named, "admin") == worker_client_settings(
            self.properties, "admin", client_id=""
        )

    def raw_admin(self) -> RawAdmin:
        return RawAdmin(worker_kafka_python(self.properties, client_id=self._id("fencer")))

    def _admin(self) -> dict[str, str]:
        return worker_client_settings(self.properties, "admin", client_id=self._id("shared-admin"))

    def _id(self, what: str) -> str:
        return f"{client_id_base(self.properties)}{what}"


def connector_clients(
    worker: Mapping[str, str], connector_config: Properties | None, warn: Warn
) -> ClientsSettings:
    return ClientsSettings(
        lambda client_id, transactional_id: producer_settings(
            worker,
            connector_config,
            client_id=client_id,
            transactional_id=transactional_id,
            warn=warn,
        ),
        lambda client_id, group: consumer_settings(
            worker, connector_config, client_id=client_id, group_id=group, warn=warn
        ),
        poll_records(worker, connector_config),
    )


def own_offsets_reader(
    worker: Mapping[str, str],
    connector_config: Mapping[str, str],
    connector: str,
    settings: ClientsSettings,
) -> Mapping[str, Any]:
    """Return the settings of a consumer that reads a source connector's own offsets topic.

    Differs from Connect: offsets are read from the cluster that they are written to, also if only
    the producer's servers were overridden. Then the consumer uses the producer's login."""
    names = f"connector-offsets-{connector}", f"connect-{connector}"
    reader = settings.consumer(*names)
    named = (
        worker.get("consumer.bootstrap.servers"),
        connector_config.get("consumer.override.bootstrap.servers"),
    )
    producer = settings.producer("", None)
    servers = producer["bootstrap.servers"]
    if any(named) or servers == reader["bootstrap.servers"]:
        return reader
    moved = {**connector_config, "consumer.override.bootstrap.servers": servers}
    reader = connector_clients(worker, moved, lambda _line: None).consumer(*names)
    if not any(key.startswith(_CONSUMER_SECURITY) for key in connector_config):
        # The servers are another cluster, or another listener of the same one. The producer's login
        # is known to be accepted there.
        reader = {key: value for key, value in reader.items() if not key.startswith(_SECURITY)}
        reader |= {key: value for key, value in producer.items() if key.startswith(_SECURITY)}
    return reader


def connector_admin_properties(
    worker: Mapping[str, str],
    connector_config: Mapping[str, str],
    connector: str,
    kind: Literal["source", "sink"],
    warn: Warn,
) -> dict[str, str]:
    """Return Java's properties of a connector's admin client.

    Differs from Connect: if the connector's data is on another cluster, the admin client goes to
    that cluster, also if only the servers of its producer or consumer were overridden. Then it uses
    their login, unless it has one of its own.
    """
    found = admin_properties(
        worker, connector_config, f"connector-worker-adminclient-{connector}", warn
    )
    role = "producer" if kind == "source" else "consumer"
    elsewhere = False
    for properties, prefix in ((worker, role), (connector_config, f"{role}.override")):
        servers = properties.get(f"{prefix}.bootstrap.servers")
        if servers and not properties.get(f"admin{prefix.removeprefix(role)}.bootstrap.servers"):
            found["bootstrap.servers"] = servers
            elsewhere = True
    login = _login(worker, connector_config, role)
    if elsewhere and login and not _login(worker, connector_config, "admin"):
        found = {key: value for key, value in found.items() if not key.startswith(_SECURITY)}
        found |= login
    return found


def connector_properties(
    worker: Mapping[str, str],
    connector_config: Mapping[str, str],
    role: Literal["producer", "consumer"],
) -> dict[str, str]:
    """Return Java's properties of a connector's producers or consumers: the servers, and whatever
    users give for this role, such as a login."""
    servers = {"bootstrap.servers": worker.get("bootstrap.servers") or "localhost:9092"}
    return servers | _given(worker, connector_config, role)


def not_inherited(
    worker: Mapping[str, str],
    connector_config: Mapping[str, str],
    role: Literal["producer", "consumer"],
) -> str:
    """Return advice for the case that brokers do not answer the clients of `role`, if these have no
    security settings although the worker has. Otherwise empty."""
    given = _given(worker, connector_config, role)
    forgotten = worker.get("security.protocol") and "security.protocol" not in given
    return WORKERS_ONLY.format(role) if forgotten else ""


def connection(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of librdkafka's settings that say where a client connects and as whom."""
    return {
        key: value
        for key, value in settings.items()
        if key == "bootstrap.servers" or key.startswith((*_SECURITY, "https."))
    }


def _login(
    worker: Mapping[str, str], connector_config: Mapping[str, str], role: str
) -> dict[str, str]:
    """Return the security settings given for the clients of `role` alone."""
    given = _given(worker, connector_config, role)
    return {key: value for key, value in given.items() if key.startswith(_SECURITY)}


def _given(
    worker: Mapping[str, str], connector_config: Mapping[str, str], role: str
) -> dict[str, str]:
    """Return the settings given for the clients of `role` alone, without prefixes."""
    found: dict[str, str] = {}
    for properties, prefix in ((worker, f"{role}."), (connector_config, f"{role}.override.")):
        for key, value in properties.items():
            if key.startswith(prefix) and value is not None:
                found[key.removeprefix(prefix)] = value
    return found
