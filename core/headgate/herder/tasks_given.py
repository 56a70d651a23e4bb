"""The task configs that a connector generates: how many there may be, and which keys of the
connector's config go with them."""

from typing import Final

from headgate.connector.framework import TASKS_MAX
from headgate.topics.config_events import Config

_COPIED: Final = ("topics", "topics.regex")
_TASKS_DIGITS: Final = len(str(TASKS_MAX))


def tasks_max(config: Config) -> int:
    """Return `tasks.max`: 1 if it is absent or not a positive number, and at most `TASKS_MAX`.
    Validation refuses other values, but a config that Java workers wrote was not validated here."""
    text = (config.get("tasks.max") or "1").strip()
    if not (text.isascii() and text.isdecimal()):
        return 1
    digits = text.lstrip("0")
    return TASKS_MAX if len(digits) > _TASKS_DIGITS else min(max(int(digits or "0"), 1), TASKS_MAX)


def tasks_max_enforced(config: Config) -> bool:
    """Return whether more tasks than `tasks.max` are a failure (`tasks.max.enforce`). Source:
    KIP-1004."""
    return (config.get("tasks.max.enforce") or "true").strip().lower() != "false"


def too_many(name: str, count: int, limit: int) -> str:
    """Return why a connector with more tasks than `tasks.max` fails, in Java's words."""
    return (
        f"The connector {name} has generated {count} tasks, which is greater than {limit}, the "
        "maximum number of tasks it is configured to create. This behavior should be considered a "
        "bug and is disallowed. If necessary, it can be permitted by reconfiguring the connector "
        "with 'tasks.max.enforce' set to false; however, this option will be removed in a future "
        "release of Kafka Connect."
    )


def with_topics(task_config: Config, connector_config: Config) -> Config:
    """Return a task config as it is logged: `topics` and `topics.regex` are the connector's.
    (`task.class` was set by the runtime, which alone knows the class.) Source:
    `Worker.connectorTaskConfigs`."""
    copied = {key: connector_config[key] for key in _COPIED if connector_config.get(key)}
    return {**task_config, **copied}
