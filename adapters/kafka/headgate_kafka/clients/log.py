"""librdkafka's log lines without repetitions. While a broker is away, librdkafka logs the same line
some twenty times a second."""

import logging
import re
import time
from collections.abc import Callable

SAME_S = 60.0
KEPT = 1_000
_VARYING = re.compile(r"\(after \d+ms in state [\w_]+(?:, \d+ identical error\(s\) suppressed)?\)")
_PREFIX = re.compile(r"^[A-Z_]+ \[[^\]]*#\w+-\d+\] \[thrd:[^\]]*\]: ")


class _OnceAMinute(logging.Handler):
    def __init__(self, warn: Callable[[str], None], now_s: Callable[[], float]) -> None:
        super().__init__(logging.WARNING)
        self._warn = warn
        self._now_s = now_s
        self._last: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        text = _VARYING.sub("", _PREFIX.sub("", record.getMessage())).strip()
        now = self._now_s()
        if now - self._last.get(text, -SAME_S) < SAME_S:
            return
        if len(self._last) > KEPT:
            self._last.clear()
        self._last[text] = now
        self._warn(text)


def client_logger(
    warn: Callable[[str], None], now_s: Callable[[], float] = time.monotonic
) -> logging.Logger:
    """Return a logger for the argument `logger` of confluent-kafka's clients.

    Warnings and errors go to `warn`, each text at most once a minute. Lines come only while the
    client is polled.
    """
    logger = logging.Logger("headgate_kafka.librdkafka", logging.WARNING)
    logger.addHandler(_OnceAMinute(warn, now_s))
    return logger
