"""The ports of Headgate on one SQLite file, for several processes on one machine, without a
broker."""

from headgate_embedded.folder import FolderHeldError, FolderLock, hold_folder, is_held
from headgate_embedded.machine import boot_id, same_machine
from headgate_embedded.schema import RefusedError
from headgate_embedded.transport import (
    EmbeddedReader,
    EmbeddedTransport,
    GroupDescription,
    check_machine,
    open_reader,
    open_task_transport,
    open_transport,
    transport_settings,
)

__all__ = [
    "EmbeddedReader",
    "EmbeddedTransport",
    "FolderHeldError",
    "FolderLock",
    "GroupDescription",
    "RefusedError",
    "boot_id",
    "check_machine",
    "hold_folder",
    "is_held",
    "open_reader",
    "open_task_transport",
    "open_transport",
    "same_machine",
    "transport_settings",
]
