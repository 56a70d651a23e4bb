"""All ports on Kafka for a worker or a command-line tool."""

from collections.abc import Callable, Mapping
from typing import Final

from headgate_kafka.admin.fencer import KafkaFencer
from headgate_kafka.clients.roles import Warn, WorkerClients, connector_clients
from headgate_kafka.clients.settings import worker_kafka_python
from headgate_kafka.group.port import KafkaGroup
from headgate_kafka.logs.config_log import SYNC_MS, KafkaConfigLog
from headgate_kafka.logs.keyed_log import KafkaKeyedLog
from headgate_kafka.logs.offset_stores import OnlyTopic
from headgate_kafka.logs.offsets_check import OffsetsCheck
from headgate_kafka.logs.writing import PlainWriter
from headgate_kafka.records.topics import KafkaRecordLog
from headgate_kafka.task_transport import MonotonicClock

DISABLED: Final = "disabled"
_SYNC_KEY: Final = "worker.sync.timeout.ms"


class KafkaTransport:
    """The ports of one worker. Safe from several threads. It connects when first used."""

    def __init__(self, worker: Mapping[str, str], warn: Warn) -> None:
        clients = WorkerClients(worker, warn)
        topics = clients.topics()
        self._raw = clients.raw_admin()
        self._writer = PlainWriter(clients.writer("statuses"), warn, at_once=True)
        support = worker.get("exactly.once.source.support", DISABLED).strip().lower()
        sync_ms = int(worker.get(_SYNC_KEY, SYNC_MS))
        self.clock = MonotonicClock()
        self.config_log = KafkaConfigLog(
            worker["config.storage.topic"],
            topics,
            clients.reader("configs"),
            clients.writer("configs"),
            None if support == DISABLED else f"connect-cluster-{worker['group.id']}",
            warn,
            sync_ms=sync_ms,
        )
        self._clients, self._topics = clients, topics
        self.offset_log = self.keyed_log(worker["offset.storage.topic"])
        self.offsets_check = OffsetsCheck(
            worker["offset.storage.topic"], topics, clients.reader("offsets-check"), warn
        )
        self.status_log = self.keyed_log(worker["status.storage.topic"])
        self.record_log = KafkaRecordLog(
            topics,
            self._raw,
            connector_clients(worker, None, warn),
            OnlyTopic(worker["offset.storage.topic"]),
            warn,
        )
        self.fencer = KafkaFencer(self._raw)
        self.group = KafkaGroup(worker_kafka_python(worker, client_id=""))

    def subscribe(self, on_change: Callable[[], None]) -> bool:
        for port in (self.config_log, self.status_log, self.group):
            port.subscribe(on_change)
        return True

    def changed(self) -> bool:
        """Return whether the config log, the status log or the group has something new."""
        config, statuses = self.config_log.changed(), self.status_log.changed()
        return config or statuses or self.group.changed()

    def close(self) -> None:
        self.group.close()
        for log in (self.config_log, self.offset_log, self.status_log, self.record_log):
            log.close()
        self._writer.close()
        self._raw.close()

    def keyed_log(self, topic: str) -> KafkaKeyedLog:
        """Open a compacted topic of this cluster, such as a connector's own offsets topic. The
        caller closes it."""
        return KafkaKeyedLog(
            topic, self._topics, self._clients.reader(topic), self._writer, self._clients.warn
        )


def open_transport(
    transport: Mapping[str, str], *, url: str = "", warn: Warn = lambda _line: None
) -> KafkaTransport:
    """Open the ports of a worker. They connect when they are used. The internal topics must exist
    by then (`headgate_kafka.admin.topics.prepare_internal_topics`).

    Args:
        transport: the worker's properties, as in its file.
        url: the worker's URL. It is ignored: on Kafka, workers call each other over HTTP.
        warn: called with one line of text for each thing that an operator should know.

    Raises:
        ClientSettingsError: clients cannot be made from these properties.
    """
    return KafkaTransport(transport, warn)
