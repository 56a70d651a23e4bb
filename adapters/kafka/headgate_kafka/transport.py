"""All ports on Kafka, as a worker, a task or a tool opens them.

Settings of a transport are the worker's own properties, with Connect's keys.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from headgate.offsets import OffsetView, key_prefix, read_offsets
from headgate_kafka.client_settings import (
    Properties,
    admin_properties,
    client_id_base,
    consumer_settings,
    kafka_python,
    librdkafka,
    poll_records,
    producer_settings,
    worker_client_settings,
    worker_kafka_python,
)
from headgate_kafka.config_log import SYNC_MS, KafkaConfigLog
from headgate_kafka.fencer import KafkaFencer, RawAdmin
from headgate_kafka.group import KafkaGroup
from headgate_kafka.keyed_log import KafkaKeyedLog
from headgate_kafka.offset_stores import (
    CombinedOffsetLog,
    OnlyTopic,
    OwnTopic,
    own_topic,
)
from headgate_kafka.offsets_check import OffsetsCheck
from headgate_kafka.reading import Topics
from headgate_kafka.records import ClientsSettings, KafkaRecordLog
from headgate_kafka.topics import Admin, ensure_topics, offset_topic
from headgate_kafka.writing import PlainWriter

Said = Callable[[str], None]
DISABLED: Final = "disabled"
_SECURITY: Final = ("security.", "sasl.", "ssl.", "enable.ssl.")
_CONSUMER_SECURITY: Final = tuple(f"consumer.override.{prefix}" for prefix in _SECURITY)
_SYNC_KEY: Final = "worker.sync.timeout.ms"


class MonotonicClock:
    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class WorkerClients:
    """What the worker's properties say to its own clients."""

    properties: Mapping[str, str]
    said: Said

    def reader(self, what: str) -> dict[str, Any]:
        settings = worker_client_settings(self.properties, "consumer", client_id=self._id(what))
        # librdkafka wants a group; nothing is ever committed under it.
        return {**settings, "group.id": self.properties.get("group.id", "headgate")}

    def writer(self, what: str) -> dict[str, Any]:
        return dict(worker_client_settings(self.properties, "producer", client_id=self._id(what)))

    def topics(self) -> Topics:
        settings = worker_client_settings(
            self.properties, "admin", client_id=self._id("shared-admin")
        )
        return Topics(settings, self.said)

    def administered_as(self, properties: Mapping[str, str]) -> bool:
        """Whether a connector's admin client is what the worker's own would be: one will do."""
        named = {**properties, "client.id": ""}
        return librdkafka(named, "admin") == worker_client_settings(
            self.properties, "admin", client_id=""
        )

    def raw_admin(self) -> RawAdmin:
        return RawAdmin(worker_kafka_python(self.properties, client_id=self._id("fencer")))

    def _id(self, what: str) -> str:
        return f"{client_id_base(self.properties)}{what}"


class KafkaTransport:
    """The ports of one worker. Safe from several threads; it connects when first used."""

    def __init__(self, worker: Mapping[str, str], said: Said) -> None:
        clients = WorkerClients(worker, said)
        topics = clients.topics()
        self._raw = clients.raw_admin()
        self._writer = PlainWriter(clients.writer("statuses"), said, at_once=True)
        support = worker.get("exactly.once.source.support", DISABLED).strip().lower()
        sync_ms = int(worker.get(_SYNC_KEY, SYNC_MS))
        self.clock = MonotonicClock()
        self.config_log = KafkaConfigLog(
            worker["config.storage.topic"],
            topics,
            clients.reader("configs"),
            clients.writer("configs"),
            None if support == DISABLED else f"connect-cluster-{worker['group.id']}",
            said,
            sync_ms=sync_ms,
        )
        self._clients, self._topics = clients, topics
        self.offset_log = self.keyed_log(worker["offset.storage.topic"])
        self.offsets_check = OffsetsCheck(
            worker["offset.storage.topic"], topics, clients.reader("offsets-check"), said
        )
        self.status_log = self.keyed_log(worker["status.storage.topic"])
        self.record_log = KafkaRecordLog(
            topics,
            self._raw,
            connector_clients(worker, None, said),
            OnlyTopic(worker["offset.storage.topic"]),
            said,
        )
        self.fencer = KafkaFencer(self._raw)
        self.group = KafkaGroup(worker_kafka_python(worker, client_id=""))

    def tell(self, told: Callable[[], None]) -> bool:
        for port in (self.config_log, self.status_log, self.group):
            port.tell(told)
        return True

    def changed(self) -> bool:
        """Whether the config log, the statuses or the group have something new."""
        config, statuses = self.config_log.changed(), self.status_log.changed()
        return config or statuses or self.group.changed()

    def close(self) -> None:
        self.group.close()
        for log in (self.config_log, self.offset_log, self.status_log, self.record_log):
            log.close()
        self._writer.close()
        self._raw.close()

    def keyed_log(self, topic: str) -> KafkaKeyedLog:
        """A topic of latest values on this cluster, such as a connector's own offsets topic. To be
        closed by who asked for it."""
        return KafkaKeyedLog(
            topic, self._topics, self._clients.reader(topic), self._writer, self._clients.said
        )


class KafkaTaskTransport:
    """What the tasks of one connector, and who reads or alters its offsets, need of the log."""

    offset_log: KafkaKeyedLog | CombinedOffsetLog

    def __init__(
        self,
        worker: Mapping[str, str],
        connector_config: Mapping[str, str],
        connector: str,
        kind: Literal["source", "sink"],
        exactly_once: bool,
        said: Said,
    ) -> None:
        clients = WorkerClients(worker, said)
        admin = connector_admin_properties(worker, connector_config, connector, kind, said)
        topics = Topics(librdkafka(admin, "admin"), said)
        self._raw = RawAdmin(kafka_python(admin))
        self.fencer = KafkaFencer(self._raw)
        self._shared_writer = PlainWriter(clients.writer("offsets"), said)
        self._own_writer: PlainWriter | None = None
        prefix = key_prefix(connector)
        shared = KafkaKeyedLog(
            worker["offset.storage.topic"],
            topics if clients.administered_as(admin) else clients.topics(),
            clients.reader("offsets"),
            self._shared_writer,
            said,
            keep=lambda key: key.startswith(prefix),
        )
        settings = connector_clients(worker, connector_config, said)
        name = None
        if kind == "source":
            servers = str(settings.producer("", None)["bootstrap.servers"])
            name = own_topic(worker, connector_config, servers, exactly_once=exactly_once)
        targets: OnlyTopic | OwnTopic
        if name is None:
            self.offset_log = shared
            targets = OnlyTopic(shared.topic)
        else:
            targets = OwnTopic(name, shared.topic, self._shared_writer)
            ensure_topics(
                Admin(librdkafka(admin, "admin"), said=said),
                [offset_topic(worker, name)],
                said=said,
            )
            own_settings = settings.producer(f"connector-offsets-{connector}", None)
            self._own_writer = PlainWriter(own_settings, said)
            own = KafkaKeyedLog(
                name,
                topics,
                own_offsets_reader(worker, connector_config, connector, settings),
                self._own_writer,
                said,
                keep=lambda key: key.startswith(prefix),
            )
            self.offset_log = CombinedOffsetLog(connector, own, shared, targets, said)
        self.record_log = KafkaRecordLog(topics, self._raw, settings, targets, said)
        self.clock = MonotonicClock()

    def offset_view(self) -> OffsetView:
        """All source offsets of the connector, by the topics they are in."""
        if isinstance(self.offset_log, CombinedOffsetLog):
            return self.offset_log.view()
        return OffsetView(read_offsets(self.offset_log))

    def close(self) -> None:
        self.offset_log.close()
        self.record_log.close()
        for writer in (self._shared_writer, self._own_writer):
            if writer is not None:
                writer.close()
        self._raw.close()


def open_transport(
    transport: Mapping[str, str], *, url: str = "", said: Said = lambda _line: None
) -> KafkaTransport:
    """The ports of a worker. Connects when they are used; the internal topics must be there (see
    `headgate_kafka.topics.prepare_internal_topics`).

    Args:
        transport: the worker's properties, as in its file.
        url: of the worker; of no use here, workers call each other over HTTP.
        said: told in one line what an operator should know.

    Raises:
        ClientSettingsError: clients cannot be made from these properties.
    """
    return KafkaTransport(transport, said)


def open_task_transport(
    transport: Mapping[str, str],
    connector_config: Mapping[str, str],
    *,
    connector: str,
    kind: Literal["source", "sink"],
    exactly_once: bool,
    said: Said = lambda _line: None,
) -> KafkaTaskTransport:
    """The ports as one connector's tasks use them: with its overrides of client settings, and its
    offsets where they are (`headgate_kafka.offset_stores`). An own offsets topic that does not
    exist is created.

    Raises:
        ClientSettingsError: as `open_transport`.
        TopicRefusedError: its own offsets topic is not compacted, or may not be created.
        TransportError: nobody could say whether it exists.
    """
    return KafkaTaskTransport(transport, connector_config, connector, kind, exactly_once, said)


def connector_clients(
    worker: Mapping[str, str], connector_config: Properties | None, said: Said
) -> ClientsSettings:
    return ClientsSettings(
        lambda client_id, transactional_id: producer_settings(
            worker,
            connector_config,
            client_id=client_id,
            transactional_id=transactional_id,
            said=said,
        ),
        lambda client_id, group: consumer_settings(
            worker, connector_config, client_id=client_id, group_id=group, said=said
        ),
        poll_records(worker, connector_config),
    )


def own_offsets_reader(
    worker: Mapping[str, str],
    connector_config: Mapping[str, str],
    connector: str,
    settings: ClientsSettings,
) -> Mapping[str, Any]:
    """Settings of a consumer that reads a source connector's own offsets topic.

    Differs from Connect: they are read where they are written, also when only the servers of the
    producer were overridden, and then with the producer's login."""
    reader = settings.consumer(f"connector-offsets-{connector}", f"connect-{connector}")
    named = (
        worker.get("consumer.bootstrap.servers"),
        connector_config.get("consumer.override.bootstrap.servers"),
    )
    producer = settings.producer("", None)
    there = {"bootstrap.servers": producer["bootstrap.servers"]}
    if any(named) or there["bootstrap.servers"] == reader["bootstrap.servers"]:
        return reader
    if not any(key.startswith(_CONSUMER_SECURITY) for key in connector_config):
        # Other servers, or another listener of these: whoever may write there is let in.
        reader = {key: value for key, value in reader.items() if not key.startswith(_SECURITY)}
        there |= {key: value for key, value in producer.items() if key.startswith(_SECURITY)}
    return {**reader, **there}


def connector_admin_properties(
    worker: Mapping[str, str],
    connector_config: Mapping[str, str],
    connector: str,
    kind: Literal["source", "sink"],
    said: Said,
) -> dict[str, str]:
    """Differs from Connect: whose data is on another cluster is administered there, also when only
    the servers of its producer or consumer were overridden, and then with their login."""
    found = admin_properties(
        worker, connector_config, f"connector-worker-adminclient-{connector}", said
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


def _login(
    worker: Mapping[str, str], connector_config: Mapping[str, str], role: str
) -> dict[str, str]:
    """What is said of security for the clients of `role` alone."""
    found: dict[str, str] = {}
    for properties, prefix in ((worker, f"{role}."), (connector_config, f"{role}.override.")):
        for key, value in properties.items():
            name = key.removeprefix(prefix)
            if name != key and name.startswith(_SECURITY) and value is not None:
                found[name] = value
    return found
