"""Creation and check of the internal topics when a worker starts, as in Connect.

Source: KafkaTopicBasedBackingStore.topicInitializer, TopicAdmin, KafkaConfigBackingStore.start.
Differs: the config topic's partitions are checked before anything is read from it. If the clean-up
policy of a topic may not be read, a warning says so, where Connect logs at level debug.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
    TopicDescription,
)

from headgate_kafka.admin.reach import API_TIMEOUT_MS, Admin, Warn
from headgate_kafka.clients.settings import (
    Properties,
    client_id_base,
    number,
    worker_client_settings,
)

_log = logging.getLogger(__name__)

COMPACT = "compact"
OWN_OFFSETS_KEY = "offsets.storage.topic"
"""Key of a connector's own offsets topic. The worker's ``offset.storage.*`` say how it is made."""
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""The topic id from brokers that give topics no ids: 16 zero bytes, as Kafka writes them."""
_NOT_SETTINGS = frozenset({"topic", "replication.factor", "partitions", "cleanup.policy"})
_FORBIDDEN = frozenset(
    {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}
)


class TopicRefusedError(Exception):
    """An internal topic is not as Connect needs it, or may not be created. Trying again does not
    help."""


@dataclass(frozen=True, slots=True)
class InternalTopic:
    name: str
    key: str
    """The worker's property that names it."""
    purpose: str
    partitions: int
    """Number of partitions. -1: the broker's default."""
    replication_factor: int
    settings: Mapping[str, str] = field(default_factory=dict)
    """Topic settings, from the worker's keys with `prefix`."""

    @property
    def prefix(self) -> str:
        """Prefix of the worker's keys that say how the topic is created."""
        key = "offset.storage.topic" if self.key == OWN_OFFSETS_KEY else self.key
        return key.removesuffix("topic")


def config_topic(worker: Properties) -> InternalTopic:
    return _topic(worker, "config.storage.", "connector configurations", "1")


def offset_topic(worker: Properties, name: str | None = None) -> InternalTopic:
    """Return the workers' offsets topic, or a connector's own one of this `name`, which is created
    with the same settings."""
    found = _topic(worker, "offset.storage.", "source connector offsets", "25")
    if name is None:
        return found
    return InternalTopic(
        name,
        OWN_OFFSETS_KEY,
        found.purpose,
        found.partitions,
        found.replication_factor,
        found.settings,
    )


def status_topic(worker: Properties) -> InternalTopic:
    return _topic(worker, "status.storage.", "connector and task statuses", "5")


def internal_topics(worker: Properties) -> tuple[InternalTopic, InternalTopic, InternalTopic]:
    """Return the offsets, status and config topics, in the order in which Connect creates them."""
    return offset_topic(worker), status_topic(worker), config_topic(worker)


def new_topic(topic: InternalTopic) -> NewTopic:
    """Return the request by which a worker has brokers create the topic."""
    return NewTopic(
        topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        config={"cleanup.policy": COMPACT, **topic.settings},
    )


def ignored_keys(worker: Properties) -> list[str]:
    """Return the worker's keys about internal topics that Connect ignores with a warning, because
    it sets these values itself."""
    keys = [f"{kind}.storage.cleanup.policy" for kind in ("config", "offset", "status")]
    return [key for key in (*keys, "config.storage.partitions") if key in worker]


def _topic(worker: Properties, prefix: str, purpose: str, partitions: str) -> InternalTopic:
    given = {
        key.removeprefix(prefix): value
        for key, value in worker.items()
        if key.startswith(prefix) and value is not None
    }
    if prefix != "config.storage.":
        partitions = given.get("partitions", partitions)
    return InternalTopic(
        given["topic"],
        f"{prefix}topic",
        purpose,
        int(partitions),
        int(given.get("replication.factor", "3")),
        {key: value for key, value in given.items() if key not in _NOT_SETTINGS},
    )


# -- creating and checking --


class Reached(NamedTuple):
    """A worker's Kafka cluster, as its brokers describe it."""

    cluster_id: str
    broker_count: int
    config_topic: str
    """A text that identifies the config topic, with its name, topic id (KIP-516) and cluster.
    Empty if the brokers give topics no ids."""


def prepare_internal_topics(
    worker: Properties, *, warn: Warn, sleep: Callable[[float], object] = time.sleep
) -> Reached:
    """Create or check the three internal topics of a worker. Each request is tried for the worker's
    ``default.api.timeout.ms``.

    Raises:
        TopicRefusedError: one of them is not as Connect needs it.
        TransportError: the brokers did not answer in time.
    """
    admin = _admin(worker, warn, sleep)
    admin.cluster()
    ensure_topics(admin, internal_topics(worker), warn=warn)
    # If the brokers are just starting, more of them are up by now.
    found, count = admin.cluster()
    return Reached(found, count, _identity(admin, config_topic(worker), found))


def reach_cluster(
    worker: Properties, *, warn: Warn, sleep: Callable[[float], object] = time.sleep
) -> Reached:
    """As `prepare_internal_topics`, for a worker without internal topics."""
    return Reached(*_admin(worker, warn, sleep).cluster(), "")


def _admin(worker: Properties, warn: Warn, sleep: Callable[[float], object]) -> Admin:
    settings = worker_client_settings(
        worker, "admin", client_id=f"{client_id_base(worker)}shared-admin"
    )
    timeout_ms = number(worker, "default.api.timeout.ms", API_TIMEOUT_MS)
    return Admin(settings, timeout_ms=timeout_ms, warn=warn, sleep=sleep)


def ensure_topics(admin: Admin, topics: Sequence[InternalTopic], *, warn: Warn) -> None:
    """Create the topics that do not exist and check the others.

    Raises:
        TopicRefusedError: a topic has a wrong clean-up policy or wrong partitions, or may not or
            cannot be created.
        TransportError: the brokers did not answer in time.
    """
    for topic in topics:
        created = _create(admin, topic)
        if not created:
            _check_policy(admin, topic, warn)
        if topic.key == "config.storage.topic":
            _check_single_partition(admin, topic)


def _create(admin: Admin, topic: InternalTopic) -> bool:
    """Create a topic if it does not exist. Return whether it was created just now."""
    # Look first: brokers that forbid the creation, or are too few for the replication factor,
    # also refuse a topic that exists.
    if _partitions(admin, topic) is not None:
        return False
    new = new_topic(topic)
    what = f"could not create topic '{topic.name}' ({topic.key})"
    try:
        admin.patiently(
            what,
            lambda limit_s: _created(admin.client, new, limit_s),
            too_few_brokers=f"; set {topic.prefix}replication.factor (3 by default) to no more "
            "than there are brokers",
        )
    except KafkaException as error:
        code, text = error.args[0].code(), error.args[0].str()
        if code == KafkaError.TOPIC_ALREADY_EXISTS:  # another worker has created it meanwhile
            _await_leaders(admin, topic)
            return False
        hint = ""
        if code in _FORBIDDEN:
            hint = (
                f". {admin.principal} lacks Create on Topic:{topic.name}: allow it, or create the "
                f"topic yourself with cleanup.policy={COMPACT}"
            )
        elif code in (KafkaError.INVALID_CONFIG, KafkaError.INVALID_PARTITIONS):
            hint = f". Check the worker's keys that begin with {topic.prefix}"
        raise TopicRefusedError(f"{what} at {admin.servers}: {text.rstrip('.')}{hint}") from None
    _log.info("created topic '%s' (%s)", topic.name, topic.key)
    _await_leaders(admin, topic)
    return True


def _await_leaders(admin: Admin, topic: InternalTopic) -> None:
    """Wait until all partitions of a new topic have leaders. Before, its offsets cannot be read."""

    def ask(limit_s: float) -> None:
        listed = admin.client.list_topics(topic.name, timeout=limit_s).topics[topic.name]
        leaders = [partition.leader for partition in listed.partitions.values()]
        if listed.error is not None or not leaders or -1 in leaders:
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))

    admin.patiently(f"topic '{topic.name}' ({topic.key}) has no leader", ask, quiet=True)


def _created(client: AdminClient, new: NewTopic, limit_s: float) -> None:
    futures = client.create_topics([new], operation_timeout=limit_s, request_timeout=limit_s)
    futures[new.topic].result()


def _partitions(admin: Admin, topic: InternalTopic) -> int | None:
    """Return the number of a topic's partitions. None: it does not exist."""
    described = _description(admin, topic)
    return None if described is None else len(described.partitions)


def _identity(admin: Admin, topic: InternalTopic, cluster_id: str) -> str:
    described = _description(admin, topic, awaited=True)
    topic_id = _NO_ID if described is None else str(described.topic_id)
    if topic_id == _NO_ID:
        return ""
    # Workers compare this text, so it is part of the protocol and must not change between releases.
    written = topic_id.translate(str.maketrans("+/", "-_"))  # as Kafka's own tools write it
    return f"'{topic.name}' (id {written}, Kafka cluster {cluster_id})"


def _description(
    admin: Admin, topic: InternalTopic, *, awaited: bool = False
) -> TopicDescription | None:
    """Return the description of a topic. None: it does not exist.

    Args:
        awaited: the topic was created, perhaps just now. Wait until the brokers know it.
    """

    def ask(limit_s: float) -> TopicDescription | None:
        described = admin.client.describe_topics(
            TopicCollection([topic.name]), request_timeout=limit_s
        )
        try:
            found: TopicDescription = described[topic.name].result()
            return found
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART and not awaited:
                return None
            raise

    what = f"could not describe topic '{topic.name}' ({topic.key})"
    try:
        found: TopicDescription | None = admin.patiently(what, ask, quiet=awaited)
    except KafkaException as error:
        hint = ""
        if error.args[0].code() in _FORBIDDEN:
            hint = f". {admin.principal} lacks Describe on Topic:{topic.name}"
        raise TopicRefusedError(f"{what} at {admin.servers}: {error.args[0].str()}{hint}") from None
    return found


def _check_single_partition(admin: Admin, topic: InternalTopic) -> None:
    count = _partitions(admin, topic)
    if count is not None and count != 1:
        raise TopicRefusedError(
            f"Topic '{topic.name}' supplied via the '{topic.key}' property is required to have a "
            f"single partition in order to guarantee consistency of {topic.purpose}, but found "
            f"{count} partitions."
        )


def _check_policy(admin: Admin, topic: InternalTopic, warn: Warn) -> None:
    try:
        policy = admin.patiently(
            f"could not look at the settings of topic '{topic.name}' ({topic.key})",
            lambda limit_s: _cleanup_policy(admin.client, topic.name, limit_s),
        )
    except KafkaException as error:
        warn(
            f"could not check the clean-up policy of topic '{topic.name}' ({topic.key}), which "
            f"must be {COMPACT}: {error.args[0].str()}. {admin.principal} needs DescribeConfigs "
            f"on Topic:{topic.name}"
        )
        return
    found = sorted(part.strip() for part in policy.split(",") if part.strip())
    if found != [COMPACT]:
        purpose = topic.purpose
        raise TopicRefusedError(
            f"Topic '{topic.name}' supplied via the '{topic.key}' property is required to have "
            f"'cleanup.policy={COMPACT}' to guarantee consistency and durability of {purpose}, but "
            f"found the topic currently has 'cleanup.policy={','.join(found)}'. Continuing would "
            f"likely result in eventually losing {purpose} and problems restarting this Connect "
            f"cluster in the future. Change the '{topic.key}' property in the Connect worker "
            f"configurations to use a topic with 'cleanup.policy={COMPACT}'."
        )


def _cleanup_policy(client: AdminClient, name: str, limit_s: float) -> str:
    resource = ConfigResource(ResourceType.TOPIC, name)
    found = client.describe_configs([resource], request_timeout=limit_s)[resource].result()
    return str(found["cleanup.policy"].value)
