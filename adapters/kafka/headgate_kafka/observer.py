"""The read-only view of a Connect cluster on Kafka: its group and its topics."""

from collections.abc import Callable, Mapping, Sequence

from headgate.topics.config_events import Config
from headgate_kafka.clients.roles import WorkerClients
from headgate_kafka.clients.settings import check_worker_clients, worker_kafka_python
from headgate_kafka.group.describe import DescribedGroup, GroupDescriber
from headgate_kafka.logs.discovery import TopicKind, TopicsNotFoundError, find_topics, the_one
from headgate_kafka.logs.keyed_log import KafkaKeyedLog
from headgate_kafka.logs.offset_stores import servers_of
from headgate_kafka.transport import KafkaTransport

Warn = Callable[[str], None]
_TOPIC_KEYS = {kind: f"{kind}.storage.topic" for kind in TopicKind}
_CONFIG_KEY = _TOPIC_KEYS[TopicKind.CONFIG]


class KafkaObserver:
    def __init__(self, properties: Mapping[str, str], warn: Warn) -> None:
        self.worker = properties
        self._opened: list[KafkaKeyedLog] = []
        self._transport = KafkaTransport(properties, warn)
        self._topics = WorkerClients(properties, warn).topics()
        self._group = GroupDescriber(worker_kafka_python(properties, client_id="headgate-observer"))
        self.config_log = self._transport.config_log
        self.status_log = self._transport.status_log
        self.record_log = self._transport.record_log
        self.topics = {str(kind): properties[key] for kind, key in _TOPIC_KEYS.items()}

    def describe_group(self) -> DescribedGroup:
        return self._group.describe(self.worker["group.id"])

    def offset_log(self, topic: str | None) -> KafkaKeyedLog:
        """Open an offsets topic of this cluster. None: the workers' global one."""
        if topic is None:
            return self._transport.offset_log
        self._opened.append(self._transport.keyed_log(topic))
        return self._opened[-1]

    def elsewhere(self, config: Config) -> str | None:
        """Return the servers of another cluster, if this connector's producers write to one."""
        return other_servers(self.worker, config)

    def topic_names(self) -> list[str]:
        """Return the names of all topics that exist now."""
        return self._topics.names()

    def close(self) -> None:
        self._group.close()
        for log in self._opened:
            log.close()
        self._transport.close()


def open_observer(properties: Mapping[str, str], *, warn: Warn) -> KafkaObserver:
    """Open a read-only view of a Connect cluster.

    Args:
        properties: a worker's properties, at least ``bootstrap.servers`` and ``group.id``. Internal
            topics that they do not name are recognised by their records.
        warn: called with one line for each topic that could not be recognised. What the clients
            log is in the errors instead.

    Raises:
        ClientSettingsError: clients cannot be made from these properties.
        TopicsNotFoundError: the topics cannot be recognised, or the config topic does not exist.
        TransportError: the brokers do not answer, or there is no token to log in with.
    """
    check_worker_clients(properties, in_group=True)
    named = {key: properties[key] for key in _TOPIC_KEYS.values() if properties.get(key)}
    clients = WorkerClients(properties, _warn_nobody)
    clients.try_for_token()
    if _CONFIG_KEY in named:
        _check_config_topic(named[_CONFIG_KEY], clients.topics().names(), properties)
    if len(named) < len(_TOPIC_KEYS):
        found = find_topics(clients.topics(), clients.reader("observer"), warn)
        for kind, key in _TOPIC_KEYS.items():
            if key not in named:
                at = properties["bootstrap.servers"]
                named[key] = the_one(found, kind, f"--{kind}-topic", at)
    return KafkaObserver({**properties, **named}, _warn_nobody)


def _check_config_topic(topic: str, names: Sequence[str], properties: Mapping[str, str]) -> None:
    """Refuse to go on without the config topic. A fault of another topic is reported as a finding
    instead."""
    if topic not in names:
        raise TopicsNotFoundError(
            f"there is no topic {topic!r} at {properties['bootstrap.servers']}, or this principal "
            "may not see it: expected the workers' config topic (--config-topic, or "
            f"{_CONFIG_KEY} in the file of --properties)"
        )


def other_servers(worker: Mapping[str, str], config: Config) -> str | None:
    """Return the servers that this connector's producers write to, if those are another cluster's.

    The cluster is another one if the two lists of servers have no server in common. A reference to
    a config provider is not resolved, so it counts as another cluster. Source:
    Worker.baseProducerConfigs.
    """
    servers = config.get("producer.override.bootstrap.servers")
    if servers is None:
        servers = worker.get("producer.bootstrap.servers")
    if servers is None or servers_of(servers) & servers_of(worker["bootstrap.servers"]):
        return None
    return servers


def _warn_nobody(_line: str) -> None:
    pass
