"""Settings of a worker: Connect's keys with Connect's defaults, and ours under ``headgate.``.

One table, `KEYS`, serves the three places where they are given: the pipeline file of ``headgate
up`` (`PIPELINE`), and the properties files of ``headgate worker`` (`DISTRIBUTED`) and ``headgate
standalone`` (`STANDALONE`). Keys are strings as in a properties file. `WorkerSettings.parse` checks
them all and reports all errors at once. `worker_file` checks a properties file as a whole.
"""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headgate.connector.converters import CONVERTERS, HEADER_CONVERTERS
from headgate_runtime.config import parsers
from headgate_runtime.config.rest_limits import REST_LIMITS, REST_SWITCHES

PIPELINE = "pipeline"
DISTRIBUTED = "distributed"
STANDALONE = "standalone"
EVERYWHERE = frozenset({PIPELINE, DISTRIBUTED, STANDALONE})
ON_KAFKA = frozenset({DISTRIBUTED, STANDALONE})
IN_GROUP = frozenset({PIPELINE, DISTRIBUTED})
TASKS_PER_PROCESS = "headgate.tasks.per.process"


class SettingsError(Exception):
    """Settings are wrong. `problems` has one line for each wrong key."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        super().__init__("\n".join(f"{key}: {text}" for key, text in problems.items()))
        self.problems = dict(problems)


@dataclass(frozen=True, slots=True)
class Key:
    """One setting: its parser (ValueError says why not), its default, its description, and the
    files in which it may be given."""

    parse: Callable[[str], Any]
    default: str
    doc: str
    files: frozenset[str] = EVERYWHERE
    required: frozenset[str] = frozenset()
    """Files in which it has no default and must be given."""


STRING_CONVERTER = "org.apache.kafka.connect.storage.StringConverter"
HEADER_CONVERTER = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
_DISTRIBUTED = frozenset({DISTRIBUTED})
_TOPIC_KEYS = ("config.storage.topic", "offset.storage.topic", "status.storage.topic")
_BROKERS_OWN = "-1 takes the broker's default."


def _replicas(topic: str) -> Key:
    """Return the key of the replication factor with which a worker creates an internal topic."""
    doc = f"Replication factor of the {topic} topic, if the worker creates it. {_BROKERS_OWN}"
    return Key(parsers.count(parsers.SHORT_MAX), "3", doc, _DISTRIBUTED)


def _partitions(topic: str, default: str) -> Key:
    """Return the key of the number of partitions with which a worker creates an internal topic."""
    doc = f"Number of partitions of the {topic} topic, if the worker creates it. {_BROKERS_OWN}"
    return Key(parsers.count(), default, doc, _DISTRIBUTED)


KEYS: dict[str, Key] = {
    "bootstrap.servers": Key(
        parsers.brokers,
        "",
        "Brokers to connect to first: `host:port` pairs, separated by commas. The worker finds "
        "the rest of the cluster through them.",
        ON_KAFKA,
        ON_KAFKA,
    ),
    "group.id": Key(
        parsers.name,
        "headgate",
        "Id of the Connect group. All workers with this id share the work. Transactional ids "
        "contain it.",
        IN_GROUP,
        _DISTRIBUTED,
    ),
    "client.id": Key(
        parsers.text,
        "",
        "Name of this worker within the client ids of its Kafka clients.",
        EVERYWHERE,
    ),
    "key.converter": Key(
        parsers.class_of(CONVERTERS),
        STRING_CONVERTER,
        "Converter of record keys, for connectors that set none.",
        required=ON_KAFKA,
    ),
    "value.converter": Key(
        parsers.class_of(CONVERTERS),
        STRING_CONVERTER,
        "Converter of record values, for connectors that set none.",
        required=ON_KAFKA,
    ),
    "header.converter": Key(
        parsers.class_of(HEADER_CONVERTERS),
        HEADER_CONVERTER,
        "Converter of record headers, for connectors that set none.",
    ),
    "config.storage.topic": Key(
        parsers.name,
        "",
        "Topic that stores connector configs, task configs and target states. All workers of a "
        "group name the same one.",
        _DISTRIBUTED,
        _DISTRIBUTED,
    ),
    "config.storage.replication.factor": _replicas("config"),
    "offset.storage.topic": Key(
        parsers.name,
        "connect-offsets",
        "Topic that stores the source offsets of connectors. All workers of a group name the "
        "same one.",
        IN_GROUP,
        _DISTRIBUTED,
    ),
    "offset.storage.partitions": _partitions("offsets", "25"),
    "offset.storage.replication.factor": _replicas("offsets"),
    "offset.storage.file.filename": Key(
        parsers.name,
        "",
        "File in which a standalone worker stores source offsets.",
        frozenset({STANDALONE}),
        frozenset({STANDALONE}),
    ),
    "status.storage.topic": Key(
        parsers.name,
        "",
        "Topic that stores the statuses of connectors and tasks. All workers of a group name the "
        "same one.",
        _DISTRIBUTED,
        _DISTRIBUTED,
    ),
    "status.storage.partitions": _partitions("status", "5"),
    "status.storage.replication.factor": _replicas("status"),
    "session.timeout.ms": Key(
        parsers.number(100),
        "10000",
        "A worker that sends no heartbeat for this long is removed from the group.",
        IN_GROUP,
    ),
    "heartbeat.interval.ms": Key(
        parsers.number(10),
        "3000",
        "Time between two heartbeats to the group coordinator. It must be less than "
        "`session.timeout.ms`.",
        IN_GROUP,
    ),
    "rebalance.timeout.ms": Key(
        parsers.number(100),
        "60000",
        "Longest time that a rebalance waits for a worker to rejoin. A worker that takes longer "
        "is removed from the group.",
        IN_GROUP,
    ),
    "worker.sync.timeout.ms": Key(
        parsers.number(1),
        "3000",
        "Longest time that a worker may take to read the config topic to its end. After it the "
        "worker stops its work, leaves the group and tries again.",
        IN_GROUP,
    ),
    "scheduled.rebalance.max.delay.ms": Key(
        parsers.number(0),
        "300000",
        "Longest time that the work of a lost worker stays unassigned, in case the worker comes "
        "back.",
        IN_GROUP,
    ),
    "connect.protocol": Key(
        parsers.protocol,
        "sessioned",
        "Newest of Connect's group protocols that the worker offers: `eager`, `compatible` or "
        "`sessioned`.",
        _DISTRIBUTED,
    ),
    "exactly.once.source.support": Key(
        parsers.one_of(*parsers.EXACTLY_ONCE),
        "disabled",
        "Exactly-once delivery by source connectors (KIP-618): `disabled`, `preparing` or "
        "`enabled`.",
        IN_GROUP,
    ),
    "inter.worker.key.generation.algorithm": Key(
        parsers.one_of(*parsers.MACS),
        "HmacSHA256",
        "Algorithm that generates the session key. Workers sign internal requests with that key.",
        _DISTRIBUTED,
    ),
    "inter.worker.key.size": Key(
        parsers.number_or_none(8),
        "",
        "Size of the session key in bits. If it is empty, the algorithm's default is used.",
        _DISTRIBUTED,
    ),
    "inter.worker.key.ttl.ms": Key(
        parsers.number(0),
        "3600000",
        "Time after which the leader replaces the session key. 0 keeps one key for ever.",
        _DISTRIBUTED,
    ),
    "inter.worker.signature.algorithm": Key(
        parsers.one_of(*parsers.MACS),
        "HmacSHA256",
        "Algorithm with which this worker signs its internal requests.",
        _DISTRIBUTED,
    ),
    "inter.worker.verification.algorithms": Key(
        parsers.macs,
        "HmacSHA256",
        "Signature algorithms that this worker accepts in internal requests. The list must "
        "contain `inter.worker.signature.algorithm`.",
        _DISTRIBUTED,
    ),
    "offset.flush.interval.ms": Key(
        parsers.number(1, parsers.LONG_MAX),
        "60000",
        "Time between two commits of a task's offsets, where they are not part of a transaction.",
    ),
    "task.shutdown.graceful.timeout.ms": Key(
        parsers.number(0, parsers.LONG_MAX),
        "5000",
        "Time that a task has to stop. After it the task is killed.",
    ),
    "topic.creation.enable": Key(
        parsers.boolean,
        "true",
        "Whether workers create the missing topics that source connectors write to.",
    ),
    "topic.tracking.enable": Key(
        parsers.boolean,
        "true",
        "Whether workers record which topics each connector uses.",
        ON_KAFKA,
    ),
    "topic.tracking.allow.reset": Key(
        parsers.boolean, "true", "Whether users may reset the record of topics in use.", ON_KAFKA
    ),
    "connector.client.config.override.policy": Key(
        parsers.override_policy,
        "All",
        "Which Kafka client settings a connector's config may override: `All`, `None`, "
        "`Principal` or `Allowlist`.",
        ON_KAFKA,
    ),
    "connector.client.config.override.allowlist": Key(
        parsers.texts,
        "",
        "Client settings that the policy `Allowlist` permits, without prefix, separated by commas.",
        ON_KAFKA,
    ),
    "config.providers": Key(
        parsers.texts,
        "",
        "Names of config providers, separated by commas. Keys that begin with "
        "`config.providers.NAME.` configure each one.",
        ON_KAFKA,
    ),
    "listeners": Key(
        parsers.names,
        "http://:8083",
        "Addresses of the REST API, separated by commas: `http://host:port` or "
        "`https://host:port`. Without a host it listens on every interface.",
        ON_KAFKA,
    ),
    "admin.listeners": Key(
        parsers.texts,
        "",
        "Addresses of the `/admin` endpoints, if they are not to be on `listeners`. If the value "
        "is empty, there are no `/admin` endpoints.",
        ON_KAFKA,
    ),
    "rest.advertised.host.name": Key(
        parsers.text,
        "",
        "Host name that other workers use to reach this worker's REST API.",
        ON_KAFKA,
    ),
    "rest.advertised.port": Key(
        parsers.number_or_none(1),
        "",
        "Port that other workers use to reach this worker's REST API.",
        ON_KAFKA,
    ),
    "rest.advertised.listener": Key(
        parsers.text,
        "",
        "Listener that other workers use to reach this worker: `http` or `https`.",
        ON_KAFKA,
    ),
    "access.control.allow.origin": Key(
        parsers.text,
        "",
        "Origins whose web pages may call the REST API (`Access-Control-Allow-Origin`).",
        ON_KAFKA,
    ),
    "access.control.allow.methods": Key(
        parsers.text,
        "",
        "HTTP methods that those web pages may use (`Access-Control-Allow-Methods`).",
        ON_KAFKA,
    ),
    "response.http.headers.config": Key(
        parsers.text,
        "",
        "Headers added to every REST response, separated by commas: `set NAME: VALUE`, `add "
        "NAME: VALUE`.",
        ON_KAFKA,
    ),
    "ssl.client.auth": Key(
        parsers.one_of("none", "requested", "required"),
        "none",
        "Whether the REST API asks for client certificates over https: `none`, `requested` or "
        "`required`.",
        ON_KAFKA,
    ),
    "headgate.grpc.listeners": Key(
        parsers.texts,
        "",
        "Where the worker serves its gRPC API: `grpc://HOST:PORT`, `grpcs://HOST:PORT` with TLS, "
        "or `unix:PATH`, separated by commas; nowhere if empty. Without "
        "`headgate.grpc.ssl.client.ca.file` it asks nobody who they are.",
        ON_KAFKA,
    ),
    "headgate.grpc.internal": Key(
        parsers.boolean,
        "false",
        "Whether other workers that have it too call this one by gRPC, signed with the session "
        "key, in place of HTTP. While a Java worker is in the group, all calls go by HTTP.",
        ON_KAFKA,
    ),
    "headgate.grpc.advertised": Key(
        parsers.text,
        "",
        "`HOST:PORT` at which other workers call this one by gRPC. If it is empty, the host of its "
        "REST API and the port of the first listener that this host reaches: `grpc://`, or "
        "`grpcs://` with `headgate.grpc.internal.ca.file`.",
        ON_KAFKA,
    ),
    "headgate.grpc.internal.ca.file": Key(
        parsers.text,
        "",
        "PEM file with the authorities of the other workers' certificates. Where it is set, calls "
        "between workers have TLS: they go to the `grpcs://` listeners of workers that have it "
        "too, and show the certificate of this worker's own. All others go by HTTP.",
        ON_KAFKA,
    ),
    "headgate.grpc.ssl.certificate.file": Key(
        parsers.text,
        "",
        "PEM file with the certificate of `grpcs://` listeners, and those between it and its "
        "authority.",
        ON_KAFKA,
    ),
    "headgate.grpc.ssl.key.file": Key(
        parsers.text, "", "PEM file with the key of that certificate, unencrypted.", ON_KAFKA
    ),
    "headgate.grpc.ssl.client.ca.file": Key(
        parsers.text,
        "",
        "PEM file with the authorities of clients. Where it is set, clients of `grpcs://` "
        "listeners must show a certificate of one of them.",
        ON_KAFKA,
    ),
    **{name: Key(parsers.number(1), default, doc, ON_KAFKA) for name, default, doc in REST_LIMITS},
    **{name: Key(parsers.boolean, "true", doc, ON_KAFKA) for name, doc in REST_SWITCHES},
    "headgate.plugin.modules": Key(
        parsers.texts,
        "",
        "Modules from which connector classes named `module:Class` may come, separated by commas. "
        "If it is empty, the source has to show that the class is a connector.",
        ON_KAFKA,
    ),
    "headgate.task.runner": Key(
        parsers.one_of(*parsers.RUNNERS),
        "spark",
        "Where tasks run: on Spark executors (`spark`), in a child process each (`process`) or "
        "in threads of the worker (`thread`).",
    ),
    TASKS_PER_PROCESS: Key(
        parsers.number(1, 1000),
        "1",
        "How many tasks share one child process (runner `process`) or one Python worker (runner "
        "`spark`). Runner `thread` does not use it.",
    ),
    "headgate.assignment.policy": Key(
        parsers.one_of(*parsers.POLICIES),
        "kip415",
        "How the leader shares out the work: by the rules of KIP-415 (`kip415`) or exactly as "
        "Kafka Connect does (`connect`).",
        IN_GROUP,
    ),
    "headgate.topic.partitions": Key(
        parsers.count(),
        "-1",
        "Number of partitions of a topic that a source connector creates. -1 takes the default "
        "of the log.",
    ),
    "headgate.log.format": Key(
        parsers.one_of("text", "json"),
        "text",
        "How the worker writes its log: as `text`, or as `json`, one object a line.",
    ),
    "headgate.log.progress.ms": Key(
        parsers.number(0),
        "60000",
        "Time between two lines of the log on the progress of each task: records, commits, lag. 0 "
        "writes none.",
    ),
    "headgate.journal": Key(
        parsers.text,
        "",
        "File that keeps each command of the worker, for `headgate replay --worker`. `{worker}` in "
        "it becomes the worker's name.",
    ),
    "headgate.journal.max.bytes": Key(
        parsers.number(1, parsers.LONG_MAX),
        "268435456",
        "Size at which the journal ends. A worker's next start begins a new one.",
    ),
    "headgate.restart.max": Key(
        parsers.number(0),
        "0",
        "How often in a row a failed connector or task is restarted by itself. 0 leaves it FAILED.",
    ),
    "headgate.restart.backoff.ms": Key(
        parsers.number(0),
        "1000",
        "Unit of the wait before a restart: restart n waits n² + n times this long.",
    ),
    "headgate.restart.backoff.max.ms": Key(
        parsers.number(0), "600000", "Longest wait before a restart."
    ),
    "headgate.restart.quiet.ms": Key(
        parsers.number(0),
        "600000",
        "A run that lasted this long before it failed makes the count of restarts begin anew.",
    ),
    "headgate.restart.errors": Key(
        parsers.texts,
        "",
        "Texts, separated by commas: only errors that contain one of them cause a restart. Empty: "
        "any error does.",
    ),
    "headgate.spark.master": Key(
        parsers.name,
        "local[2]",
        "Master URL of the Spark that the worker starts for its tasks.",
        ON_KAFKA,
    ),
    "headgate.spark.remote": Key(
        parsers.text,
        "",
        "Address of a running Spark Connect server, `sc://host:port`. If it is set, the worker "
        "starts no Spark.",
        ON_KAFKA,
    ),
    "headgate.spark.host": Key(
        parsers.text,
        "",
        "Address of this machine that Spark's executors reach. If it is empty, it is the loopback "
        "address for local masters, and for others the address that leads to the master.",
        ON_KAFKA,
    ),
    "headgate.spark.conf.file": Key(
        parsers.text,
        "",
        "File with settings of the Spark that the worker starts, as Spark's `spark-defaults.conf`.",
        ON_KAFKA,
    ),
    "headgate.spark.slots": Key(
        parsers.number(1),
        "16",
        "Number of tasks of this worker that Spark can run at the same time. Tasks that share a "
        "Python worker count as one. Workers that share a Spark take four times as many together; "
        "whoever finds no room starts another Spark.",
        ON_KAFKA,
    ),
    "headgate.spark.idle.ms": Key(
        parsers.number(0),
        "15000",
        "How long the Spark that the worker starts waits for another worker after the last one has "
        "ended. A worker that is started again meanwhile finds it warm.",
        ON_KAFKA,
    ),
    "headgate.spark.driver.timeout.ms": Key(
        parsers.number(0),
        "60000",
        "How long the driver of the Spark that Headgate starts may be silent. It is then ended and "
        "started again. 0: it may be for ever.",
    ),
    "headgate.data": Key(
        parsers.text,
        "",
        "Folder for the logs and scratch files of the Spark that the worker starts. Workers of one "
        "machine with the same folder and the same settings of Spark share it. If it is empty, a "
        "temporary folder of the user is used.",
        ON_KAFKA,
    ),
}


def keys_of(file: str) -> dict[str, Key]:
    """Return the keys that may be given in files of this kind."""
    return {name: key for name, key in KEYS.items() if file in key.files}


PIPELINE_KEYS = keys_of(PIPELINE)
CONVERTER_PREFIXES = ("key.converter.", "value.converter.", "header.converter.")
"""Beginnings of the keys that belong to a converter."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Checked settings. `values` are parsed. `texts` are strings with every default filled in, and
    with the given keys of converters."""

    values: Mapping[str, Any]
    texts: Mapping[str, str]

    @classmethod
    def parse(cls, given: Mapping[str, str], file: str = PIPELINE) -> "WorkerSettings":
        """Check the given settings, which come from a `file` of this kind. Keys of other kinds keep
        their defaults.

        Raises:
            SettingsError: unknown keys (with the nearest known one), missing keys, and values that
                do not parse.
        """
        known = keys_of(file)
        problems: dict[str, str] = {}
        for key in given:
            if key not in known and not key.startswith(CONVERTER_PREFIXES):
                near = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
                problems[key] = "unknown setting" + (f"; did you mean {near[0]}?" if near else "")
        values: dict[str, Any] = {}
        texts = {key: text for key, text in given.items() if key.startswith(CONVERTER_PREFIXES)}
        for key, rule in KEYS.items():
            if key not in given and key in known and file in rule.required:
                problems[key] = (
                    f'Missing required configuration "{key}" which has no default value.'
                )
                continue
            texts[key] = given.get(key, rule.default)
            if key not in given and file not in rule.files and not rule.default:
                values[key] = None
                continue
            try:
                value = values[key] = rule.parse(texts[key])
            except ValueError as error:
                problems[key] = str(error)
                continue
            if isinstance(value, str):
                texts[key] = value
        if not problems:
            problems = _together(values)
        if problems:
            raise SettingsError(problems)
        return cls(values, texts)

    def __getitem__(self, key: str) -> Any:
        return self.values[key]


def _together(values: Mapping[str, Any]) -> dict[str, str]:
    """Return what is wrong between settings that are each right by themselves."""
    problems = {}
    if values["heartbeat.interval.ms"] >= values["session.timeout.ms"]:
        problems["heartbeat.interval.ms"] = (
            f"{values['heartbeat.interval.ms']} must be less than session.timeout.ms, "
            f"{values['session.timeout.ms']}"
        )
    signed = values["inter.worker.signature.algorithm"]
    if signed not in values["inter.worker.verification.algorithms"]:
        problems["inter.worker.verification.algorithms"] = (
            f"must contain inter.worker.signature.algorithm, {signed}"
        )
    return problems | _shared_topics(values)


def _shared_topics(values: Mapping[str, Any]) -> dict[str, str]:
    """Return errors for internal topics that share a name: each has its own readers."""
    problems = {}
    keys: dict[str, str] = {}
    for key in _TOPIC_KEYS:
        name = (values[key] or "").strip()
        first = keys.setdefault(name, key)
        if name and first != key:
            problems[key] = f"{name!r} is {first} too; each needs a topic of its own"
    return problems
