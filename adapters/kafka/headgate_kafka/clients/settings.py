"""Translation of a worker's and a connector's properties, which are those of Java's clients, into
librdkafka's settings and kafka-python's arguments.

Each client gets the properties that Connect gives it (Worker.baseProducerConfigs,
baseConsumerConfigs, adminConfigs). Clients of the internal topics get the worker's properties
without a prefix. Clients of connectors get the worker's with the prefix ``producer.``,
``consumer.`` or ``admin.``, and over them the connector's with ``producer.override.`` and so on. A
connector's producers and consumers do not inherit the worker's own security settings. Admin clients
do.

Keys that only the JVM understands are dropped. `java_only` names them, for one warning at the
start. Passwords appear in no message.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from headgate_kafka.clients.keys import (
    CHOICES,
    COMPRESSION_LEVELS,
    JAVA_ONLY,
    LIMITS,
    NATIVE,
    OURS,
    RENAMED,
    SECURITY,
    TRANSLATED,
)
from headgate_kafka.clients.trial import refusal
from headgate_kafka.login.security import ClientSettingsError as ClientSettingsError
from headgate_kafka.login.security import Properties as Properties
from headgate_kafka.login.security import security

Role: TypeAlias = Literal["producer", "consumer", "admin"]
Warn: TypeAlias = Callable[[str], None]

ROLES: tuple[Role, ...] = ("producer", "consumer", "admin")
INT_MAX = "2147483647"
TRANSACTION_TIMEOUT_MS = 60_000
"""Java's and librdkafka's default."""
SOCKET_MS = 60_000
MESSAGE_BYTES = 1_000_000
POLL_INTERVAL_MS = 300_000
SESSION_MS = 45_000
"""librdkafka's defaults, with which it compares other settings."""
RECONNECT_MS = 20
"""First pause before reconnecting. Java's default is 50, and librdkafka's is 100. librdkafka
connects to no second broker within half of that time. So each new client, of which a task has
three, would wait 50 ms before it is ready."""
RECONNECT_MS_MAX = 1_000
"""Java's default of ``reconnect.backoff.max.ms``."""
FEW_BROKERS = 3
"""The number of brokers up to which a client connects to all at once. Otherwise it connects to each
when it needs it, and librdkafka waits 11 ms before a second connection, of the 18 ms until a new
producer is initialised. A task of topics with some partitions connects to all three anyway."""
SESSION_MS_MIN = 6_000
"""The brokers' default of ``group.min.session.timeout.ms``."""
ASSIGNORS = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}
_WORKER_MEMBERSHIP = frozenset(
    {"group.id", "group.instance.id", "session.timeout.ms", "heartbeat.interval.ms"}
)
"""Keys that, without a prefix, are about the workers' group and not about a consumer's."""
_WRITERS_OWN = frozenset(
    {
        *("acks", "delivery.timeout.ms", "enable.idempotence", "linger.ms"),
        *("max.in.flight.requests.per.connection", "retries"),
    }
)
"""Keys that producers of internal topics set themselves (`headgate_kafka.logs.writing`)."""
_SMALL_CLUSTER = "headgate.small.cluster.servers"
"""Key for the servers of a cluster with at most `FEW_BROKERS`. A running worker sets it itself, and
it is not used from a file."""
_ADMIN_LISTENERS = "admin.listeners"
"""A key of the REST API, although it has the prefix of an admin client's keys."""


# -- who gets what --


def knowing_cluster(worker: Mapping[str, str], broker_count: int) -> dict[str, str]:
    """Return the worker's properties with a note whether its cluster has few brokers. The number is
    not asked for again while the worker runs."""
    if broker_count > FEW_BROKERS:
        return dict(worker)
    return {**worker, _SMALL_CLUSTER: worker["bootstrap.servers"]}


def worker_client_settings(
    worker: Properties, role: Role, *, client_id: str, forced: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return librdkafka's settings of a client of the internal topics.

    Args:
        worker: the worker's properties, as in its file.
        forced: properties with Java's keys, which override the worker's.

    Raises:
        ClientSettingsError: as the function `librdkafka`. The library itself is not tried here:
            `check_worker_clients` does that once, and processes of tasks need not repeat it.
    """
    return librdkafka({**_worker_properties(worker, role, client_id), **(forced or {})}, role)


def check_worker_clients(worker: Properties, *, in_group: bool) -> None:
    """Check that a worker's own clients can be made, without connecting.

    Args:
        in_group: the worker has internal topics, and a group that it joins with kafka-python.

    Raises:
        ClientSettingsError: one of the clients cannot be made.
    """
    for role in ROLES if in_group else ("admin",):
        checked(_worker_properties(worker, role, ""), role, but=_WRITERS_OWN)
    if in_group:
        worker_kafka_python(worker, client_id="")


def producer_settings(
    worker: Properties,
    connector_config: Properties | None = None,
    *,
    client_id: str,
    transactional_id: str | None = None,
    warn: Warn | None = None,
) -> dict[str, str]:
    """Return librdkafka's settings of the producer of a source task or a dead letter queue.

    With a `transactional_id` the keys that exactly-once needs are forced, and `warn` is called if
    that replaces a user's value.
    """
    base = {
        "acks": "all",
        "max.in.flight.requests.per.connection": "1",
        "delivery.timeout.ms": INT_MAX,
        "client.id": client_id,
    }
    if transactional_id is not None:
        # Differs from Connect: an idempotent producer keeps the order even with several requests in
        # flight.
        del base["max.in.flight.requests.per.connection"]
    properties = base | _connector_properties(worker, connector_config, "producer", warn)
    if transactional_id is not None:
        forced = {"enable.idempotence": "true", "transactional.id": transactional_id}
        _force(properties, forced, warn)
    return checked(properties, "producer") | {"partitioner": "murmur2_random"}


def consumer_settings(
    worker: Properties,
    connector_config: Properties | None = None,
    *,
    client_id: str,
    group_id: str,
    isolation_level: str | None = None,
    warn: Warn | None = None,
) -> dict[str, str]:
    """Return librdkafka's settings of a connector's consumer. The user's ``group.id`` overrides
    `group_id`, as in Connect. An `isolation_level` is forced."""
    base = {"group.id": group_id, "auto.offset.reset": "earliest", "client.id": client_id}
    properties = base | _connector_properties(worker, connector_config, "consumer", warn)
    forced = {"enable.auto.commit": "false"}
    if isolation_level is not None:
        forced["isolation.level"] = isolation_level
    _force(properties, forced, warn)
    return checked(properties, "consumer")


def poll_records(worker: Properties, connector_config: Properties | None) -> int | None:
    """Return ``max.poll.records`` of a connector's consumer, the limit of the records of one `put`.
    None: it is not set.

    Raises:
        ClientSettingsError: it is not a whole number of at least 1.
    """
    return _poll_records(_connector_properties(worker, connector_config, "consumer", None))


def admin_settings(
    worker: Properties,
    connector_config: Properties | None = None,
    *,
    client_id: str,
    warn: Warn | None = None,
) -> dict[str, str]:
    """Return librdkafka's settings of a connector's admin client."""
    return checked(admin_properties(worker, connector_config, client_id, warn), "admin")


def admin_properties(
    worker: Properties,
    connector_config: Properties | None,
    client_id: str,
    warn: Warn | None = None,
) -> dict[str, str]:
    """Return Java's properties of a connector's admin client, for `librdkafka` or
    `kafka_python`."""
    properties = _worker_properties(worker, "admin", client_id)
    return properties | _connector_properties(worker, connector_config, "admin", warn)


def worker_kafka_python(worker: Properties, *, client_id: str) -> dict[str, Any]:
    """Return kafka-python's arguments of the worker's own clients, such as its group member."""
    return kafka_python(_worker_properties(worker, "admin", client_id))


def client_id_base(worker: Properties) -> str:
    """Return the prefix of the worker's client ids. Source: ConnectUtils.clientIdBase."""
    own = (worker.get("client.id") or "").strip()
    return f"{worker.get('group.id') or 'connect'}-" + (f"{own}-" if own else "")


def number(properties: Properties, key: str, default: int) -> int:
    """Return the whole number in a property, or `default` if the property is not given.

    Raises:
        ClientSettingsError: the value is not a whole number.
    """
    found = _number(key, properties.get(key))
    return default if found is None else found


def java_only(worker: Properties) -> list[str]:
    """Return the worker's keys, with their prefixes, that have no effect on its clients, sorted."""
    dropped = {key for role in ROLES for key in JAVA_ONLY[role]} - understood_keys()
    found = [key for key in worker if key in dropped]
    for role in ROLES:
        found += [
            key
            for key in worker
            if key.startswith(f"{role}.")
            and not key.startswith(_ADMIN_LISTENERS)
            and not _understood(key.removeprefix(f"{role}."), role)
        ]
    return sorted(found)


def understood_keys() -> set[str]:
    """Return Java's keys, without prefixes, that have an effect on a client of some role."""
    return {key for role in ROLES for key in (*RENAMED[role], *TRANSLATED[role], *SECURITY)}


def secures(key: str) -> bool:
    """Return whether a key is about logins or certificates. These keys can only be checked
    together."""
    return key in SECURITY


def understood(key: str) -> bool:
    """Return whether an unprefixed key has an effect on one of the worker's own clients."""
    return key not in _WORKER_MEMBERSHIP and any(_understood(key, role) for role in ROLES)


def _worker_properties(worker: Properties, role: Role, client_id: str) -> dict[str, str]:
    """Return the worker's unprefixed properties that a client of this role understands."""
    found = {
        key: value
        for key, value in worker.items()
        if value is not None and _understood(key, role) and key not in _WORKER_MEMBERSHIP
    }
    return found | _small_cluster(worker) | {"client.id": client_id}


def _connector_properties(
    worker: Properties, connector_config: Properties | None, role: Role, warn: Warn | None
) -> dict[str, str]:
    found = {"bootstrap.servers": worker.get("bootstrap.servers") or "localhost:9092"}
    found |= _small_cluster(worker) | _with_prefix(worker, f"{role}.")
    overrides = _with_prefix(connector_config or {}, f"{role}.override.")
    unknown = sorted(key for key in overrides if not _understood(key, role))
    if unknown and warn is not None:
        names = ", ".join(f"{role}.override.{key}" for key in unknown)
        warn(f"not used here, they are for Java's client alone or not known: {names}")
    return found | overrides


def _small_cluster(worker: Properties) -> dict[str, str]:
    servers = worker.get(_SMALL_CLUSTER)
    return {} if servers is None else {_SMALL_CLUSTER: servers}


def _with_prefix(properties: Properties, prefix: str) -> dict[str, str]:
    return {
        key.removeprefix(prefix): value
        for key, value in properties.items()
        if key.startswith(prefix) and value is not None and key != f"{prefix}{_SMALL_CLUSTER}"
    }


def _force(properties: dict[str, str], forced: Mapping[str, str], warn: Warn | None) -> None:
    for key, value in forced.items():
        given = properties.get(key)
        if given is not None and given.strip().lower() != value.lower() and warn is not None:
            warn(f"{key} is {value} here; the value given for it, {given}, is not used")
        properties[key] = value


# -- librdkafka --


def librdkafka(properties: Properties, role: Role) -> dict[str, str]:
    """Translate Java's properties of one client into librdkafka's settings. Properties without an
    equivalent are left out.

    Raises:
        ClientSettingsError: a value cannot be translated.
    """
    renamed = RENAMED[role]
    settings: dict[str, str] = {}
    for key, value in properties.items():
        if value is None:
            continue
        if key in renamed:
            settings[renamed[key]] = _limited(key, renamed[key], value)
        elif key in NATIVE:
            settings[key] = value.strip()
    if role == "producer":
        settings |= _compression_level(properties)
        if "transactional.id" in settings:
            settings |= within_transaction(settings)
    if role == "consumer":
        _poll_records(properties)
        settings |= _consumer_words(properties)
        settings |= _fetching(settings) | _membership(settings)
    settings = _at_once(properties) | settings | _reconnecting(settings)
    return settings | security(properties).librdkafka()


def checked(
    properties: Properties, role: Role, *, but: frozenset[str] = frozenset()
) -> dict[str, str]:
    """As `librdkafka`, and also try whether librdkafka accepts the settings (`trial.refusal`).

    Args:
        but: keys that are not tried, because their values are replaced later.

    Raises:
        ClientSettingsError: librdkafka refuses them. If it refuses a combination, the error names
            one key of it.
    """
    settings = librdkafka(properties, role)
    asked = {
        key: value
        for key, value in properties.items()
        if value is not None and key not in but and not secures(key)
    }
    if words := refusal(librdkafka(asked, role), role):
        raise _blamed(asked, role, words)
    return settings


def _blamed(properties: Mapping[str, str], role: Role, words: str) -> ClientSettingsError:
    for key, value in properties.items():
        if alone := refusal(librdkafka({key: value}, role), role):
            return ClientSettingsError(key, f"{value!r} is refused by librdkafka: {alone}")
    for key, value in properties.items():
        others = {other: properties[other] for other in properties if other != key}
        if not refusal(librdkafka(others, role), role):
            return ClientSettingsError(key, f"{value!r} does not go with the others: {words}")
    return ClientSettingsError(f"settings of the {role}", f"refused by librdkafka: {words}")


# Combinations of settings that librdkafka refuses and Java's clients accept.


def within_transaction(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the changes to librdkafka's settings that a transactional producer needs.

    No timeout may exceed ``transaction.timeout.ms``, and ``linger.ms`` must be below it.

    By default librdkafka makes ``socket.timeout.ms`` as long as a transaction. Beyond 35 minutes
    that value overflows in microseconds, and librdkafka gives requests up before it has sent them.
    So the default is set instead.
    """
    limit = int(settings.get("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS))
    timeouts = ("socket.timeout.ms", "delivery.timeout.ms", "message.timeout.ms")
    changed = {key: str(limit) for key in timeouts if int(settings.get(key, 0)) > limit}
    if limit > SOCKET_MS and "socket.timeout.ms" not in settings:
        changed["socket.timeout.ms"] = str(SOCKET_MS)
    if int(settings.get("linger.ms", 0)) >= limit:
        changed["linger.ms"] = str(limit - 1)
    return changed


def _fetching(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the ``message.max.bytes`` that a consumer with a small ``fetch.max.bytes`` needs.

    A consumer sends no messages, but librdkafka compares the two settings. A larger record is
    fetched nevertheless.
    """
    fetched = int(settings.get("fetch.max.bytes", MESSAGE_BYTES))
    return {"message.max.bytes": str(fetched)} if fetched < MESSAGE_BYTES else {}


def _membership(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the changes that a consumer needs whose ``max.poll.interval.ms`` is below its session
    timeout, which librdkafka refuses.

    The session timeout is shortened. A member that is silent for that long has not polled either,
    so this removes no other members from the group.
    """
    poll = int(settings.get("max.poll.interval.ms", POLL_INTERVAL_MS))
    session = int(settings.get("session.timeout.ms", SESSION_MS))
    if poll >= session or settings.get("group.protocol", "").lower() == "consumer":
        return {}
    # Brokers accept no session timeout below `SESSION_MS_MIN`.
    session = max(poll, min(session, SESSION_MS_MIN))
    found = {"session.timeout.ms": str(session), "max.poll.interval.ms": str(session)}
    if int(settings.get("heartbeat.interval.ms", "0")) > session // 3:
        found["heartbeat.interval.ms"] = str(max(1, session // 3))
    return found


def _at_once(properties: Properties) -> dict[str, str]:
    """Have a client connect to all brokers at once, if its servers are those of the small cluster.
    A connector may override the servers, and its cluster may be large."""
    servers = properties.get(_SMALL_CLUSTER)
    small = servers is not None and servers == properties.get("bootstrap.servers")
    return {"enable.sparse.connections": "false"} if small else {}


def _reconnecting(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the first and the longest pause before reconnecting.

    As in Java, the first pause is the smaller of the two settings. If only the first is given the
    pause does not grow. Source: CommonClientConfigs.postProcessReconnectBackoffConfigs.
    """
    first = int(settings.get("reconnect.backoff.ms", RECONNECT_MS))
    only = first if "reconnect.backoff.ms" in settings else RECONNECT_MS_MAX
    longest = int(settings.get("reconnect.backoff.max.ms", only))
    return {
        "reconnect.backoff.ms": str(min(first, longest)),
        "reconnect.backoff.max.ms": str(longest),
    }


def _understood(key: str, role: Role) -> bool:
    return any(key in known for known in (RENAMED[role], SECURITY, TRANSLATED[role], NATIVE, OURS))


def _limited(key: str, name: str, value: str) -> str:
    text = value.strip()
    if key in CHOICES and text.lower() not in CHOICES[key]:
        raise ClientSettingsError(key, f"{text!r} is none of {', '.join(CHOICES[key])}")
    if name not in LIMITS:
        return text
    number = _number(key, text)
    low, high = LIMITS[name]
    return str(max(low, min(high, low if number is None else number)))


def _number(key: str, value: str | None) -> int | None:
    if value is None:
        return None
    try:
        return int(value.strip())
    except ValueError:
        raise ClientSettingsError(key, f"{value!r} is not a whole number") from None


def _poll_records(properties: Properties) -> int | None:
    key = "max.poll.records"
    found = _number(key, properties.get(key))
    if found is not None and found < 1:
        raise ClientSettingsError(key, f"{found} is less than 1")
    return found


def _compression_level(properties: Properties) -> dict[str, str]:
    kind = (properties.get("compression.type") or "none").strip().lower()
    key = f"compression.{kind}.level"
    level = _number(key, properties.get(key))
    if level is None or kind not in COMPRESSION_LEVELS:
        return {}
    low, high = COMPRESSION_LEVELS[kind]
    return {"compression.level": str(max(low, min(high, level)) if level else 0)}


def _consumer_words(properties: Properties) -> dict[str, str]:
    settings = {}
    group = properties.get("group.id")
    if group is not None and not group.strip():
        # A client with an empty group ends the process. Seen with confluent-kafka 2.16.0.
        raise ClientSettingsError("group.id", "is empty; expected the name of a group")
    reset = (properties.get("auto.offset.reset") or "").strip().lower()
    if reset == "none":
        settings["auto.offset.reset"] = "error"
    elif reset not in ("", "earliest", "latest"):
        raise ClientSettingsError(
            "auto.offset.reset", f"{reset!r} is none of earliest, latest, none"
        )
    strategy = properties.get("partition.assignment.strategy")
    if strategy is not None:
        settings["partition.assignment.strategy"] = _assignor(strategy)
    return settings


def _assignor(strategy: str) -> str:
    """Return librdkafka's name of the first assignor that it knows. Only one is returned, because
    librdkafka refuses a mixture of eager and cooperative assignors."""
    for name in strategy.split(","):
        if (known := ASSIGNORS.get(name.strip(), name.strip())) in ASSIGNORS.values():
            return known
    raise ClientSettingsError(
        "partition.assignment.strategy",
        f"{strategy!r}; what there is here: {', '.join(ASSIGNORS)}",
    )


# -- kafka-python --


def kafka_python(properties: Properties) -> dict[str, Any]:
    """Translate Java's properties of one client into kafka-python's arguments.

    Raises:
        ClientSettingsError: a value cannot be translated.
    """
    servers = properties.get("bootstrap.servers") or "localhost:9092"
    settings: dict[str, Any] = {
        "bootstrap_servers": [server.strip() for server in servers.split(",") if server.strip()]
    }
    if properties.get("client.id"):
        settings["client_id"] = properties["client.id"]
    for key in (
        *("request.timeout.ms", "retry.backoff.ms", "reconnect.backoff.ms", "metadata.max.age.ms"),
        *("reconnect.backoff.max.ms", "connections.max.idle.ms"),
        *("receive.buffer.bytes", "send.buffer.bytes"),
    ):
        number = _number(key, properties.get(key))
        if number is not None and number >= 0:
            settings[key.replace(".", "_")] = number
    return settings | security(properties).kafka_python()
