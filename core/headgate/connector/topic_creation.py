"""Settings for the topics that a source creates, by groups of topics (KIP-158).

    topic.creation.default.replication.factor = 3
    topic.creation.default.partitions = 5
    topic.creation.groups = compacted
    topic.creation.compacted.include = table-.*, users
    topic.creation.compacted.cleanup.policy = compact

A topic belongs to the first group of which an `include` matches its whole name and no `exclude`
does; else it belongs to the group `default`. Source: TopicCreationConfig, SourceConnectorConfig,
TopicCreationGroup (4.3.1). Differs: errors of a group are found when the config is validated (Java:
when the connector starts); the settings of `default` are optional.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headgate.connector.config import ConfigError, Type, parse_type
from headgate.connector.validators import ALIASES_MAX
from headgate.java.pattern import JavaPatternError, compile_java

PREFIX: Final = "topic.creation."
GROUPS: Final = PREFIX + "groups"
DEFAULT: Final = "default"
INCLUDE, EXCLUDE = "include", "exclude"
REPLICAS, PARTITIONS = "replication.factor", "partitions"
_OWN: Final = (INCLUDE, EXCLUDE, REPLICAS, PARTITIONS)


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """Settings of a topic to be created. None: as the log chooses."""

    partitions: int | None = None
    replicas: int | None = None
    config: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class TopicGroup:
    name: str
    include: Sequence[re.Pattern[str]]
    exclude: Sequence[re.Pattern[str]]
    settings: TopicSettings

    def matches(self, topic: str) -> bool:
        return not any(one.match(topic) for one in self.exclude) and any(
            one.match(topic) for one in self.include
        )


@dataclass(frozen=True, slots=True)
class TopicGroups:
    groups: Sequence[TopicGroup]
    default: TopicSettings

    def settings(self, topic: str) -> TopicSettings:
        for group in self.groups:
            if group.matches(topic):
                return group.settings
        return self.default


def topic_groups(config: Mapping[str, Any], default: TopicSettings) -> TopicGroups:
    """Return the groups in a connector's config.

    Args:
        default: Settings that apply where the config sets none.

    Raises:
        ConfigError: A value is wrong.
    """
    base = _settings(config, DEFAULT, default)
    groups = [
        TopicGroup(
            name,
            _patterns(config, f"{PREFIX}{name}.{INCLUDE}"),
            _patterns(config, f"{PREFIX}{name}.{EXCLUDE}"),
            _settings(config, name, TopicSettings(base.partitions, base.replicas)),
        )
        for name in _names(config)
    ]
    return TopicGroups(groups, base)


def topic_creation_errors(config: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return errors by key, for the keys of `topic.creation.*`."""
    errors: dict[str, list[str]] = {}
    names = _names(config)
    for name in (DEFAULT, *names):
        for own in _OWN:
            key = f"{PREFIX}{name}.{own}"
            try:
                if own in (INCLUDE, EXCLUDE):
                    _patterns(config, key)
                else:
                    _count(config, key)
            except ConfigError as error:
                errors[key] = [str(error)]
    return errors


def topic_keys(config: Mapping[str, Any]) -> set[str]:
    """Return the keys below `topic.creation.` that are used: those that every group has, and those
    that `config` sets for its groups. Java ignores others."""
    prefixes = [f"{PREFIX}{group}." for group in (DEFAULT, *_names(config))]
    given = {key for key in config if key.startswith(tuple(prefixes))}
    return given | {GROUPS} | {prefix + key for prefix in prefixes for key in _OWN}


def _names(config: Mapping[str, Any]) -> list[str]:
    found: list[str] = parse_type(GROUPS, config.get(GROUPS), Type.LIST) or []
    if len(found) > ALIASES_MAX:
        return []  # the key itself is refused
    return [name for name in dict.fromkeys(found) if name != DEFAULT]


def _settings(config: Mapping[str, Any], group: str, default: TopicSettings) -> TopicSettings:
    prefix = f"{PREFIX}{group}."
    partitions = _count(config, prefix + PARTITIONS)
    replicas = _count(config, prefix + REPLICAS)
    others = {
        key.removeprefix(prefix): str(value)
        for key, value in config.items()
        if key.startswith(prefix) and key.removeprefix(prefix) not in _OWN and value is not None
    }
    return TopicSettings(
        default.partitions if partitions is None else partitions,
        default.replicas if replicas is None else replicas,
        others or None,
    )


def _count(config: Mapping[str, Any], key: str) -> int | None:
    """Return a count of 1 or more, or -1 for the broker's default; None if not set."""
    given = config.get(key)
    if given is None:
        return None
    count: int = parse_type(key, given, Type.INT)
    if count < 1 and count != -1:
        what = "Partitions" if key.endswith(PARTITIONS) else "Replication factor"
        raise ConfigError.of(
            key, count, f"{what} must be positive, or -1 to use the broker's default"
        )
    return count


def _patterns(config: Mapping[str, Any], key: str) -> list[re.Pattern[str]]:
    found: list[re.Pattern[str]] = []
    given: list[str] = parse_type(key, config.get(key), Type.LIST) or []
    for text in given:
        try:
            found.append(compile_java(text))
        except JavaPatternError as error:
            raise ConfigError.of(key, text, f"Invalid regex: {error}") from None
    return found
