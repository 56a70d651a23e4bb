"""The log of a standalone worker: data on Kafka, everything else in a folder of its own.

Configs, statuses and the group of one are on the embedded log in a temporary folder, which is
deleted at the worker's end; Connect keeps them in memory. Source offsets are there as well, because
tasks may be other processes. `OffsetKeeper` copies them from the user's file and back.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from headgate.ports import KeyedLog
from headgate_runtime.standalone.offset_file import OffsetFile, OffsetFileError, reason

log = logging.getLogger(__name__)

UNUSED_TOPIC: Final = "headgate-standalone-has-no-offsets-topic"
SAVE_S: Final = 1.0
_OWN_TOPIC_KEY: Final = "offsets.storage.topic"


class StandaloneTransport:
    """All ports of the worker, except `Peers`, which come from elsewhere."""

    def __init__(self, transport: Mapping[str, str], warn: Callable[[str], None]) -> None:
        import headgate_embedded

        inner = headgate_embedded.open_transport(transport, warn=warn)
        self.config_log = inner.config_log
        self.offset_log = inner.offset_log
        self.status_log = inner.status_log
        self.group = inner.group
        self.record_log = inner.record_log
        self.fencer = inner.fencer
        self.clock = inner.clock
        self._inner = inner

    def subscribe(self, on_change: Callable[[], None]) -> bool:
        return self._inner.subscribe(on_change)

    def changed(self) -> bool:
        return self._inner.changed()

    def close(self) -> None:
        self._inner.close()


class StandaloneTaskTransport:
    """The ports that the tasks of one connector need: records on Kafka, offsets in the folder."""

    def __init__(self, inner: Any, kafka: Any) -> None:
        self.offset_log = inner.offset_log
        self.record_log = kafka.record_log
        self.fencer = kafka.fencer
        self.clock = inner.clock
        self.offset_view = inner.offset_view
        self._opened = (inner, kafka)

    def close(self) -> None:
        for each in self._opened:
            each.close()


def open_transport(
    transport: Mapping[str, str], *, url: str = "", warn: Callable[[str], None] = log.warning
) -> StandaloneTransport:
    """Return the ports of the worker.

    Args:
        transport: the worker's properties, and those of the embedded log's folder.
        url: not used here.
    """
    return StandaloneTransport(transport, warn)


def open_task_transport(
    transport: Mapping[str, str],
    connector_config: Mapping[str, str],
    *,
    connector: str,
    kind: str,
    exactly_once: bool,
    warn: Callable[[str], None] = log.warning,
) -> StandaloneTaskTransport:
    """Return the ports of a connector's tasks. As in Connect, its `offsets.storage.topic` is
    ignored."""
    import headgate_embedded
    import headgate_kafka

    config = {key: text for key, text in connector_config.items() if key != _OWN_TOPIC_KEY}
    names: dict[str, Any] = {"connector": connector, "kind": kind, "exactly_once": exactly_once}
    kafka = headgate_kafka.open_task_transport(
        {**transport, "offset.storage.topic": UNUSED_TOPIC}, config, **names, warn=warn
    )
    return StandaloneTaskTransport(
        headgate_embedded.open_task_transport(transport, config, **names, warn=warn), kafka
    )


def unreached(transport: Mapping[str, str], connector_config: Mapping[str, str], kind: str) -> str:
    import headgate_kafka

    return headgate_kafka.unreached(
        transport, connector_config, "source" if kind == "source" else "sink"
    )


def before_forks() -> None:
    """Load what `open_task_transport` needs, and make what Kafka clients share."""
    import headgate_embedded  # noqa: F401
    import headgate_kafka

    headgate_kafka.before_forks()


class OffsetKeeper:
    """Copies source offsets between the folder's offset log and the user's file. `load` is called
    before any task runs. Then a thread writes the file when offsets have changed, and `close`
    writes it for the last time."""

    def __init__(self, file: OffsetFile, offset_log: KeyedLog) -> None:
        self._file = file
        self._log = offset_log
        self._position = 0
        self._offsets: dict[bytes, bytes | None] = {}
        self._unsaved = False
        self._error_text: str | None = None
        """The error that was last logged. None: the file was written since."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="offset-file", daemon=True)

    def load(self) -> None:
        """Load the user's file into the offset log, and start the thread.

        Raises:
            OffsetFileError: the file cannot be read.
        """
        found = [(key, value) for key, value in self._file.load().items() if value is not None]
        if found:
            self._log.append(found)
        self._read()
        self._unsaved = False
        self._thread.start()

    def close(self) -> None:
        """Stop the thread, and write the file if there are changes.

        Raises:
            OffsetFileError: the changes could not be written.
        """
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        self._read()
        try:
            self._save()
        except OSError as error:
            raise OffsetFileError(
                f"{self._file.path} cannot be written: {reason(error)}; the last source offsets "
                "were not written, and source connectors will begin where the file says, if there "
                "is one"
            ) from None

    def _keep(self) -> None:
        while not self._ended.wait(SAVE_S):
            try:
                self._read()
                self._save()
                self._error_text = None
            except OSError as error:
                self._warn(reason(error))
            except Exception:  # a bug, or a log that cannot be read just now: a thread that ended
                # would lose every offset from here on, and nothing is forgotten by looking again
                log.exception("offsets are not written to %s, trying again", self._file.path)

    def _warn(self, error_text: str) -> None:
        """Log each error once, although the write is tried every second."""
        if error_text != self._error_text:
            log.warning("%s cannot be written, trying again: %s", self._file.path, error_text)
            self._error_text = error_text

    def _read(self) -> None:
        while True:
            records, self._position = self._log.read(self._position)
            if not records:
                return
            for record in records:
                if record.key is not None:
                    self._offsets.pop(record.key, None)
                    if record.value is not None:
                        self._offsets[record.key] = record.value
            self._unsaved = True

    def _save(self) -> None:
        if self._unsaved:
            self._file.save(self._offsets)
            self._unsaved = False
