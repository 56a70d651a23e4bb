"""Looks a worker's properties over against a real cluster: what would go wrong, before it does."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

from headgate.events import Config
from headgate.ports import KeyedLog, TransportError, UnknownTopicError
from headgate_kafka.client_settings import (
    ClientSettingsError,
    admin_properties,
    kafka_python,
    librdkafka,
    worker_kafka_python,
)
from headgate_kafka.clients import (
    WorkerClients,
    connector_admin_properties,
    connector_clients,
    own_offsets_reader,
)
from headgate_kafka.failures import kafka_error
from headgate_kafka.group import GroupRefusedError
from headgate_kafka.group_describe import DescribedGroup, GroupDescriber
from headgate_kafka.keyed_log import KafkaKeyedLog
from headgate_kafka.observer import KafkaObserver
from headgate_kafka.offset_stores import own_topic, stale_own_topic
from headgate_kafka.permissions import (
    Rights,
    Tried,
    sink_permissions,
    source_permissions,
    worker_permissions,
)
from headgate_kafka.raw_admin import RawAdmin
from headgate_kafka.reading import REQUEST_S, Topics
from headgate_kafka.records import ClientsSettings
from headgate_kafka.topics import COMPACT, InternalTopic, internal_topics
from headgate_kafka.transport import DISABLED
from headgate_kafka.writing import PlainWriter

SUPPORT: Final = "exactly.once.source.support"
Said = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Broker:
    cluster_id: str
    addresses: tuple[str, ...]


class KafkaDoctor:
    """One look at a cluster with a worker's own eyes. Writes nothing but, while the group has no
    members, the epochs of transactional ids."""

    def __init__(self, worker: Mapping[str, str], said: Said) -> None:
        self._worker = worker
        self._said = said
        self._topics = WorkerClients(worker, said).topics()
        self._raw = RawAdmin(worker_kafka_python(worker, client_id="headgate-doctor"))
        self._describer = GroupDescriber(worker_kafka_python(worker, client_id="headgate-doctor"))

    def brokers(self) -> Broker:
        """Raises `TransportError`: none answers."""
        try:
            asked = self._topics.client.describe_cluster(request_timeout=REQUEST_S)
            found = asked.result(REQUEST_S * 2)
        except KafkaException as failed:
            self._topics.client.poll(0)
            raise self._topics.contact.error(
                "the brokers do not answer", kafka_error(failed)
            ) from None
        return Broker(
            found.cluster_id, tuple(sorted(f"{node.host}:{node.port}" for node in found.nodes))
        )

    def group(self) -> DescribedGroup:
        return self._describer.describe(self._worker["group.id"])

    def internal_topics(self) -> Iterator[tuple[InternalTopic, str | None]]:
        """Each with what is wrong with it; None: it is as workers need it, or they can make it."""
        for topic in internal_topics(self._worker):
            yield topic, self._fault_of(topic)

    def _fault_of(self, topic: InternalTopic) -> str | None:
        try:
            count = self._topics.partitions(topic.name)
        except UnknownTopicError:
            return self._fault_of_absent(topic)
        except TransportError as error:
            return str(error)
        if topic.key == "config.storage.topic" and count != 1:
            return f"it has {count} partitions, expected a single one: workers refuse to start"
        asked = [ConfigResource(ResourceType.TOPIC, topic.name)]
        answers = self._topics.client.describe_configs(asked, request_timeout=REQUEST_S)
        try:
            settings = next(iter(answers.values())).result(REQUEST_S * 2)
        except KafkaException:
            return None  # a matter of permissions, said there
        policy = settings["cleanup.policy"].value
        if policy != COMPACT:
            return f"its cleanup.policy is {policy}, expected {COMPACT}: records would be lost"
        return None

    def _fault_of_absent(self, topic: InternalTopic) -> str | None:
        count, wanted = len(self.brokers().addresses), topic.replication_factor
        if wanted <= count:
            return None
        return (
            f"it does not exist, and no worker can make it with {wanted} replicas on {count}"
            f" broker(s): set {topic.prefix}replication.factor"
        )

    def worker_rights(self) -> list[Tried]:
        rights = self._rights(self._topics, self._describer, self._raw)
        return rights.try_all(worker_permissions(self._worker))

    def connector_rights(self, name: str, config: Config, kind: str, tasks: int) -> list[Tried]:
        """As the principal that the connector's clients log in as."""
        given = {key: value for key, value in config.items() if value is not None}
        properties = admin_properties(self._worker, given, f"headgate-doctor-{name}", self._said)
        arguments = kafka_python(properties)
        raw, describer = RawAdmin(arguments), GroupDescriber(arguments)
        try:
            topics = Topics(librdkafka(properties, "admin"), self._said)
            wanted = (
                sink_permissions(self._worker, name, config, topics.names)
                if kind == "sink"
                else source_permissions(self._worker, name, config, tasks)
            )
            return self._rights(topics, describer, raw).try_all(wanted)
        finally:
            raw.close()
            describer.close()

    def _rights(self, topics: Topics, describer: GroupDescriber, raw: RawAdmin) -> Rights:
        try:
            idle = not self.group().members
        except GroupRefusedError:
            idle = False  # nobody knows
        return Rights(
            topics,
            describer.describe,
            describer.refused_read,
            raw.refused_lookup,
            raw.refused_init if idle else None,
        )

    def stale_own_topics(self, configs: Mapping[str, Config]) -> Iterator[str]:
        """Connectors whose own offsets topic, named or implied by where they write, is older than
        the global one: the own topic wins, so a task would go back to where it was before
        exactly-once was switched off (KIP-618). `configs`: of source connectors."""
        shared = self._worker["offset.storage.topic"]
        exactly_once = self._worker.get(SUPPORT, DISABLED).strip().lower() != DISABLED
        observer: KafkaObserver | None = None
        for name, config in configs.items():
            given = {key: value for key, value in config.items() if value is not None}
            try:
                settings = connector_clients(self._worker, given, self._said)
                own = own_topic(
                    self._worker,
                    given,
                    str(settings.producer("", None)["bootstrap.servers"]),
                    exactly_once=exactly_once,
                )
                if own is None:
                    continue
                observer = observer or KafkaObserver(self._worker, self._said)
                shared_ms = _newest_ms(observer.offset_log(None), name)
                own_ms = self._own_newest_ms(own, name, given, settings)
            except (TransportError, ClientSettingsError) as error:
                yield f"{name}: its offsets could not be compared: {error}"
                continue
            stale = stale_own_topic(name, own, shared, own_ms, shared_ms)
            if stale is not None:
                yield stale
        if observer is not None:
            observer.close()

    def _own_newest_ms(
        self, own: str, name: str, config: Mapping[str, str], settings: ClientsSettings
    ) -> int:
        """Read as the connector's own clients would, where they would."""
        admin = connector_admin_properties(self._worker, config, name, "source", self._said)
        topics = Topics(librdkafka(admin, "admin"), self._said)
        try:
            topics.partitions(own)
        except UnknownTopicError:
            return 0  # its first task makes it
        writer = PlainWriter(settings.producer(f"headgate-doctor-{name}", None), self._said)
        reader = own_offsets_reader(self._worker, config, name, settings)
        log = KafkaKeyedLog(own, topics, reader, writer, self._said)
        try:
            return _newest_ms(log, name)
        finally:
            log.close()
            writer.close()

    def close(self) -> None:
        self._describer.close()
        self._raw.close()


def _newest_ms(log: KeyedLog, connector: str) -> int:
    """When an offset of the connector was written last; 0: never."""
    from headgate.offsets import decode_key

    newest, position, end = 0, 0, log.end()
    while position < end:
        records, position = log.read(position)
        for record in records:
            key = decode_key(record.key)
            if key is not None and key.connector == connector and record.value is not None:
                newest = max(newest, record.timestamp_ms)
    return newest


def open_doctor(worker: Mapping[str, str], *, said: Said) -> KafkaDoctor:
    """
    Raises:
        ClientSettingsError: clients cannot be made from these properties.
    """
    return KafkaDoctor(worker, said)
