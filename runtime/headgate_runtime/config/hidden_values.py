"""Log lines of this process without the values of references in configs.

The handlers write the reference in place of its value, whether the worker, a task or a connector's
own logger logs it. What a connector prints itself is not covered.
"""

import logging
import threading
from collections.abc import Mapping

from headgate.connector.config_providers import SHORT, HiddenValues

_FORMATTER = logging.Formatter()


class _Hiding(logging.Filter):
    """Filter of all log handlers of the process. It keeps every value: one that was replaced may
    still be a secret."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._references: dict[str, str] = {}
        """References by value. Short values are left out: numbers, for example, would be found in
        any line."""
        self._values = HiddenValues(())

    def add(self, found: Mapping[str, str]) -> None:
        with self._lock:
            known = len(self._references)
            for reference, value in found.items():
                if len(value) >= SHORT:
                    self._references.setdefault(value, reference)
            if len(self._references) > known:
                pairs = [(reference, value) for value, reference in self._references.items()]
                self._values = HiddenValues(pairs)

    def filter(self, record: logging.LogRecord) -> bool:
        hide = self._values.hide
        record.msg, record.args = hide(record.getMessage()), None
        if record.exc_info and not record.exc_text:
            record.exc_text = _FORMATTER.formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = hide(record.exc_text)
        trace = getattr(record, "trace", None)
        if isinstance(trace, str):
            record.trace = hide(trace)
        return True


_HIDING = _Hiding()


def hide_in_logs(found: Mapping[str, str]) -> None:
    """Hide values in all log lines from now on. `found` is a
    `headgate.connector.config_providers.Transformed.found`."""
    if not found:
        return
    _HIDING.add(found)
    for handler in (*logging.getLogger().handlers, logging.lastResort):
        if handler is not None:
            handler.addFilter(_HIDING)  # a handler has it once, however often it is added
