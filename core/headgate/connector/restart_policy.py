"""The restart policy: when a failed connector or task is restarted automatically, and when it stays
FAILED.

Differs: Kafka Connect leaves failed items to its operators, and Strimzi restarts them from outside.
Here the worker that owns the item restarts it, by the keys ``headgate.restart.*`` of the
connector's config, or else of the worker. The status record holds the count of restarts, so that a
new owner continues to count where the last one stopped.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from headgate.topics.config_events import Config

MAX: Final = "headgate.restart.max"
BACKOFF: Final = "headgate.restart.backoff.ms"
BACKOFF_MAX: Final = "headgate.restart.backoff.max.ms"
QUIET: Final = "headgate.restart.quiet.ms"
ERRORS: Final = "headgate.restart.errors"


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    restarts_max: int = 0
    """Largest number of consecutive restarts; 0: a failed item stays FAILED."""
    backoff_ms: int = 1_000
    """Restart number n waits n² + n times this long."""
    backoff_max_ms: int = 600_000
    """Longest wait before a restart."""
    quiet_ms: int = 600_000
    """Length of a run after which a failure starts the count anew."""
    errors: tuple[str, ...] = ()
    """Texts of which the error must contain one; empty for any error."""

    def delay_ms(self, restarts: int, error: str) -> int | None:
        """Return how long to wait before the next restart, or None if there is none.

        Args:
            restarts: Number of consecutive restarts so far.
            error: Trace or message of the failure.
        """
        if restarts >= self.restarts_max:
            return None
        if self.errors and not any(text in error for text in self.errors):
            return None
        number = restarts + 1
        return min((number * number + number) * self.backoff_ms, self.backoff_max_ms)

    def announced(self, trace: str, restarts: int, delay_ms: int | None) -> str:
        """Return `trace` as the status shows it. If the policy is on, a first line says what
        happens next; the last line is still that of the error."""
        if not self.restarts_max:
            return trace
        if delay_ms is None:
            why = f"{ERRORS} names no part of this error"
            if restarts >= self.restarts_max:
                why = f"{MAX} is {self.restarts_max}, and none is left"
            return f"{_STAYS}{why}. Mend the cause, then restart it.\n{trace}"
        left = self.restarts_max - restarts
        return f"{_RESTARTED}{delay_ms / 1000:g} s; restarts left: {left}.\n{trace}"


def note_and_error(trace: str) -> tuple[str, str]:
    """Return the line that `RestartPolicy.announced` put above a trace (or an empty text), and the
    trace without it."""
    first, _, rest = trace.partition("\n")
    return (first, rest) if first.startswith((_STAYS, _RESTARTED)) else ("", trace)


_STAYS: Final = "It stays FAILED: "
_RESTARTED: Final = "It is restarted in "


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError(text)
    return number


def _texts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


KEYS: Final = (MAX, BACKOFF, BACKOFF_MAX, QUIET, ERRORS)

_PARSERS: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = MappingProxyType(
    {
        MAX: ("restarts_max", _count),
        BACKOFF: ("backoff_ms", _count),
        BACKOFF_MAX: ("backoff_max_ms", _count),
        QUIET: ("quiet_ms", _count),
        ERRORS: ("errors", _texts),
    }
)


def restart_policy(config: Config, default: RestartPolicy) -> RestartPolicy:
    """Return the policy of a connector: its own keys, and the worker's for those it does not set. A
    value that cannot be parsed counts as not set, since a config in the log may never have been
    validated."""
    given: dict[str, Any] = {}
    for key, (field, parse) in _PARSERS.items():
        text = config.get(key)
        if text is not None and text.strip():
            try:
                given[field] = parse(text.strip())
            except ValueError:
                continue
    return replace(default, **given) if given else default


def restart_errors(config: Config) -> dict[str, str]:
    """Return errors about the keys of the policy in `config`, by key."""
    wrong: dict[str, str] = {}
    for key, (_, parse) in _PARSERS.items():
        text = config.get(key)
        if text is None or not text.strip():
            continue
        try:
            parse(text.strip())
        except ValueError:
            wrong[key] = (
                f"Invalid value {text} for configuration {key}: expected a whole number from 0 on"
            )
    return wrong
