"""The `errors.*` settings of a connector's config, and the schedule of retries.

Source: KIP-298, `ConnectorConfig`, `SinkConnectorConfig`, `RetryWithToleranceOperator` (4.3.1).
Differs: the task goes on with its other duties while it waits for the next attempt (it can be
paused or stopped, and stays in its group); Connect blocks the task's thread. If a stop ends the
retries of a record, the next start reads it again; Connect counts it as failed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from headgate.connector.config import ConfigError, Type, parse_type

RETRY_DELAY_MIN_MS: Final = 300
"""Wait before the second attempt; it doubles with each further one. Source:
RETRIES_DELAY_MIN_MS."""

RETRY_TIMEOUT: Final = "errors.retry.timeout"
RETRY_DELAY_MAX: Final = "errors.retry.delay.max.ms"
TOLERANCE: Final = "errors.tolerance"
LOG_ENABLE: Final = "errors.log.enable"
LOG_MESSAGES: Final = "errors.log.include.messages"
LETTERS_TOPIC: Final = "errors.deadletterqueue.topic.name"
LETTERS_REPLICAS: Final = "errors.deadletterqueue.topic.replication.factor"
LETTERS_HEADERS: Final = "errors.deadletterqueue.context.headers.enable"
LETTERS_KEYS: Final = (LETTERS_TOPIC, LETTERS_REPLICAS, LETTERS_HEADERS)


class ErrorStage(StrEnum):
    """Stage at which a record failed, in Connect's words. Source: `Stage`."""

    TRANSFORMATION = "TRANSFORMATION"
    KEY_CONVERTER = "KEY_CONVERTER"
    VALUE_CONVERTER = "VALUE_CONVERTER"
    HEADER_CONVERTER = "HEADER_CONVERTER"
    TASK_POLL = "TASK_POLL"
    TASK_PUT = "TASK_PUT"


@dataclass(frozen=True, slots=True)
class ErrorSettings:
    """`errors.*` of one connector."""

    tolerate: bool = False
    """Whether `errors.tolerance` is all."""
    retry_timeout_ms: int = 0
    """Time for retries since the first failure; -1: no limit. 0: an operation is tried once."""
    retry_delay_max_ms: int = 60_000
    log: bool = False
    log_messages: bool = False
    topic: str = ""
    """Topic of the dead letter queue; empty for none."""
    replicas: int = 3
    """Replication factor of the queue, if it is created."""
    headers: bool = False
    """Whether dead letters get headers that describe the error."""

    @classmethod
    def from_config(cls, config: Mapping[str, str]) -> "ErrorSettings":
        """Return the settings in `config`.

        Raises:
            ValueError: A setting cannot be parsed; validation should have refused it.
        """
        return cls(
            tolerate=config.get(TOLERANCE, "none").strip().lower() == "all",
            retry_timeout_ms=int(config.get(RETRY_TIMEOUT, "0")),
            retry_delay_max_ms=int(config.get(RETRY_DELAY_MAX, "60000")),
            log=_boolean(config, LOG_ENABLE),
            log_messages=_boolean(config, LOG_MESSAGES),
            topic=(config.get(LETTERS_TOPIC) or "").strip(),
            replicas=int(config.get(LETTERS_REPLICAS, "3")),
            headers=_boolean(config, LETTERS_HEADERS),
        )

    @property
    def reports(self) -> bool:
        """Whether single errors are reported; a sink task then has an errant record reporter.
        Source: SinkConnectorConfig.enableErrantRecordReporter."""
        return bool(self.topic) or self.log


def source_letter_errors(config: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return errors by key about the dead letter queue of a source; only Headgate has these keys
    for sources."""
    errors: dict[str, list[str]] = {}
    for key, kind in ((LETTERS_REPLICAS, Type.SHORT), (LETTERS_HEADERS, Type.BOOLEAN)):
        try:
            if config.get(key) is not None:
                parse_type(key, config[key], kind)
        except ConfigError as error:
            errors[key] = [str(error)]
    return errors


def letters_advice(config: Mapping[str, Any]) -> str:
    """Return advice for a config that names a dead letter queue but tolerates no error; empty if
    there is none to give.

    Java accepts such a config without a warning.
    """
    topic = str(config.get(LETTERS_TOPIC) or "").strip()
    if not topic or str(config.get(TOLERANCE) or "none").strip().lower() == "all":
        return ""
    return (
        f"{LETTERS_TOPIC} is {topic}, but {TOLERANCE} is none: the first record that cannot be "
        f"used still fails the task. Set {TOLERANCE} = all to go on after such a record"
    )


def _boolean(config: Mapping[str, str], key: str) -> bool:
    return config.get(key, "false").strip().lower() == "true"


def _half(limit: int) -> int:
    return limit // 2


class Retry:
    """The retries of one operation, from its first failure on.

    Source: RetryWithToleranceOperator.execAndRetry, backoff.
    """

    def __init__(
        self, settings: ErrorSettings, now_ms: int, below: Callable[[int], int] = _half
    ) -> None:
        """Begin to count attempts.

        Args:
            now_ms: Time when the first attempt began.
            below: Returns a random number from 0 up to its argument, exclusive.
        """
        self._delay_max_ms = settings.retry_delay_max_ms
        self._below = below
        timeout_ms = settings.retry_timeout_ms
        self._deadline_ms: int | None = None if timeout_ms < 0 else now_ms + timeout_ms
        self.attempts = 0
        """Number of failed attempts."""
        self.due_ms: int = now_ms
        """Time from which the next attempt may be made."""

    def failed(self, now_ms: int) -> bool:
        """Note that an attempt failed with `RetriableError`. Return whether there is another one,
        at `due_ms`."""
        self.attempts += 1
        deadline_ms = self._deadline_ms
        if deadline_ms is not None and now_ms >= deadline_ms:
            return False
        delay_ms = int(RETRY_DELAY_MIN_MS << min(self.attempts - 1, 40))
        if delay_ms > self._delay_max_ms:
            # A random delay, as in Connect, so that not all tasks call a system that is down at the
            # same time.
            delay_ms = self._below(self._delay_max_ms) if self._delay_max_ms > 0 else 0
        due_ms = now_ms + delay_ms
        self.due_ms = due_ms if deadline_ms is None else min(due_ms, deadline_ms)
        return True
