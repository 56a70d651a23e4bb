"""What an observer needs of a cluster on Kafka: its group, its topics, nothing that writes."""

from collections.abc import Callable, Mapping

from headgate.events import Config
from headgate_kafka.client_settings import worker_kafka_python
from headgate_kafka.clients import WorkerClients
from headgate_kafka.discovery import TopicKind, find_topics, the_one
from headgate_kafka.group_describe import DescribedGroup, GroupDescriber
from headgate_kafka.keyed_log import KafkaKeyedLog
from headgate_kafka.transport import KafkaTransport

Said = Callable[[str], None]
_TOPIC_KEYS = {kind: f"{kind}.storage.topic" for kind in TopicKind}


class KafkaObserver:
    def __init__(self, properties: Mapping[str, str], said: Said) -> None:
        self.worker = properties
        self._opened: list[KafkaKeyedLog] = []
        self._transport = KafkaTransport(properties, said)
        self._topics = WorkerClients(properties, said).topics()
        self._group = GroupDescriber(worker_kafka_python(properties, client_id="headgate-observer"))
        self.config_log = self._transport.config_log
        self.status_log = self._transport.status_log
        self.record_log = self._transport.record_log
        self.topics = {str(kind): properties[key] for kind, key in _TOPIC_KEYS.items()}

    def describe_group(self) -> DescribedGroup:
        return self._group.describe(self.worker["group.id"])

    def offset_log(self, topic: str | None) -> KafkaKeyedLog:
        """An offsets topic of this cluster; None: the workers' global one."""
        if topic is None:
            return self._transport.offset_log
        self._opened.append(self._transport.keyed_log(topic))
        return self._opened[-1]

    def elsewhere(self, config: Config) -> str | None:
        """Servers of another cluster, if the producers of this connector write to one."""
        servers = config.get("producer.override.bootstrap.servers")
        return None if servers in (None, self.worker["bootstrap.servers"]) else servers

    def topic_names(self) -> list[str]:
        """Of all topics that there are now."""
        return self._topics.names()

    def close(self) -> None:
        self._group.close()
        for log in self._opened:
            log.close()
        self._transport.close()


def open_observer(properties: Mapping[str, str], *, said: Said) -> KafkaObserver:
    """
    Args:
        properties: a worker's; ``bootstrap.servers`` and ``group.id`` at least. Internal topics
            that are not named are told by what is in them.
        said: about topics that could not be told. What clients complain about is in the errors.

    Raises:
        ClientSettingsError: clients cannot be made from these properties.
        TopicsNotFoundError: the topics cannot be told.
        TransportError: the brokers do not answer.
    """
    named = {key: properties[key] for key in _TOPIC_KEYS.values() if properties.get(key)}
    if len(named) < len(_TOPIC_KEYS):
        clients = WorkerClients(properties, _unsaid)
        found = find_topics(clients.topics(), clients.reader("observer"), said)
        for kind, key in _TOPIC_KEYS.items():
            if key not in named:
                at = properties["bootstrap.servers"]
                named[key] = the_one(found, kind, f"--{kind}-topic", at)
    return KafkaObserver({**properties, **named}, _unsaid)


def _unsaid(_line: str) -> None:
    pass
