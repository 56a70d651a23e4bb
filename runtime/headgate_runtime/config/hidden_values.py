"""Log lines of this process without the values that configs only refer to.

Whatever logs (the worker, a task, a connector with a logger of its own), the handlers write the
reference where its value would stand. A connector that prints does so by itself.
"""

import logging
import threading
from collections.abc import Mapping

from headgate.connector.config_providers import SHORT, HiddenValues

_FORMATTER = logging.Formatter()


class _Hiding(logging.Filter):
    """Filter of all handlers of the process. It keeps every value: one that was replaced by
    another may be a secret still."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._references: dict[str, str] = {}
        """References by value. Short ones are left out: numbers, say, would be found in any
        line."""
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
    """From now on; `found` as of `headgate.connector.config_providers.Transformed`."""
    if not found:
        return
    _HIDING.add(found)
    for handler in (*logging.getLogger().handlers, logging.lastResort):
        if handler is not None:
            handler.addFilter(_HIDING)  # which is there once, however often it is added
