"""The ports on Kafka for the tasks of one connector."""

import time
from collections.abc import Mapping
from typing import Literal

from headgate.topics.offsets import OffsetView, key_prefix, read_offsets
from headgate_kafka.admin.fencer import KafkaFencer
from headgate_kafka.admin.first_answer import closed_unanswered
from headgate_kafka.admin.raw_admin import RawAdmin
from headgate_kafka.admin.reach import Admin
from headgate_kafka.admin.topics import ensure_topics, offset_topic
from headgate_kafka.clients.names import check_names_for_good, refusing, unresolvable
from headgate_kafka.clients.roles import (
    Warn,
    WorkerClients,
    connection,
    connector_admin_properties,
    connector_clients,
    connector_properties,
    not_inherited,
    own_offsets_reader,
)
from headgate_kafka.clients.settings import kafka_python, librdkafka, worker_client_settings
from headgate_kafka.logs.keyed_log import KafkaKeyedLog
from headgate_kafka.logs.offset_stores import (
    CombinedOffsetLog,
    OnlyTopic,
    OwnTopic,
    own_topic,
    servers_of,
)
from headgate_kafka.logs.reading import Topics
from headgate_kafka.logs.writing import PlainWriter
from headgate_kafka.records.topics import KafkaRecordLog


class MonotonicClock:
    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class KafkaTaskTransport:
    """The ports that the tasks of one connector use. Calls that read or alter the connector's
    offsets use them too."""

    offset_log: KafkaKeyedLog | CombinedOffsetLog

    def __init__(
        self,
        worker: Mapping[str, str],
        connector_config: Mapping[str, str],
        connector: str,
        kind: Literal["source", "sink"],
        exactly_once: bool,
        warn: Warn,
    ) -> None:
        clients = WorkerClients(worker, warn)
        admin = connector_admin_properties(worker, connector_config, connector, kind, warn)
        servers = _servers(worker, connector_config, kind)
        for named in (servers, admin["bootstrap.servers"]):
            check_names_for_good(named)
        settings = connector_clients(worker, connector_config, warn)
        topics = Topics(librdkafka(admin, "admin"), warn)
        self._raw = RawAdmin(kafka_python(admin))
        self.fencer = KafkaFencer(self._raw)
        self._shared_writer = PlainWriter(clients.writer("offsets"), warn)
        self._own_writer: PlainWriter | None = None
        prefix = key_prefix(connector)
        shared = KafkaKeyedLog(
            worker["offset.storage.topic"],
            topics if clients.administered_as(admin) else clients.topics(),
            clients.reader("offsets"),
            self._shared_writer,
            warn,
            keep=lambda key: key.startswith(prefix),
        )
        name = None
        if kind == "source":
            name = own_topic(worker, connector_config, servers, exactly_once=exactly_once)
        targets: OnlyTopic | OwnTopic
        if name is None:
            self.offset_log = shared
            targets = OnlyTopic(shared.topic)
        else:
            targets = OwnTopic(name, shared.topic, self._shared_writer)
            ensure_topics(
                Admin(librdkafka(admin, "admin"), warn=warn),
                [offset_topic(worker, name)],
                warn=warn,
            )
            own_settings = settings.producer(f"connector-offsets-{connector}", None)
            self._own_writer = PlainWriter(own_settings, warn)
            own = KafkaKeyedLog(
                name,
                topics,
                own_offsets_reader(worker, connector_config, connector, settings),
                self._own_writer,
                warn,
                keep=lambda key: key.startswith(prefix),
            )
            self.offset_log = CombinedOffsetLog(connector, own, shared, targets, warn)
        self.record_log = KafkaRecordLog(topics, self._raw, settings, targets, warn)
        self.clock = MonotonicClock()

    def offset_view(self) -> OffsetView:
        """Return all source offsets of the connector, by the topics that hold them."""
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


def _servers(
    worker: Mapping[str, str],
    connector_config: Mapping[str, str],
    kind: Literal["source", "sink"],
) -> str:
    """Return the ``bootstrap.servers`` of the cluster that has the connector's records."""
    role: Literal["producer", "consumer"] = "producer" if kind == "source" else "consumer"
    return connector_properties(worker, connector_config, role)["bootstrap.servers"]


def unreached(
    worker: Mapping[str, str], connector_config: Mapping[str, str], kind: Literal["source", "sink"]
) -> str:
    """Return why no broker that has the connector's records accepts and keeps a connection. Empty:
    one does, or the worker itself reached them with the same connection settings."""
    role: Literal["producer", "consumer"] = "producer" if kind == "source" else "consumer"
    given = connector_properties(worker, connector_config, role)
    servers = given["bootstrap.servers"]
    elsewhere = servers_of(servers) != servers_of(worker.get("bootstrap.servers", ""))
    if elsewhere and unresolvable(servers)[0]:
        return ""  # `KafkaTaskTransport` reports servers without an address
    if elsewhere and (reason := refusing(servers)):
        return reason
    if not elsewhere and connection(given) == connection(worker):
        return ""  # the usual case, decided before key stores are read
    settings = librdkafka(given, "admin")
    own = worker_client_settings(worker, "admin", client_id="")
    if connection(settings) == connection(own) or not (reason := closed_unanswered(settings)):
        return ""
    return ". ".join(filter(None, (reason, not_inherited(worker, connector_config, role))))


def open_task_transport(
    transport: Mapping[str, str],
    connector_config: Mapping[str, str],
    *,
    connector: str,
    kind: Literal["source", "sink"],
    exactly_once: bool,
    warn: Warn = lambda _line: None,
) -> KafkaTaskTransport:
    """Open the ports of one connector's tasks, with the connector's overrides of client settings.

    The offset log reads the topics that hold the connector's offsets
    (`headgate_kafka.logs.offset_stores`). The connector's own offsets topic is created if it does
    not exist.

    Raises:
        ClientSettingsError: as `open_transport`.
        RefusedError: no server of its clients has an address. The tasks fail, as in Connect, where
            the clients cannot be made then.
        TopicRefusedError: its own offsets topic is not compacted, or may not be created.
        TransportError: no broker said whether its own offsets topic exists.
    """
    return KafkaTaskTransport(transport, connector_config, connector, kind, exactly_once, warn)
