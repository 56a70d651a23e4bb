"""The internal topics: created where they are absent, checked where they are there, as Connect does
it when a worker starts.

Source: KafkaTopicBasedBackingStore.topicInitializer, TopicAdmin, KafkaConfigBackingStore.start.
Differs: the config topic's partitions are checked before anything is read from it; and a topic's
clean-up policy that may not be looked at is said, not only logged at level debug.
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
"""Key of a connector's own offsets topic; the worker's keys say how it is made."""
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""What brokers that give topics no ids answer: 16 bytes of nothing, as Kafka writes them."""
_NOT_SETTINGS = frozenset({"topic", "replication.factor", "partitions", "cleanup.policy"})
_FORBIDDEN = frozenset(
    {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}
)


class TopicRefusedError(Exception):
    """An internal topic is not what Connect needs, or may not be made. Trying again is no use."""


@dataclass(frozen=True, slots=True)
class InternalTopic:
    name: str
    key: str
    """The worker's property that names it."""
    purpose: str
    partitions: int
    """-1: the broker's default."""
    replication_factor: int
    settings: Mapping[str, str] = field(default_factory=dict)
    """Topic settings, from the worker's keys of the same prefix."""

    @property
    def prefix(self) -> str:
        """Prefix of the worker's keys that say how the topic is made."""
        key = "offset.storage.topic" if self.key == OWN_OFFSETS_KEY else self.key
        return key.removesuffix("topic")


def config_topic(worker: Properties) -> InternalTopic:
    return _topic(worker, "config.storage.", "connector configurations", "1")


def offset_topic(worker: Properties, name: str | None = None) -> InternalTopic:
    """The worker's offsets topic; `name`: a connector's own one, made like it."""
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
    """Offsets, statuses, configurations: in the order in which Connect makes them."""
    return offset_topic(worker), status_topic(worker), config_topic(worker)


def new_topic(topic: InternalTopic) -> NewTopic:
    """As a worker asks brokers to make it."""
    return NewTopic(
        topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        config={"cleanup.policy": COMPACT, **topic.settings},
    )


def ignored_keys(worker: Properties) -> list[str]:
    """Keys of internal topics that Connect ignores with a warning: those are for it to decide."""
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
    """What a worker was told of its brokers."""

    cluster_id: str
    broker_count: int
    config_topic: str
    """Name, topic id (KIP-516) and cluster of its config topic, which no other has; empty where the
    brokers give topics no ids."""


def prepare_internal_topics(
    worker: Properties, *, warn: Warn, sleep: Callable[[float], object] = time.sleep
) -> Reached:
    """Create or check the three topics of a worker. Tries for as long as the worker's
    ``default.api.timeout.ms`` says.

    Raises:
        TopicRefusedError: one of them is not as Connect needs it.
        TransportError: the brokers did not answer in time.
    """
    admin = _admin(worker, warn, sleep)
    admin.cluster()
    ensure_topics(admin, internal_topics(worker), warn=warn)
    # If they are just starting there are more of them by now.
    found, count = admin.cluster()
    return Reached(found, count, _identity(admin, config_topic(worker), found))


def reach_cluster(
    worker: Properties, *, warn: Warn, sleep: Callable[[float], object] = time.sleep
) -> Reached:
    """As `prepare_internal_topics`, for a worker without topics of its own."""
    return Reached(*_admin(worker, warn, sleep).cluster(), "")


def _admin(worker: Properties, warn: Warn, sleep: Callable[[float], object]) -> Admin:
    settings = worker_client_settings(
        worker, "admin", client_id=f"{client_id_base(worker)}shared-admin"
    )
    timeout_ms = number(worker, "default.api.timeout.ms", API_TIMEOUT_MS)
    return Admin(settings, timeout_ms=timeout_ms, warn=warn, sleep=sleep)


def ensure_topics(admin: Admin, topics: Sequence[InternalTopic], *, warn: Warn) -> None:
    """Create what is absent, check what is there.

    Raises:
        TopicRefusedError: wrong clean-up policy or partitions, not allowed, not possible.
        TransportError: the brokers did not answer in time.
    """
    for topic in topics:
        created = _create(admin, topic)
        if not created:
            _check_policy(admin, topic, warn)
        if topic.key == "config.storage.topic":
            _check_single_partition(admin, topic)


def _create(admin: Admin, topic: InternalTopic) -> bool:
    """Whether it was made just now."""
    # Whether it is there is asked first: brokers that forbid the creation, or are too few for the
    # replication factor, refuse also what need not be created.
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
        if code == KafkaError.TOPIC_ALREADY_EXISTS:  # another worker was faster, perhaps just now
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
    """A new topic takes the brokers a moment: until then its offsets cannot be asked for."""

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
    """None: it is not there."""
    described = _description(admin, topic)
    return None if described is None else len(described.partitions)


def _identity(admin: Admin, topic: InternalTopic, cluster_id: str) -> str:
    described = _description(admin, topic, awaited=True)
    topic_id = _NO_ID if described is None else str(described.topic_id)
    if topic_id == _NO_ID:
        return ""
    # Workers compare it: it is a part of the protocol, and stays as it is from release to release.
    written = topic_id.translate(str.maketrans("+/", "-_"))  # as Kafka's own tools write it
    return f"'{topic.name}' (id {written}, Kafka cluster {cluster_id})"


def _description(
    admin: Admin, topic: InternalTopic, *, awaited: bool = False
) -> TopicDescription | None:
    """None: it is not there. `awaited`: it was made, perhaps just now, and brokers may not know."""

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
