"""The rights of a worker on a broker with ACLs."""

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from local_kafka.broker import Broker

USER, PASSWORD = "connect", "connect-secret"
TOPICS = {"config": "configs", "offset": "offsets", "status": "statuses"}

RIGHTS = [
    (ResourceType.GROUP, "workers", AclOperation.READ),
    *((ResourceType.TOPIC, name, AclOperation.READ) for name in TOPICS.values()),
    *((ResourceType.TOPIC, name, AclOperation.WRITE) for name in TOPICS.values()),
    *((ResourceType.TOPIC, name, AclOperation.DESCRIBE_CONFIGS) for name in TOPICS.values()),
    (ResourceType.TOPIC, "lines", AclOperation.WRITE),
    (ResourceType.TRANSACTIONAL_ID, "connect-cluster-workers", AclOperation.WRITE),
    (ResourceType.TRANSACTIONAL_ID, "workers-src-0", AclOperation.WRITE),
]


def allow(
    admin: AdminClient, *rights: tuple[ResourceType, str, AclOperation], user: str = USER
) -> None:
    bindings = [
        AclBinding(
            kind,
            name,
            ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            operation,
            AclPermissionType.ALLOW,
        )
        for kind, name, operation in rights
    ]
    for future in admin.create_acls(bindings).values():
        future.result(15)


def make_topics(admin: AdminClient, config_partitions: int = 1) -> None:
    new = [
        NewTopic(name, count, 1, config={"cleanup.policy": policy})
        for name, count, policy in (
            ("configs", config_partitions, "compact"),
            ("offsets", 2, "compact"),
            ("statuses", 2, "compact"),
            ("lines", 1, "delete"),
        )
    ]
    for future in admin.create_topics(new).values():
        future.result(15)


def properties(address: str, **changes: str) -> dict[str, str]:
    return {
        "bootstrap.servers": address,
        "group.id": "workers",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        **{f"{kind}.storage.topic": name for kind, name in TOPICS.items()},
        "exactly.once.source.support": "enabled",
        "headgate.task.runner": "process",
        "listeners": "http://127.0.0.1:0",
        **changes,
    }


def security_of(user: str, password: str) -> dict[str, str]:
    """Return Java's client properties for this login."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'username="{user}" password="{password}";'
        ),
    }


def with_login(broker: Broker) -> dict[str, str]:
    security = security_of(USER, PASSWORD)
    clients = {f"{p}.{k}": v for p in ("producer", "consumer") for k, v in security.items()}
    return properties(broker.sasl_address, **security, **clients)


def forbid(admin: AdminClient, kind: ResourceType, name: str) -> None:
    """Remove all rights of the user on one resource."""
    found = AclBindingFilter(
        kind,
        name,
        ResourcePatternType.LITERAL,
        f"User:{USER}",
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    for future in admin.delete_acls([found]).values():
        future.result(15)
