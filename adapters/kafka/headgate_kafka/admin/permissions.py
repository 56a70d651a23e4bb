"""The permissions that the principals of a worker and its connectors need, and tests whether they
have them.

The list is Connect's (its documentation on ACLs, KIP-618). `docs/run/permissions.md` has it as
tables. How each kind of permission is tested:

- Topics and groups: the brokers list the operations that a principal may perform on each. For a
  group that does not exist yet they do not. There the heartbeat of an unknown member tests Read.
- Transactional ids: permissions can only be tried. To look an id up needs Describe and does no
  harm. To initialise a producer needs Write, and fences the producer at work. So Write is tried
  only while the workers' group has no members.
- Create: tested if a topic is missing (`headgate_kafka.admin.doctor`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from headgate.connector.sink_names import sink_group, sink_topics, topic_pattern, topics_now
from headgate.java.pattern import JavaPatternError
from headgate.topics.config_events import Config
from headgate.topics.fencing import transactional_id
from headgate_kafka.admin.controller import ask_controller
from headgate_kafka.failures import NO_RIGHT, UNKNOWN_TOPIC, kafka_error
from headgate_kafka.group.describe import DescribedGroup
from headgate_kafka.group.port import GroupRefusedError
from headgate_kafka.login.principal import grant
from headgate_kafka.logs.reading import Topics

TASKS_TRIED: Final = 1_000
"""Limit of the tasks of one connector whose ids are tried. Of more, the first and the last."""


class ResourceKind(StrEnum):
    """Kinds of resources, as ``kafka-acls`` names them."""

    TOPIC = "Topic"
    GROUP = "Group"
    TRANSACTIONAL_ID = "TransactionalId"


@dataclass(frozen=True, slots=True)
class Permission:
    """One operation on one resource."""

    operation: str
    """Name in ``kafka-acls``: Read, Write, Describe, DescribeConfigs, Create or Delete."""
    kind: ResourceKind
    name: str
    purpose: str
    optional: bool = False
    """Without the permission a check is left out, or a user's request is refused. No task fails."""

    def __str__(self) -> str:
        return f"{self.operation} on {self.kind}:{self.name}"


class Verdict(StrEnum):
    GRANTED = "granted"
    DENIED = "denied"
    UNKNOWN = "not tried"


@dataclass(frozen=True, slots=True)
class Tried:
    permission: Permission
    verdict: Verdict
    reason: str = ""
    grant: str = ""
    """The command that grants the permission, if it is denied."""


# -- what is needed --


def worker_permissions(worker: Mapping[str, str]) -> list[Permission]:
    """Return the permissions that the worker's principal needs: on its group, the internal topics
    and the leader's transactional id."""
    group = worker["group.id"]
    found = [Permission("Read", ResourceKind.GROUP, group, "to be a member of the workers' group")]
    for key, purpose in (
        ("config.storage.topic", "connector configurations"),
        ("offset.storage.topic", "source offsets"),
        ("status.storage.topic", "statuses"),
    ):
        topic = worker[key]
        found += [
            Permission("Read", ResourceKind.TOPIC, topic, purpose),
            Permission("Write", ResourceKind.TOPIC, topic, purpose),
            Permission(
                "DescribeConfigs",
                ResourceKind.TOPIC,
                topic,
                "to check its clean-up policy",
                optional=True,
            ),
        ]
    if worker.get("exactly.once.source.support", "disabled") != "disabled":
        found += _transactional(f"connect-cluster-{group}", "the leader's writes are fenced by it")
    return found


def producer_permissions(
    worker: Mapping[str, str], name: str, config: Config, tasks: int, own: str | None
) -> list[Permission]:
    """Return the permissions that the principal of a source connector's producers needs.

    The topics that it writes to are known only if its config has ``topic``.

    Args:
        own: the connector's own offsets topic, if it has one.
    """
    found: list[Permission] = []
    topic = config.get("topic")
    if topic:
        found.append(Permission("Write", ResourceKind.TOPIC, topic, f"records of {name}"))
    if own or writes_transactions(worker):
        offsets = own or worker["offset.storage.topic"]
        found.append(Permission("Write", ResourceKind.TOPIC, offsets, _offsets_of(name)))
    if writes_transactions(worker):
        for task in _tried_tasks(tasks):
            identifier = transactional_id(worker["group.id"], name, task)
            found += _transactional(identifier, f"transactions and fencing of {name}-{task}")
    return found


def reader_permissions(name: str, own: str) -> list[Permission]:
    """Return the permissions that the reader of a source connector's own offsets topic needs. The
    global topic is read with the worker's own principal."""
    return [Permission("Read", ResourceKind.TOPIC, own, _offsets_of(name))]


def source_admin_permissions(
    worker: Mapping[str, str], name: str, producers: int, own: str | None
) -> list[Permission]:
    """Return the permissions that the principal of a source connector's admin client needs.

    Create on its own offsets topic is not among them: if the topic is missing, the brokers are
    asked whether they would create it. Neither is Describe on data topics: the producers' login is
    used for topics that the admin client may not describe.

    Args:
        producers: the number of tasks now, or at the last fencing, whichever is greater. The next
            fencing round may fence as many ids.
    """
    found: list[Permission] = []
    if own:
        purpose = "to check its clean-up policy"
        found += [
            Permission("Describe", ResourceKind.TOPIC, own, _offsets_of(name)),
            Permission("DescribeConfigs", ResourceKind.TOPIC, own, purpose, optional=True),
        ]
    if writes_transactions(worker):
        for task in _tried_tasks(producers):
            identifier = transactional_id(worker["group.id"], name, task)
            found += _transactional(identifier, f"transactions and fencing of {name}-{task}")
    return found


def consumer_permissions(
    worker: Mapping[str, str],
    name: str,
    config: Config,
    topic_names: Callable[[], Iterable[str]],
) -> list[Permission]:
    """Return the permissions that the principal of a sink connector's consumers needs.

    Args:
        topic_names: returns the names of all topics that the principal may see, for a sink with a
            topic pattern. Its tasks do not know of other matching topics.
    """
    group = sink_group(name, config, worker)
    topics = _topics_of(worker, config, topic_names)
    return [
        Permission("Read", ResourceKind.GROUP, group, f"consumer group of {name}"),
        *(Permission("Read", ResourceKind.TOPIC, topic, f"records for {name}") for topic in topics),
    ]


def sink_admin_permissions(
    worker: Mapping[str, str],
    name: str,
    config: Config,
    topic_names: Callable[[], Iterable[str]],
    *,
    planned: bool = False,
) -> list[Permission]:
    """Return the permissions that the principal of a sink connector's admin client needs.

    Args:
        topic_names: as for `consumer_permissions`.
        planned: its tasks plan whole batches, for which they use this client. Other tasks do not
            use it, only the calls about offsets do.
    """
    group = sink_group(name, config, worker)
    resources = [
        (ResourceKind.GROUP, group),
        *((ResourceKind.TOPIC, topic) for topic in _topics_of(worker, config, topic_names)),
    ]
    found: list[Permission] = []
    for operation, call in (("Describe", "show"), ("Read", "alter")):
        for kind, resource in resources:
            more = " or reset" if (operation, kind) == ("Read", ResourceKind.TOPIC) else ""
            purpose = f"to {call}{more} the offsets of {name}"
            if planned:
                purpose = f"tasks of {name} plan batches with it"
            found.append(Permission(operation, kind, resource, purpose, optional=not planned))
    purpose = f"to reset the offsets of {name}"
    return [*found, Permission("Delete", ResourceKind.GROUP, group, purpose, optional=True)]


def _topics_of(
    worker: Mapping[str, str], config: Config, topic_names: Callable[[], Iterable[str]]
) -> Sequence[str]:
    try:
        return topics_now(topic_pattern(config, worker) or sink_topics(config), topic_names)
    except JavaPatternError:
        return []  # reported as a finding elsewhere


def writes_transactions(worker: Mapping[str, str]) -> bool:
    """Return whether the tasks of source connectors write transactions."""
    return worker.get("exactly.once.source.support", "").strip().lower() == "enabled"


def _offsets_of(name: str) -> str:
    return f"source offsets of {name}"


def _tried_tasks(count: int) -> Sequence[int]:
    """Return the tasks whose transactional ids are tried. Each id takes brokers some milliseconds,
    so of very many tasks not all are tried."""
    return range(count) if count <= TASKS_TRIED else (*range(TASKS_TRIED - 1), count - 1)


def _transactional(identifier: str, purpose: str) -> Iterator[Permission]:
    for operation in ("Describe", "Write"):
        yield Permission(operation, ResourceKind.TRANSACTIONAL_ID, identifier, purpose)


# -- whether it is there --

NOT_EVEN: Final = "not even Describe is granted"
NO_GROUP: Final = "there is no such group yet"
NO_TOPIC: Final = "there is no such topic: make it, or let the principal Create it"
_OPERATIONS: Final = {
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
    "Describe": AclOperation.DESCRIBE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
    "Create": AclOperation.CREATE,
    "Delete": AclOperation.DELETE,
}


class CannotTryError(Exception):
    """A permission cannot be tested with these clients. The message says why."""


class Rights:
    """Tests of the permissions of one principal, with which `topics` and the functions log in. The
    functions may raise `CannotTryError`.

    Args:
        describe_group: returns the description of a group.
        refused_read: tries Read on a group that does not exist. Returns the refusal or None.
        look_up: finds the coordinator of a transactional id. Returns the refusal or None.
        initialise: initialises a producer with a transactional id, which fences its producer.
            Returns the refusal or None. It is None if producers may be at work, and not tried then.
    """

    def __init__(
        self,
        topics: Topics,
        describe_group: Callable[[str], DescribedGroup],
        refused_read: Callable[[str], str | None],
        look_up: Callable[[str], str | None],
        initialise: Callable[[str], str | None] | None,
    ) -> None:
        self._topics = topics
        self._describe_group = describe_group
        self._refused_read = refused_read
        self._look_up = look_up
        self._initialise = initialise
        self._allowed: dict[tuple[ResourceKind, str], frozenset[int] | Tried] = {}

    def try_all(self, permissions: Sequence[Permission]) -> list[Tried]:
        """Test the permissions, each once. If several clients need one, the result is for a client
        to which it is not optional.

        Raises:
            TransportError: the brokers do not answer.
        """
        once: dict[str, Permission] = {}
        for each in permissions:
            if each.optional < once.setdefault(str(each), each).optional:
                once[str(each)] = each
        return [self._tried(permission) for permission in once.values()]

    def _tried(self, wanted: Permission) -> Tried:
        try:
            found = self._try(wanted)
        except CannotTryError as error:
            return Tried(wanted, Verdict.UNKNOWN, str(error))
        if found.verdict is not Verdict.DENIED:
            return found
        who, servers = self._topics.contact.principal, self._topics.contact.servers
        return replace(found, grant=grant(who, wanted.operation, wanted.kind, wanted.name, servers))

    def _try(self, wanted: Permission) -> Tried:
        if wanted.kind is ResourceKind.TRANSACTIONAL_ID:
            return self._try_transactional(wanted)
        resource = wanted.kind, wanted.name
        if resource not in self._allowed:
            ask = self._of_topic if wanted.kind is ResourceKind.TOPIC else self._of_group
            self._allowed[resource] = ask(wanted)
        allowed = self._allowed[resource]
        if isinstance(allowed, Tried):
            if allowed.reason == NO_GROUP and wanted.operation == "Read":
                return self._judged(wanted, self._refused_read(wanted.name))
            if allowed.reason == NO_GROUP and wanted.operation == "Describe":
                # Without Describe the brokers would not say that the group does not exist.
                return Tried(wanted, Verdict.GRANTED)
            return Tried(wanted, allowed.verdict, allowed.reason)
        granted = _OPERATIONS[wanted.operation].value in allowed
        return Tried(wanted, Verdict.GRANTED if granted else Verdict.DENIED)

    def _of_topic(self, wanted: Permission) -> frozenset[int] | Tried:
        client = self._topics.client

        def describe(limit_s: float) -> Any:
            asked = client.describe_topics(
                TopicCollection([wanted.name]),
                include_authorized_operations=True,
                request_timeout=limit_s,
            )
            return asked[wanted.name].result()

        try:
            found = ask_controller(client, describe)
        except KafkaException as failed:
            self._topics.client.poll(0)
            error = kafka_error(failed)
            if error is not None and error.code() in NO_RIGHT:
                return Tried(wanted, Verdict.DENIED, NOT_EVEN)
            if error is not None and error.code() in UNKNOWN_TOPIC:
                return Tried(wanted, Verdict.UNKNOWN, NO_TOPIC)
            raise self._topics.contact.error(f"{wanted} could not be asked for", error) from None
        return frozenset(operation.value for operation in found.authorized_operations or ())

    def _of_group(self, wanted: Permission) -> frozenset[int] | Tried:
        try:
            found = self._describe_group(wanted.name)
        except GroupRefusedError:
            return Tried(wanted, Verdict.DENIED, NOT_EVEN)
        if not found.authorized_operations:
            return Tried(wanted, Verdict.UNKNOWN, NO_GROUP)
        return found.authorized_operations

    def _try_transactional(self, wanted: Permission) -> Tried:
        if wanted.operation == "Describe":
            return self._judged(wanted, self._look_up(wanted.name))
        if self._initialise is None:
            reason = "it would fence whoever is at work; stop the workers to have it tried"
            return Tried(wanted, Verdict.UNKNOWN, reason)
        return self._judged(wanted, self._initialise(wanted.name))

    @staticmethod
    def _judged(wanted: Permission, refused: str | None) -> Tried:
        if refused is None:
            return Tried(wanted, Verdict.GRANTED)
        return Tried(wanted, Verdict.DENIED, refused)
