"""Settings of a worker: Connect's keys with Connect's defaults, and ours under ``headgate.``.

Keys are strings as in a properties file; `WorkerSettings.parse` checks them all and says all that
is wrong at once.
"""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

EXACTLY_ONCE = ("disabled", "preparing", "enabled")
RUNNERS = ("spark", "process", "thread")


class SettingsError(Exception):
    """One line per key that is wrong, in `problems`."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        super().__init__("\n".join(f"{key}: {text}" for key, text in problems.items()))
        self.problems = dict(problems)


def _text(value: str) -> str:
    return value


def _name(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty")
    return value


def _number(low: int) -> Callable[[str], int]:
    def check(value: str) -> int:
        try:
            number = int(value.strip())
        except ValueError:
            raise ValueError(f"{value!r} is not a whole number") from None
        if number < low:
            raise ValueError(f"{number} is below the least value, {low}")
        return number

    return check


def _one_of(*choices: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        if value not in choices:
            raise ValueError(f"{value!r} is none of {', '.join(choices)}")
        return value

    return check


def _boolean(value: str) -> bool:
    if value.strip().lower() not in ("true", "false"):
        raise ValueError(f"{value!r} is neither true nor false")
    return value.strip().lower() == "true"


@dataclass(frozen=True, slots=True)
class Key:
    """One setting: how its text becomes a value (ValueError says why not), its default, what it
    does."""

    parse: Callable[[str], Any]
    default: str
    doc: str


STRING_CONVERTER = "org.apache.kafka.connect.storage.StringConverter"

KEYS: dict[str, Key] = {
    "group.id": Key(_name, "headgate", "Name of the group of workers."),
    "client.id": Key(_text, "", "Prefix of the worker's member id; its own name by default."),
    "key.converter": Key(_name, STRING_CONVERTER, "Default converter of record keys."),
    "value.converter": Key(_name, STRING_CONVERTER, "Default converter of record values."),
    "header.converter": Key(
        _name,
        "org.apache.kafka.connect.storage.SimpleHeaderConverter",
        "Default converter of headers.",
    ),
    "offset.storage.topic": Key(_name, "connect-offsets", "Name of the offsets topic."),
    "session.timeout.ms": Key(_number(100), "10000", "Silence after which a worker is out."),
    "heartbeat.interval.ms": Key(_number(10), "3000", "Time between heartbeats."),
    "rebalance.timeout.ms": Key(_number(100), "60000", "Longest wait for members to join again."),
    "worker.sync.timeout.ms": Key(_number(1), "3000", "Limit for reading the log to its end."),
    "scheduled.rebalance.max.delay.ms": Key(
        _number(0), "300000", "How long lost work waits for its worker to come back."
    ),
    "exactly.once.source.support": Key(
        _one_of(*EXACTLY_ONCE), "disabled", "Exactly-once source connectors (KIP-618)."
    ),
    "offset.flush.interval.ms": Key(_number(1), "60000", "Time between commits of offsets."),
    "offset.flush.timeout.ms": Key(_number(1), "5000", "Longest wait for a commit of offsets."),
    "task.shutdown.graceful.timeout.ms": Key(
        _number(0), "5000", "Time a task has to stop before it is killed."
    ),
    "topic.creation.enable": Key(_boolean, "true", "Create the topics that sources name."),
    "headgate.task.runner": Key(_one_of(*RUNNERS), "spark", "Where tasks run."),
    "headgate.assignment.policy": Key(_one_of("kip415"), "kip415", "How work is shared."),
    "headgate.topic.partitions": Key(_number(1), "1", "Partitions of a topic that a source makes."),
}


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Checked settings: `values` parsed, `texts` as strings with every default filled in."""

    values: Mapping[str, Any]
    texts: Mapping[str, str]

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "WorkerSettings":
        """
        Raises:
            SettingsError: unknown keys (with the nearest known one) and values that do not parse.
        """
        problems: dict[str, str] = {}
        for key in given:
            if key not in KEYS:
                near = difflib.get_close_matches(key, KEYS, n=1, cutoff=0.6)
                problems[key] = "unknown setting" + (f"; did you mean {near[0]}?" if near else "")
        values: dict[str, Any] = {}
        texts: dict[str, str] = {}
        for key, rule in KEYS.items():
            texts[key] = given.get(key, rule.default)
            try:
                values[key] = rule.parse(texts[key])
            except ValueError as error:
                problems[key] = str(error)
        if not problems and values["heartbeat.interval.ms"] >= values["session.timeout.ms"]:
            problems["heartbeat.interval.ms"] = (
                f"{values['heartbeat.interval.ms']} must be less than session.timeout.ms, "
                f"{values['session.timeout.ms']}"
            )
        if problems:
            raise SettingsError(problems)
        return cls(values, texts)

    def __getitem__(self, key: str) -> Any:
        return self.values[key]
