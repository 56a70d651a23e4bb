"""The data folder of a cluster: held by one `headgate up`, joined by others, and its log opened."""

import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from headgate.log.retention import LogLimits
from headgate.ports import TransportError
from headgate.topics.config_events import Config
from headgate_runtime.command.errors import UpError
from headgate_runtime.transports.select import Transport
from headgate_runtime.up.disk import unusable

if TYPE_CHECKING:
    from headgate_embedded.retention import Retention

LOOK_EVERY_S = 2.0
NO_LIMITS: Final = LogLimits()


class Held(Protocol):
    """A claim on a data folder. Leaving the context gives it up."""

    def __enter__(self) -> "Held": ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def ended(self) -> bool:
        """Return whether the cluster that was joined is gone."""
        ...


class _Holder(contextlib.ExitStack):
    def __init__(self, lock: Any) -> None:
        super().__init__()
        self.enter_context(lock)

    def ended(self) -> bool:
        return False


class _Joined(contextlib.ExitStack):
    """A claim on a folder that another process has locked. Once the lock is free, that process has
    ended."""

    def __init__(self, data: Path) -> None:
        super().__init__()
        self._data = data
        self._look_at = time.monotonic() + LOOK_EVERY_S

    def ended(self) -> bool:
        if time.monotonic() < self._look_at:
            return False
        self._look_at = time.monotonic() + LOOK_EVERY_S
        return not _is_held(self._data)


def hold(data: Path) -> Held:
    """Hold the folder. It is made if it does not exist.

    Raises:
        UpError: another process holds it, or it cannot be made.
    """
    from headgate_embedded.folder import FolderHeldError, hold_folder

    try:
        return cast(Held, _Holder(hold_folder(data)))
    except FolderHeldError as error:
        raise UpError(f"{error} (headgate up --join)") from None
    except OSError as error:
        raise UpError(unusable(data, error)) from None


def join(data: Path) -> Held:
    """Work on a folder that another `headgate up` holds.

    Raises:
        UpError: no process holds it.
    """
    if not data.is_dir() or not _is_held(data):
        raise UpError(f"nobody runs a cluster on {data}: leave out --join to start one")
    return cast(Held, _Joined(data))


def _is_held(data: Path) -> bool:
    from headgate_embedded.folder import FolderHeldError, hold_folder

    try:
        hold_folder(data).close()
    except FolderHeldError:
        return True
    return False


def transport_settings(data: Path, limits: LogLimits = NO_LIMITS) -> dict[str, str]:
    """Return the settings with which workers and tasks reach the log."""
    from headgate_embedded.transport import transport_settings

    return transport_settings(data, limits)


def open_log(data: Path, warn: Callable[[str], None]) -> Transport:
    """Return the log in the folder. It is made if it does not exist.

    Raises:
        UpError: the file there is not our log, or cannot be used.
    """
    from headgate_embedded.schema import RefusedError
    from headgate_embedded.transport import open_transport

    try:
        return cast(Transport, open_transport(transport_settings(data), warn=warn))
    except RefusedError as error:
        raise UpError(f"{error}") from None
    except TransportError as error:
        raise UpError(f"the log in {data} cannot be opened: {error}") from None


def open_retention(
    data: Path,
    limits: LogLimits,
    is_sink: Callable[[Config], bool],
    named: Mapping[str, Config],
) -> "Retention":
    """Return the retention of the log in the folder; see
    `headgate_embedded.retention.Retention`."""
    from headgate_embedded.database import Database
    from headgate_embedded.retention import Retention
    from headgate_embedded.schema import FILE_NAME

    return Retention(Database(data / FILE_NAME), limits, is_sink, named)


def give_back(data: Path) -> int:
    """Shrink the log in the folder if much of it is free. Return the number of bytes freed.

    Raises:
        TransportError: it cannot be done now.
    """
    from headgate_embedded.database import Database
    from headgate_embedded.retention import give_back
    from headgate_embedded.schema import FILE_NAME

    if not (data / FILE_NAME).exists():
        return 0
    database = Database(data / FILE_NAME)
    try:
        return give_back(database)
    finally:
        database.close()
