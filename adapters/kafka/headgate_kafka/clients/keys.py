"""The keys of Java's Kafka clients (4.3.1) and their names in librdkafka.

There are three kinds. librdkafka has the key, by the same or another name (`RENAMED`). Or code
translates it, in `clients.settings` and `login.security` (`TRANSLATED`, `SECURITY`). Or it is for
the JVM or Java's client alone (`JAVA_ONLY`). Settings of librdkafka without a Java equivalent
(`NATIVE`) are passed on as well, for tuning.
"""

COMMON = {
    "bootstrap.servers": "bootstrap.servers",
    "client.id": "client.id",
    "client.rack": "client.rack",
    "client.dns.lookup": "client.dns.lookup",
    "connections.max.idle.ms": "connections.max.idle.ms",
    "enable.metrics.push": "enable.metrics.push",
    "metadata.max.age.ms": "metadata.max.age.ms",
    "metadata.recovery.strategy": "metadata.recovery.strategy",
    "metadata.recovery.rebootstrap.trigger.ms": "metadata.recovery.rebootstrap.trigger.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "reconnect.backoff.ms": "reconnect.backoff.ms",
    "reconnect.backoff.max.ms": "reconnect.backoff.max.ms",
    "request.timeout.ms": "socket.timeout.ms",
    "retry.backoff.ms": "retry.backoff.ms",
    "retry.backoff.max.ms": "retry.backoff.max.ms",
    "socket.connection.setup.timeout.ms": "socket.connection.setup.timeout.ms",
}
PRODUCER = {
    "acks": "acks",
    "batch.size": "batch.size",
    "compression.type": "compression.type",
    "delivery.timeout.ms": "delivery.timeout.ms",
    "enable.idempotence": "enable.idempotence",
    "linger.ms": "linger.ms",
    "max.in.flight.requests.per.connection": "max.in.flight.requests.per.connection",
    "max.request.size": "message.max.bytes",
    "retries": "retries",
    "transaction.timeout.ms": "transaction.timeout.ms",
    "transactional.id": "transactional.id",
}
CONSUMER = {
    "allow.auto.create.topics": "allow.auto.create.topics",
    "auto.commit.interval.ms": "auto.commit.interval.ms",
    "auto.offset.reset": "auto.offset.reset",
    "check.crcs": "check.crcs",
    "enable.auto.commit": "enable.auto.commit",
    "fetch.max.bytes": "fetch.max.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "fetch.min.bytes": "fetch.min.bytes",
    "group.id": "group.id",
    "group.instance.id": "group.instance.id",
    "group.protocol": "group.protocol",
    "group.remote.assignor": "group.remote.assignor",
    "heartbeat.interval.ms": "heartbeat.interval.ms",
    "isolation.level": "isolation.level",
    "max.partition.fetch.bytes": "max.partition.fetch.bytes",
    "max.poll.interval.ms": "max.poll.interval.ms",
    "session.timeout.ms": "session.timeout.ms",
}
RENAMED = {
    "producer": {**COMMON, **PRODUCER},
    "consumer": {**COMMON, **CONSUMER},
    "admin": COMMON,
}
"""librdkafka's name by Java's name, for each role of a client."""

SECURITY = frozenset(
    {
        *("security.protocol", "sasl.mechanism", "sasl.jaas.config"),
        *("sasl.kerberos.service.name", "sasl.kerberos.min.time.before.relogin"),
        *("sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.scope"),
        *("sasl.oauthbearer.client.credentials.client.secret",),
        *("sasl.oauthbearer.token.endpoint.url", "ssl.endpoint.identification.algorithm"),
        *("ssl.key.password", "ssl.keystore.certificate.chain", "ssl.keystore.key"),
        *("ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.type"),
        *("ssl.truststore.certificates", "ssl.truststore.location"),
        *("ssl.truststore.password", "ssl.truststore.type"),
    }
)
TRANSLATED = {
    "producer": frozenset(
        {"compression.gzip.level", "compression.lz4.level", "compression.zstd.level"}
    ),
    # `headgate.connector.sink_names` decides which topics a pattern means, and
    # `headgate_kafka.records.consumer` how many records a poll gives at most.
    "consumer": frozenset(
        {"exclude.internal.topics", "max.poll.records", "partition.assignment.strategy"}
    ),
    "admin": frozenset[str](),
}
OURS = frozenset({"default.api.timeout.ms"})
"""Keys that this adapter itself reads, and that are not for librdkafka."""
NATIVE = frozenset(
    {
        *("batch.num.messages", "debug", "enable.sparse.connections", "fetch.error.backoff.ms"),
        *("fetch.queue.backoff.ms", "log_level"),
        *("queue.buffering.max.kbytes", "queue.buffering.max.messages"),
        *("queued.max.messages.kbytes", "queued.min.messages", "socket.keepalive.enable"),
        *("socket.nagle.disable", "statistics.interval.ms", "sticky.partitioning.linger.ms"),
    }
)

_JAVA_COMMON = frozenset(
    {
        *("auto.include.jmx.reporter", "config.providers"),
        *("interceptor.classes", "metadata.max.idle.ms", "metric.reporters"),
        *("metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms"),
        *("socket.connection.setup.timeout.max.ms", "security.providers"),
        *("sasl.client.callback.handler.class", "sasl.kerberos.kinit.cmd"),
        *("sasl.kerberos.ticket.renew.jitter", "sasl.kerberos.ticket.renew.window.factor"),
        *("sasl.login.callback.handler.class", "sasl.login.class"),
        *("sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms"),
        *("sasl.login.refresh.buffer.seconds", "sasl.login.refresh.min.period.seconds"),
        *("sasl.login.refresh.window.factor", "sasl.login.refresh.window.jitter"),
        *("sasl.login.retry.backoff.max.ms", "sasl.login.retry.backoff.ms"),
        *("sasl.oauthbearer.assertion.algorithm", "sasl.oauthbearer.assertion.claim.aud"),
        *("sasl.oauthbearer.assertion.claim.exp.seconds", "sasl.oauthbearer.assertion.claim.iss"),
        *("sasl.oauthbearer.assertion.claim.jti.include", "sasl.oauthbearer.assertion.claim.sub"),
        *("sasl.oauthbearer.assertion.claim.nbf.seconds", "sasl.oauthbearer.assertion.file"),
        *("sasl.oauthbearer.assertion.private.key.file", "sasl.oauthbearer.jwt.retriever.class"),
        *("sasl.oauthbearer.assertion.private.key.passphrase",),
        *("sasl.oauthbearer.assertion.template.file", "sasl.oauthbearer.clock.skew.seconds"),
        *("sasl.oauthbearer.expected.audience", "sasl.oauthbearer.expected.issuer"),
        *("sasl.oauthbearer.header.urlencode", "sasl.oauthbearer.jwks.endpoint.refresh.ms"),
        *("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",),
        *("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "sasl.oauthbearer.jwks.endpoint.url"),
        *("sasl.oauthbearer.jwt.validator.class", "sasl.oauthbearer.scope.claim.name"),
        *("sasl.oauthbearer.sub.claim.name", "ssl.cipher.suites", "ssl.enabled.protocols"),
        *("ssl.engine.factory.class", "ssl.keymanager.algorithm", "ssl.protocol", "ssl.provider"),
        *("ssl.secure.random.implementation", "ssl.trustmanager.algorithm"),
    }
)
JAVA_ONLY = {
    "producer": _JAVA_COMMON
    | {
        *("buffer.memory", "key.serializer", "max.block.ms", "partitioner.class"),
        *("partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms"),
        *("partitioner.ignore.keys", "transaction.two.phase.commit.enable", "value.serializer"),
    },
    "consumer": _JAVA_COMMON
    | {
        *("internal.throw.on.fetch.stable.offset.unsupported",),
        *("key.deserializer", "value.deserializer"),
        *("share.acknowledgement.mode", "share.acquire.mode"),
    },
    "admin": _JAVA_COMMON | {"bootstrap.controllers", "retries"},
}
"""Keys of Java's clients that have no meaning here. They are dropped, and named in a warning."""

SECRET = frozenset(
    {
        *("sasl.jaas.config", "sasl.oauthbearer.client.credentials.client.secret"),
        *("sasl.oauthbearer.assertion.private.key.passphrase", "ssl.key.password"),
        *("ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.keystore.password"),
        *("ssl.truststore.certificates", "ssl.truststore.password"),
    }
)
"""Keys whose values no log, error or response may show (Java's type PASSWORD)."""

CHOICES = {
    "acks": ("all", "-1", "0", "1"),
    "allow.auto.create.topics": ("true", "false"),
    "check.crcs": ("true", "false"),
    "client.dns.lookup": ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    "compression.type": ("none", "gzip", "snappy", "lz4", "zstd"),
    "enable.auto.commit": ("true", "false"),
    "enable.idempotence": ("true", "false"),
    "enable.metrics.push": ("true", "false"),
    "group.protocol": ("classic", "consumer"),
    "isolation.level": ("read_uncommitted", "read_committed"),
    "metadata.recovery.strategy": ("none", "rebootstrap"),
}
"""Java's values by key. librdkafka accepts all of them too, also in upper case, as Java does for
some keys."""

LIMITS = {
    "auto.commit.interval.ms": (0, 86_400_000),
    "batch.size": (1, 2_147_483_647),
    "connections.max.idle.ms": (0, 2_147_483_647),
    "delivery.timeout.ms": (0, 2_147_483_647),
    "fetch.max.bytes": (1_000, 2_147_483_135),
    "fetch.wait.max.ms": (0, 300_000),
    "fetch.min.bytes": (1, 100_000_000),
    "heartbeat.interval.ms": (1, 3_600_000),
    "linger.ms": (0, 900_000),
    "max.in.flight.requests.per.connection": (1, 1_000_000),
    "max.partition.fetch.bytes": (1, 1_000_000_000),
    "max.poll.interval.ms": (1, 86_400_000),
    "message.max.bytes": (1_000, 1_000_000_000),
    "metadata.max.age.ms": (1, 86_400_000),
    "metadata.recovery.rebootstrap.trigger.ms": (0, 2_147_483_647),
    "reconnect.backoff.max.ms": (0, 3_600_000),
    "reconnect.backoff.ms": (0, 3_600_000),
    "retries": (0, 2_147_483_647),
    "retry.backoff.max.ms": (1, 300_000),
    "retry.backoff.ms": (1, 300_000),
    "session.timeout.ms": (1, 3_600_000),
    "socket.connection.setup.timeout.ms": (1_000, 2_147_483_647),
    "socket.receive.buffer.bytes": (0, 100_000_000),
    "socket.send.buffer.bytes": (0, 100_000_000),
    "socket.timeout.ms": (10, 300_000),
    "transaction.timeout.ms": (1_000, 2_147_483_647),
}
"""librdkafka's (least, greatest) value by its name of a setting, where Java allows more. A value
outside is replaced by the nearer end of the range. What librdkafka requires of two settings
together is in `clients.settings`."""

COMPRESSION_LEVELS = {"gzip": (-1, 9), "lz4": (1, 12), "zstd": (1, 12)}
"""librdkafka's (least, greatest) level by compression type. A level outside is replaced by the
nearer end. Java's levels go up to 17 for lz4, and from -131072, the fastest, to 22 for zstd. A
level of 0 is passed on, since for zstd it means the default. librdkafka and gzip write the default
as -1."""
