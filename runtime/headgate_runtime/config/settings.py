"""Settings of a worker: Connect's keys with Connect's defaults, and ours under ``headgate.``.

One table, `KEYS`, for the three places where they are given: the pipeline file of ``headgate up``
(`PIPELINE`), and the properties files of ``headgate worker`` (`DISTRIBUTED`) and ``headgate
standalone`` (`STANDALONE`). Keys are strings as in a properties file; `WorkerSettings.parse` checks
them all and says all that is wrong at once. What is asked of a properties file as a whole is in
`worker_file`.
"""

import difflib
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from headgate.connector.converters import CONVERTERS, HEADER_CONVERTERS

EXACTLY_ONCE = ("disabled", "preparing", "enabled")
RUNNERS = ("spark", "process", "thread")
POLICIES = ("kip415", "connect")
CONNECT_PROTOCOLS = ("eager", "compatible", "sessioned")
OVERRIDE_POLICIES = ("All", "None", "Principal", "Allowlist")
BROKER_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MACS = ("HmacSHA1", "HmacSHA224", "HmacSHA256", "HmacSHA384", "HmacSHA512")
"""Of Java's algorithms, those that there are here."""
SHORT_MAX = 2**15 - 1
INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
"""The largest of Java's types for whole numbers: more cannot be said to brokers and other workers.
"""
_WHOLE_NUMBER = re.compile(r"[+-]?\d{1,1000}")
"""As Java reads one: Python would take underscores, too. It reads some thousands of digits at most.
"""

PIPELINE = "pipeline"
DISTRIBUTED = "distributed"
STANDALONE = "standalone"
EVERYWHERE = frozenset({PIPELINE, DISTRIBUTED, STANDALONE})
ON_KAFKA = frozenset({DISTRIBUTED, STANDALONE})
IN_GROUP = frozenset({PIPELINE, DISTRIBUTED})


class SettingsError(Exception):
    """One line per key that is wrong, in `problems`."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        super().__init__("\n".join(f"{key}: {text}" for key, text in problems.items()))
        self.problems = dict(problems)


# -- how texts become values --


def _text(value: str) -> str:
    return value


def _name(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty")
    return value


def _number(low: int, high: int = INT_MAX) -> Callable[[str], int]:
    """
    Args:
        high: of the type that Connect's key has.
    """

    def check(value: str) -> int:
        if not _WHOLE_NUMBER.fullmatch(value.strip()):
            raise ValueError(f"{value!r} is not a whole number")
        number = int(value)
        if number > high:
            raise ValueError(f"{number} is above the greatest value, {high}")
        if number < low:
            raise ValueError(f"{number} is below the least value, {low}")
        return number

    return check


def _number_or_none(low: int) -> Callable[[str], int | None]:
    def check(value: str) -> int | None:
        return _number(low)(value) if value.strip() else None

    return check


def _count(high: int = INT_MAX) -> Callable[[str], int]:
    """-1: as the broker has it."""
    at_least = _number(-1, high)

    def check(value: str) -> int:
        number = at_least(value)
        if number == 0:
            raise ValueError("0, expected a positive number, or -1 for the broker's default")
        return number

    return check


def _one_of(*choices: str) -> Callable[[str], str]:
    """Without regard to case, as Connect takes enumerations."""
    by_lower = {choice.lower(): choice for choice in choices}

    def check(value: str) -> str:
        found = by_lower.get(value.strip().lower())
        if found is None:
            near = difflib.get_close_matches(value.strip().lower(), by_lower, n=1, cutoff=0.6)
            hint = f"; did you mean {by_lower[near[0]]}?" if near else ""
            raise ValueError(f"{value!r} is none of {', '.join(choices)}{hint}")
        return found

    return check


def _boolean(value: str) -> bool:
    if value.strip().lower() not in ("true", "false"):
        raise ValueError(f"{value!r} is neither true nor false")
    return value.strip().lower() == "true"


def _list(value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",") if part.strip())


def _names(value: str) -> tuple[str, ...]:
    found = _list(value)
    if not found:
        raise ValueError("must not be empty")
    return found


def brokers(value: str) -> tuple[str, ...]:
    """Refused as by Java's clients; librdkafka would take a missing port for 9092. Differs: Java
    passes over whatever stands before ``://``, and would speak Kafka's protocol to a web server.

    Raises:
        ValueError: says what is wrong with which address.
    """
    found = _names(value)
    for address in found:
        protocol, separator, rest = address.rpartition("://")
        if separator and protocol.upper() not in BROKER_PROTOCOLS:
            raise ValueError(
                f"{address!r} begins with none of Kafka's protocols, {', '.join(BROKER_PROTOCOLS)};"
                " host:port will do, such as localhost:9092"
            )
        host, _, port = rest.rpartition(":")
        if not host or not port.isdecimal():
            raise ValueError(f"{address!r} is no host:port, such as localhost:9092")
    return found


def _class_of(known: Collection[str]) -> Callable[[str], str]:
    def check(value: str) -> str:
        if value.strip() not in known:
            full = sorted(name for name in known if "." in name)
            near = difflib.get_close_matches(value, known, n=1, cutoff=0.6)
            raise ValueError(
                f"Class {value} could not be found."
                + (f" Did you mean {near[0]}?" if near else f" There are {', '.join(full)}.")
            )
        return value

    return check


def _macs(value: str) -> tuple[str, ...]:
    return tuple(_one_of(*MACS)(name) for name in _names(value))


def _protocol(value: str) -> str:
    """KIP-415 speaks of ``cooperative``; what it came to is called ``sessioned``."""
    if value.strip().lower() == "cooperative":
        return "sessioned"
    return _one_of(*CONNECT_PROTOCOLS)(value)


def _override_policy(value: str) -> str:
    """By name or by the name of Connect's class."""
    short = value.strip().rpartition(".")[2]
    return _one_of(*OVERRIDE_POLICIES)(
        short.removesuffix("ConnectorClientConfigOverridePolicy") or value
    )


@dataclass(frozen=True, slots=True)
class Key:
    """One setting: how its text becomes a value (ValueError says why not), its default, what it
    does, and where it may be given."""

    parse: Callable[[str], Any]
    default: str
    doc: str
    files: frozenset[str] = EVERYWHERE
    required: frozenset[str] = frozenset()
    """Where it has no default."""


STRING_CONVERTER = "org.apache.kafka.connect.storage.StringConverter"
HEADER_CONVERTER = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
_DISTRIBUTED = frozenset({DISTRIBUTED})
_TOPIC_KEYS = ("config.storage.topic", "offset.storage.topic", "status.storage.topic")

KEYS: dict[str, Key] = {
    "bootstrap.servers": Key(
        brokers, "", "Brokers to begin with, host:port and commas.", ON_KAFKA, ON_KAFKA
    ),
    "group.id": Key(_name, "headgate", "Name of the group of workers.", IN_GROUP, _DISTRIBUTED),
    "client.id": Key(
        _text, "", "Part of the names that clients of the worker give themselves.", EVERYWHERE
    ),
    "key.converter": Key(
        _class_of(CONVERTERS),
        STRING_CONVERTER,
        "Default converter of record keys.",
        required=ON_KAFKA,
    ),
    "value.converter": Key(
        _class_of(CONVERTERS),
        STRING_CONVERTER,
        "Default converter of record values.",
        required=ON_KAFKA,
    ),
    "header.converter": Key(
        _class_of(HEADER_CONVERTERS), HEADER_CONVERTER, "Default converter of headers."
    ),
    "config.storage.topic": Key(_name, "", "The config topic.", _DISTRIBUTED, _DISTRIBUTED),
    "config.storage.replication.factor": Key(
        _count(SHORT_MAX),
        "3",
        "Replicas of the config topic if it is created here; -1 as the broker has it.",
        _DISTRIBUTED,
    ),
    "offset.storage.topic": Key(
        _name, "connect-offsets", "The offsets topic.", IN_GROUP, _DISTRIBUTED
    ),
    "offset.storage.partitions": Key(
        _count(), "25", "Partitions of the offsets topic if it is created here.", _DISTRIBUTED
    ),
    "offset.storage.replication.factor": Key(
        _count(SHORT_MAX),
        "3",
        "Replicas of the offsets topic if it is created here.",
        _DISTRIBUTED,
    ),
    "offset.storage.file.filename": Key(
        _name, "", "File of the source offsets.", frozenset({STANDALONE}), frozenset({STANDALONE})
    ),
    "status.storage.topic": Key(_name, "", "The status topic.", _DISTRIBUTED, _DISTRIBUTED),
    "status.storage.partitions": Key(
        _count(), "5", "Partitions of the status topic if it is created here.", _DISTRIBUTED
    ),
    "status.storage.replication.factor": Key(
        _count(SHORT_MAX),
        "3",
        "Replicas of the status topic if it is created here.",
        _DISTRIBUTED,
    ),
    "session.timeout.ms": Key(
        _number(100), "10000", "Silence after which a worker is out.", IN_GROUP
    ),
    "heartbeat.interval.ms": Key(_number(10), "3000", "Time between heartbeats.", IN_GROUP),
    "rebalance.timeout.ms": Key(
        _number(100), "60000", "Longest wait for members to join again.", IN_GROUP
    ),
    "worker.sync.timeout.ms": Key(
        _number(1), "3000", "Limit for reading the config topic to its end.", IN_GROUP
    ),
    "scheduled.rebalance.max.delay.ms": Key(
        _number(0), "300000", "How long lost work waits for its worker to come back.", IN_GROUP
    ),
    "connect.protocol": Key(
        _protocol, "sessioned", "Newest of Connect's protocols to offer.", _DISTRIBUTED
    ),
    "exactly.once.source.support": Key(
        _one_of(*EXACTLY_ONCE), "disabled", "Exactly-once source connectors (KIP-618).", IN_GROUP
    ),
    "inter.worker.key.generation.algorithm": Key(
        _one_of(*MACS), "HmacSHA256", "Of the key that workers sign requests with.", _DISTRIBUTED
    ),
    "inter.worker.key.size": Key(
        _number_or_none(8), "", "Its bits; the algorithm's own number if empty.", _DISTRIBUTED
    ),
    "inter.worker.key.ttl.ms": Key(
        _number(0), "3600000", "How long such a key is used; 0: for ever.", _DISTRIBUTED
    ),
    "inter.worker.signature.algorithm": Key(
        _one_of(*MACS), "HmacSHA256", "Requests to other workers are signed by it.", _DISTRIBUTED
    ),
    "inter.worker.verification.algorithms": Key(
        _macs, "HmacSHA256", "Accepted from other workers.", _DISTRIBUTED
    ),
    "offset.flush.interval.ms": Key(
        _number(1, LONG_MAX), "60000", "Time between commits of offsets."
    ),
    "task.shutdown.graceful.timeout.ms": Key(
        _number(0, LONG_MAX), "5000", "Time a task has to stop before it is killed."
    ),
    "topic.creation.enable": Key(_boolean, "true", "Create the topics that sources name."),
    "topic.tracking.enable": Key(
        _boolean, "true", "Record which topics a connector uses.", ON_KAFKA
    ),
    "topic.tracking.allow.reset": Key(
        _boolean, "true", "Let users forget the topics that were recorded.", ON_KAFKA
    ),
    "connector.client.config.override.policy": Key(
        _override_policy, "All", "Which client settings connectors may override.", ON_KAFKA
    ),
    "connector.client.config.override.allowlist": Key(
        _list, "", "Those that the policy Allowlist lets pass.", ON_KAFKA
    ),
    "config.providers": Key(
        _list, "", "Names of those who know what configs only refer to.", ON_KAFKA
    ),
    "listeners": Key(_names, "http://:8083", "Where the REST API listens.", ON_KAFKA),
    "admin.listeners": Key(_list, "", "Where its admin endpoints do, if elsewhere.", ON_KAFKA),
    "rest.advertised.host.name": Key(
        _text, "", "Name under which others reach this worker.", ON_KAFKA
    ),
    "rest.advertised.port": Key(
        _number_or_none(1), "", "Port under which others reach this worker.", ON_KAFKA
    ),
    "rest.advertised.listener": Key(
        _text, "", "Which of the listeners others use: http or https.", ON_KAFKA
    ),
    "access.control.allow.origin": Key(_text, "", "Origins that browsers may call from.", ON_KAFKA),
    "access.control.allow.methods": Key(_text, "", "Methods they may use.", ON_KAFKA),
    "response.http.headers.config": Key(
        _text, "", "Headers of every answer: set NAME: VALUE, add NAME: VALUE.", ON_KAFKA
    ),
    "ssl.client.auth": Key(
        _one_of("none", "requested", "required"),
        "none",
        "Certificates of those who call the REST API by https.",
        ON_KAFKA,
    ),
    "headgate.task.runner": Key(_one_of(*RUNNERS), "spark", "Where tasks run."),
    "headgate.assignment.policy": Key(
        _one_of(*POLICIES), "kip415", "How work is shared.", IN_GROUP
    ),
    "headgate.topic.partitions": Key(
        _count(),
        "-1",
        "Partitions of a topic that a source makes; -1: as many as a new topic gets.",
    ),
    "headgate.spark.master": Key(
        _name, "local[2]", "Master of the Spark that a worker starts for its tasks.", ON_KAFKA
    ),
    "headgate.spark.remote": Key(
        _text, "", "Spark Connect server to use instead, sc://host:port.", ON_KAFKA
    ),
    "headgate.spark.slots": Key(
        _number(1), "16", "Tasks that the Spark which a worker starts has room for.", ON_KAFKA
    ),
    "headgate.data": Key(
        _text, "", "Folder for its log and scratch files; a temporary one if empty.", ON_KAFKA
    ),
}


def keys_of(file: str) -> dict[str, Key]:
    """Those that may be given in files of this kind."""
    return {name: key for name, key in KEYS.items() if file in key.files}


PIPELINE_KEYS = keys_of(PIPELINE)


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Checked settings: `values` parsed, `texts` as strings with every default filled in."""

    values: Mapping[str, Any]
    texts: Mapping[str, str]

    @classmethod
    def parse(cls, given: Mapping[str, str], file: str = PIPELINE) -> "WorkerSettings":
        """
        Args:
            file: in which kind of file they were given; what other kinds alone have keeps its
                default.

        Raises:
            SettingsError: unknown keys (with the nearest known one), keys that are missing, and
                values that do not parse.
        """
        known = keys_of(file)
        problems: dict[str, str] = {}
        for key in given:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
                problems[key] = "unknown setting" + (f"; did you mean {near[0]}?" if near else "")
        values: dict[str, Any] = {}
        texts: dict[str, str] = {}
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
    """What is wrong between settings that are right each for itself."""
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
    """Each of the internal topics is read by one, and is made with partitions of its own."""
    problems = {}
    keys: dict[str, str] = {}
    for key in _TOPIC_KEYS:
        name = (values[key] or "").strip()
        first = keys.setdefault(name, key)
        if name and first != key:
            problems[key] = f"{name!r} is {first} too; each needs a topic of its own"
    return problems
