"""A check of a worker's properties against a real cluster, which finds faults before the worker
starts."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

from headgate.ports import KeyedLog, RefusedError, TransportError, UnknownTopicError
from headgate.topics.config_events import Config
from headgate.topics.offsets import OffsetTable, fold_offsets
from headgate_kafka.admin.controller import ask_controller
from headgate_kafka.admin.permissions import (
    CannotTryError,
    Permission,
    Rights,
    Tried,
    consumer_permissions,
    producer_permissions,
    reader_permissions,
    sink_admin_permissions,
    source_admin_permissions,
    worker_permissions,
    writes_transactions,
)
from headgate_kafka.admin.raw_admin import RawAdmin
from headgate_kafka.admin.topics import (
    COMPACT,
    InternalTopic,
    internal_topics,
    new_topic,
    offset_topic,
)
from headgate_kafka.clients.roles import (
    WorkerClients,
    connector_admin_properties,
    connector_clients,
    own_offsets_reader,
)
from headgate_kafka.clients.settings import (
    ClientSettingsError,
    check_worker_clients,
    librdkafka,
    worker_kafka_python,
)
from headgate_kafka.failures import NO_RIGHT, Contact, kafka_error
from headgate_kafka.group.describe import DescribedGroup, GroupDescriber
from headgate_kafka.group.port import GroupRefusedError
from headgate_kafka.login.logins import Login, Role, connector_logins, own_offsets_topic
from headgate_kafka.login.token_trial import try_for_token
from headgate_kafka.logs.keyed_log import KafkaKeyedLog
from headgate_kafka.logs.offset_stores import newest_ms, stale_own_topic
from headgate_kafka.logs.reading import Topics
from headgate_kafka.logs.writing import PlainWriter
from headgate_kafka.observer import KafkaObserver
from headgate_kafka.records.topics import ClientsSettings
from headgate_kafka.transport import DISABLED

PLANNED_SINK: Final = "planned sink"
"""Kind of a sink connector whose tasks plan whole batches."""
SUPPORT: Final = "exactly.once.source.support"
Warn = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Broker:
    cluster_id: str
    addresses: tuple[str, ...]


class KafkaDoctor:
    """One check of a cluster, with a worker's own clients. It changes nothing but the epochs of
    transactional ids, and these only while the group has no members."""

    def __init__(self, worker: Mapping[str, str], warn: Warn) -> None:
        self._worker = worker
        self._warn = warn
        self._clients = WorkerClients(worker, warn)
        self._raw = RawAdmin(worker_kafka_python(worker, client_id="headgate-doctor"))
        self._describer = GroupDescriber(worker_kafka_python(worker, client_id="headgate-doctor"))
        self._not_let_in: dict[object, str] = {}
        """Reasons of refused logins, by login. Connectors share logins, and each try may take until
        a timeout."""

    @cached_property
    def _topics(self) -> Topics:
        return self._clients.topics()

    def brokers(self) -> Broker:
        """Return the cluster id and the brokers' addresses.

        Raises:
            TransportError: no broker answers, or there is no token to log in with.
        """
        self._clients.try_for_token()
        found = _describe_cluster(self._topics)
        return Broker(
            found.cluster_id, tuple(sorted(f"{node.host}:{node.port}" for node in found.nodes))
        )

    def group(self) -> DescribedGroup:
        return self._describer.describe(self._worker["group.id"])

    def internal_topics(self) -> Iterator[tuple[InternalTopic, str | None, bool]]:
        """Yield each internal topic, its fault or None, and whether it exists. Without a fault the
        topic is as workers need it, or they can create it."""
        for topic in internal_topics(self._worker):
            yield topic, *_fault_of(topic, self._topics)

    def worker_rights(self) -> list[Tried]:
        rights = self._rights(self._topics, self._describer, self._raw)
        return rights.try_all(worker_permissions(self._worker))

    def connector_rights(
        self, name: str, config: Config, kind: str, tasks: int, producers: int
    ) -> Iterator[tuple[str, Callable[[], list[Tried]]]]:
        """Yield, for each login of the connector's clients, a text that names it and a function
        that tries its permissions with that login. Clients with the same login are one.

        The functions raise `RefusedError` if no client can be made or the login is refused, and
        `TransportError` if the brokers do not answer.

        Args:
            kind: source, sink, or `PLANNED_SINK`.
            producers: of a source, as for `source_admin_permissions`.
        """
        given = _given(config)
        planned = kind == PLANNED_SINK
        kind = "sink" if planned else kind
        own = self._own_topic(given, kind)

        def needed(role: Role, topics: Topics) -> list[Permission]:
            match role:
                case Role.PRODUCER:
                    return producer_permissions(self._worker, name, config, tasks, own)
                case Role.READER:
                    return reader_permissions(name, own or "")
                case Role.CONSUMER:
                    return consumer_permissions(self._worker, name, config, topics.names)
                case Role.ADMIN if kind == "sink":
                    return sink_admin_permissions(
                        self._worker, name, config, topics.names, planned=planned
                    )
                case Role.ADMIN:
                    return source_admin_permissions(self._worker, name, producers, own)

        logins = self._logins(name, given, kind, own)
        for login in logins:
            who = f"connector {name}"
            if len(logins) > 1:
                who = f"{who}'s {' and '.join(login.roles)}"
            yield who, partial(self._try_as, login, needed)

    def _try_as(
        self, login: Login, needed: Callable[[Role, Topics], list[Permission]]
    ) -> list[Tried]:
        topics = self._let_in(login)
        wanted = [each for role in login.roles for each in needed(role, topics)]
        try:
            arguments = login.kafka_python()
        except ClientSettingsError as error:
            refuse = partial(_cannot_try, str(error))
            return Rights(topics, refuse, refuse, refuse, refuse).try_all(wanted)
        raw, describer = RawAdmin(arguments), GroupDescriber(arguments)
        try:
            return self._rights(topics, describer, raw).try_all(wanted)
        finally:
            raw.close()
            describer.close()

    def _let_in(self, login: Login) -> Topics:
        """Return a client that has logged in.

        Raises:
            RefusedError: no client can log in so.
        """
        refusal = login.refused or self._not_let_in.get(login.identity)
        if not refusal:
            try:
                try_for_token(login.settings)
                topics = Topics(login.settings, self._warn)
                _describe_cluster(topics)
            except KafkaException as failed:
                refusal = _why_no_client(login, failed)
            except TransportError as error:
                refusal = f"{error}. {login.hint}" if login.hint else str(error)
            else:
                return topics
            self._not_let_in[login.identity] = refusal
        raise RefusedError(refusal)

    def own_topic_fault(self, name: str, config: Config) -> tuple[str, str] | None:
        """Return the name of a source connector's own offsets topic, and why its tasks would refuse
        it or could not create it.

        None: the topic has no fault, or the connector has none. Also None if the login of its admin
        client is refused, which `connector_rights` reports.
        """
        given = _given(config)
        own = self._own_topic(given, "source")
        if own is None:
            return None
        logins = self._logins(name, given, "source", own)
        try:
            topics = self._let_in(next(each for each in logins if Role.ADMIN in each.roles))
        except RefusedError:
            return None
        fault, _ = _fault_of(offset_topic(self._worker, own), topics)
        return None if fault is None else (own, fault)

    def _own_topic(self, config: Mapping[str, str], kind: str) -> str | None:
        if kind == "sink":
            return None
        exactly_once = writes_transactions(self._worker)
        return own_offsets_topic(self._worker, config, exactly_once=exactly_once)

    def _logins(
        self, name: str, config: Mapping[str, str], kind: str, own: str | None
    ) -> list[Login]:
        return connector_logins(
            self._worker,
            config,
            name,
            "sink" if kind == "sink" else "source",
            reads_own_offsets=own is not None,
            client_id=f"headgate-doctor-{name}",
        )

    def _rights(self, topics: Topics, describer: GroupDescriber, raw: RawAdmin) -> Rights:
        try:
            idle = not self.group().members
        except GroupRefusedError:
            idle = False  # the group may have members
        return Rights(
            topics,
            describer.describe,
            describer.refused_read,
            raw.refused_lookup,
            raw.refused_init if idle else None,
        )

    def stale_own_topics(self, configs: Mapping[str, Config]) -> Iterator[str]:
        """Yield a warning for each connector whose own offsets topic is older than the global one.

        The own topic takes precedence. So a task would go back to its offsets from before
        exactly-once was disabled (KIP-618). The topic is named in the connector's config, or
        implied by the cluster that it writes to.

        Args:
            configs: of source connectors, by name.
        """
        shared = self._worker["offset.storage.topic"]
        exactly_once = self._worker.get(SUPPORT, DISABLED).strip().lower() != DISABLED
        observer: KafkaObserver | None = None
        for name, config in configs.items():
            given = _given(config)
            own = own_offsets_topic(self._worker, given, exactly_once=exactly_once)
            if own is None:
                continue
            try:
                settings = connector_clients(self._worker, given, self._warn)
                observer = observer or KafkaObserver(self._worker, self._warn)
                shared_ms, _ = _written(observer.offset_log(None), name)
                own_ms = self._own_newest_ms(own, name, given, settings)
            except (TransportError, ClientSettingsError, KafkaException) as error:
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
        """Return the timestamp, in ms, of the newest change in the own offsets topic, read with the
        connector's own settings. 0: the topic has no offset."""
        admin = connector_admin_properties(self._worker, config, name, "source", self._warn)
        topics = Topics(librdkafka(admin, "admin"), self._warn)
        try:
            topics.partitions(own)
        except UnknownTopicError:
            return 0  # the connector's first task creates it
        writer = PlainWriter(settings.producer(f"headgate-doctor-{name}", None), self._warn)
        reader = own_offsets_reader(self._worker, config, name, settings)
        log = KafkaKeyedLog(own, topics, reader, writer, self._warn)
        try:
            found_ms, stands = _written(log, name)
            return found_ms if stands else 0
        finally:
            log.close()
            writer.close()

    def close(self) -> None:
        self._describer.close()
        self._raw.close()


def _written(log: KeyedLog, connector: str) -> tuple[int, bool]:
    """Return when the connector's offsets in the log were changed last, in ms (0: never), and
    whether there is any offset."""
    found_ms, table, position, end = 0, OffsetTable(), 0, log.end()
    while position < end:
        records, position = log.read(position)
        found_ms = max(found_ms, newest_ms(records, connector))
        table = fold_offsets(table, records, only=connector)
    return found_ms, connector in table.connectors


def _given(config: Config) -> dict[str, str]:
    return {key: value for key, value in config.items() if value is not None}


def _why_no_client(login: Login, failed: KafkaException) -> str:
    """Return why a client cannot be made. Making kafka-python's arguments reads the keys too, and
    gives a better message about a faulty one."""
    try:
        login.kafka_python()
    except ClientSettingsError as error:
        return str(error)
    found = kafka_error(failed)
    return f"no client can be made of its settings: {failed if found is None else found.str()}"


def _cannot_try(reason: str, _name: str) -> Any:
    raise CannotTryError(reason)


# -- brokers and topics, as one principal --


def _describe_cluster(topics: Topics) -> Any:
    """Return the brokers' description of the cluster.

    Raises:
        TransportError: no broker answers, or one refuses this client's login, in which case it is
            raised at once.
    """
    contact, client = topics.contact, topics.client

    def describe(limit_s: float) -> Any:
        return contact.answer(client, client.describe_cluster(request_timeout=limit_s))

    try:
        return ask_controller(client, describe)
    except KafkaException as failed:
        client.poll(0)
        raise contact.error("the brokers do not answer", kafka_error(failed)) from None


def _fault_of(topic: InternalTopic, topics: Topics) -> tuple[str | None, bool]:
    try:
        count = topics.partitions(topic.name)
    except UnknownTopicError:
        return _fault_of_absent(topic, topics), False
    except TransportError as error:
        return str(error), True
    return _fault_of_present(topic, count, topics), True


def _fault_of_present(topic: InternalTopic, count: int, topics: Topics) -> str | None:
    if topic.key == "config.storage.topic" and count != 1:
        return f"it has {count} partitions, expected a single one: workers refuse to start"
    asked = [ConfigResource(ResourceType.TOPIC, topic.name)]
    try:
        settings = topics.settings(asked)[topic.name]
    except KafkaException:
        return None  # a missing permission, which `worker_rights` or `connector_rights` reports
    policy = settings["cleanup.policy"].value
    if policy != COMPACT:
        return f"its cleanup.policy is {policy}, expected {COMPACT}: records would be lost"
    return None


def _fault_of_absent(topic: InternalTopic, topics: Topics) -> str | None:
    """Return why brokers would not create the topic for a worker. They are only asked to validate
    the request (`validate_only`)."""

    def create(limit_s: float) -> None:
        asked = topics.client.create_topics(
            [new_topic(topic)], request_timeout=limit_s, validate_only=True
        )
        asked[topic.name].result()

    try:
        ask_controller(topics.client, create)
    except KafkaException as failed:
        topics.client.poll(0)
        error = kafka_error(failed)
        if error is None or error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
            return f"it does not exist, and {_not_made(topic, topics.contact, error)}"
    return None


def _not_made(topic: InternalTopic, contact: Contact, error: KafkaError | None) -> str:
    if error is None:
        return str(contact.error("nobody could say whether it can be made"))
    code, text = error.code(), error.str().rstrip(".")
    if code in NO_RIGHT:
        lacking = contact.lacking(error, f"Create on Topic:{topic.name}")
        return f"{lacking}: grant it, or make the topic with cleanup.policy={COMPACT}"
    if code == KafkaError.INVALID_REPLICATION_FACTOR:
        wanted = topic.replication_factor
        return (
            f"no worker can make it with {wanted} replicas: {text}. Set"
            f" {topic.prefix}replication.factor"
        )
    if code in (KafkaError.INVALID_CONFIG, KafkaError.INVALID_PARTITIONS):
        return f"cannot be made: {text}. Check the worker's keys that begin with {topic.prefix}"
    return f"cannot be made: {contact.error('the brokers refuse', error)}"


def open_doctor(worker: Mapping[str, str], *, warn: Warn) -> KafkaDoctor:
    """Make a doctor for a worker's properties, without connecting.

    Raises:
        ClientSettingsError: clients cannot be made from these properties.
    """
    check_worker_clients(worker, in_group=True)
    return KafkaDoctor(worker, warn)
