"""Limits of the REST server, for one request and for all requests together.

Connect has no settings for them. Its server, Jetty, allows 8 KiB of headers and 30 s of silence.
"""

import logging
import resource
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

SHARE_OF_DESCRIPTORS: Final = 4
"""At most one of this many descriptors is used for connections. The tasks' clients need the
others."""
SELDOM_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Limits:
    """The worker's settings that begin with ``headgate.rest.``."""

    header_bytes: int = 16_384
    """Most bytes of the request line and all headers of one request."""
    headers: int = 100
    """Most headers of one request."""
    body_bytes: int = 1_048_576
    """Most bytes of one body. By default, a broker accepts records of 1 MiB."""
    body_values: int = 50_000
    """Most values, lists and objects of one body. Each takes fifty times its bytes in memory."""
    task_configs_bytes: int = 33_554_432
    """Most bytes of the task configs of one connector. A worker signs them and sends them to the
    leader."""
    held_bytes: int = 67_108_864
    """Most bytes of all bodies that are being read or whose request is not answered yet."""
    read_timeout_ms: int = 30_000
    """Longest time from a connection's start, or its last answer, to the end of a request."""
    connections: int = 1_000
    """Most connections."""

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> "Limits":
        """Return the limits in the worker's properties.

        Raises:
            ValueError: a value is wrong. The message says which key, what was seen and what was
                expected.
        """
        return cls(**{field: _positive(texts, key) for field, key in KEYS.items() if key in texts})

    @property
    def read_timeout_s(self) -> float:
        return self.read_timeout_ms / 1000

    @property
    def late_text(self) -> str:
        """The message for a client whose request was not complete in time."""
        return (
            f"The request was not complete within {self.read_timeout_ms} ms "
            "(headgate.rest.read.timeout.ms)"
        )

    def connections_here(self) -> int:
        """Return the limit of connections in this process, which may have few descriptors."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft == resource.RLIM_INFINITY:
            return self.connections
        return max(1, min(self.connections, soft // SHARE_OF_DESCRIPTORS))


KEYS: Final[Mapping[str, str]] = {
    "header_bytes": "headgate.rest.header.max.bytes",
    "headers": "headgate.rest.header.max.count",
    "body_bytes": "headgate.rest.body.max.bytes",
    "body_values": "headgate.rest.body.max.values",
    "task_configs_bytes": "headgate.rest.task.configs.max.bytes",
    "held_bytes": "headgate.rest.bodies.max.bytes",
    "read_timeout_ms": "headgate.rest.read.timeout.ms",
    "connections": "headgate.rest.connections.max",
}


def _positive(texts: Mapping[str, str], key: str) -> int:
    text = texts[key].strip().removeprefix("+")
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise ValueError(f"Invalid value {text} for configuration {key}: expected a number above 0")
    return int(text)


class SeldomLog(logging.Filter):
    """A filter that passes each kind of message once in `SELDOM_S`, so that clients cannot fill the
    log.

    A kind is the text before its arguments are put in. A message that passes says how many of its
    kind did not.
    """

    def __init__(self) -> None:
        super().__init__()
        self._kinds: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        until, silent = self._kinds.get(record.msg, (0.0, 0))
        if now < until:
            self._kinds[record.msg] = (until, silent + 1)
            return False
        self._kinds[record.msg] = (now + SELDOM_S, 0)
        if silent:
            record.msg = f"{record.msg} ({silent} more since it was last said)"
        return True
