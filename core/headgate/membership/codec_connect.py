"""Codec of Connect's own protocols: `default` (version 0), `compatible` (1), `sessioned` (2).

All numbers are big-endian. str is an int16 byte count and UTF-8; bytes? is an int32 count and
bytes; array is an int32 count and items. Where a type has a ?, a count of -1 means null.

Metadata    version int16, url str, config offset int64; from version 1 on also
            current assignment bytes?
Assignment  version int16, error int16, leader str, leader url str, config offset int64,
            assigned array; from version 1 on also revoked array?, delay int32; assigned array?
Item        connector str, array of int32: task numbers, -1 for the connector itself

The current assignment is a whole assignment message: all work that the member holds, and the other
fields of the last assignment it received. It is null if it received none. Versions 1 and 2 have
the same layout.

All three are read alike, as in Java: any version that is not negative is read as version 1. Fields
may be missing at the end, and bytes after the last field are ignored. What is written equals Java's
bytes: an assigned array has its connectors in the order of a Java set, then the connectors of which
only tasks are assigned.

Source: `ConnectProtocol`, `IncrementalCooperativeConnectProtocol`, `ExtendedAssignment`,
`WorkerCoordinator.onJoinComplete`.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

from headgate.assignment.model import MemberAssignment
from headgate.ids import TaskId
from headgate.java.hash import STRINGS, in_set_order
from headgate.membership.codec_model import Assignment, AssignmentError, Metadata
from headgate.wire import WireError

CONNECTOR: Final = -1
"""Number that stands for the connector itself among the numbers of its tasks."""

STRING_BYTES_MAX: Final = 2**15 - 1

NAMES_CACHED: Final = 2**15
"""Number of names cached; in a big group's round, the messages of many members repeat them."""

TASKS_CACHED: Final = 2**17
"""Number of task ids cached; every round reports them again."""

_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")
_I64: Final = struct.Struct(">q")
_ONE: Final = struct.Struct(">ii")


class ConnectCodec:
    def __init__(self, version: int) -> None:
        self._version = version

    def encode_metadata(self, metadata: Metadata, /) -> bytes:
        parts = [
            _I16.pack(self._version),
            _string(metadata.url),
            _I64.pack(metadata.config_offset),
        ]
        if self._version >= 1:
            current = _current(metadata)
            if current is None:
                parts.append(_I32.pack(-1))
            else:
                data = self.encode_assignment(current)
                parts += [_I32.pack(len(data)), data]
        return b"".join(parts)

    def decode_metadata(self, data: bytes, /) -> Metadata:
        read = _Reader(data)
        read.version()
        url, config_offset = read.string("url"), read.int64("config offset")
        current = read.nullable("current assignment")
        if current is None:
            return Metadata(url, config_offset)
        last = self.decode_assignment(current)
        return Metadata(
            url=url,
            config_offset=config_offset,
            connectors=last.change.assigned_connectors,
            tasks=last.change.assigned_tasks,
            last_delay_ms=last.delay_ms,
            last=last,
        )

    def encode_assignment(self, assignment: Assignment, /) -> bytes:
        change = assignment.change
        connectors: Sequence[str] = change.assigned_connectors
        if len(connectors) > 1:
            connectors = in_set_order(connectors, STRINGS)
        parts = [
            _I16.pack(self._version),
            _I16.pack(assignment.error),
            _string(assignment.leader),
            _string(assignment.leader_url),
            _I64.pack(assignment.config_offset),
            _works(connectors, change.assigned_tasks),
        ]
        if self._version >= 1:
            revoked = dict.fromkeys(change.revoked_connectors)
            parts += [_works(revoked, change.revoked_tasks), _I32.pack(assignment.delay_ms)]
        return b"".join(parts)

    def decode_assignment(self, data: bytes, /) -> Assignment:
        read = _Reader(data)
        read.version()
        error = read.int16("error")
        return Assignment(
            # Java also treats any other number as a failure.
            error=AssignmentError.CONFIG_MISMATCH if error else AssignmentError.NONE,
            leader=read.string("leader"),
            leader_url=read.string("leader url"),
            config_offset=read.int64("config offset"),
            change=MemberAssignment(*read.works("assigned"), *read.works("revoked")),
            delay_ms=read.int32("delay") if read.more() else 0,
        )


def _current(metadata: Metadata) -> Assignment | None:
    last = metadata.last
    if last is None:
        if not metadata.connectors and not metadata.tasks:
            return None
        # The member gave its assignment up, but not all of its work has stopped.
        last = Assignment(AssignmentError.NONE, "", "", -1, delay_ms=metadata.last_delay_ms)
    held = replace(
        last.change, assigned_connectors=metadata.connectors, assigned_tasks=metadata.tasks
    )
    return replace(last, change=held)


@lru_cache(maxsize=NAMES_CACHED)
def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


_task = lru_cache(maxsize=TASKS_CACHED)(TaskId)


@lru_cache(maxsize=NAMES_CACHED)
def _string(text: str) -> bytes:
    # Half of a surrogate pair becomes "?", as in Java.
    data = text.encode("utf-8", "replace")
    if len(data) > STRING_BYTES_MAX:
        raise WireError(
            f"{text[:80]!r}… takes {len(data)} bytes, {STRING_BYTES_MAX} is the most a string has"
        )
    return _I16.pack(len(data)) + data


def _works(connectors: Iterable[str], tasks: Iterable[TaskId]) -> bytes:
    numbers = {name: [CONNECTOR] for name in connectors}
    for task in tasks:
        name = task.connector
        if name in numbers:
            numbers[name].append(task.task)
        else:
            numbers[name] = [task.task]
    parts = [_I32.pack(len(numbers))]
    add, one = parts.append, _ONE.pack
    for name, of_name in numbers.items():
        count = len(of_name)
        add(_string(name))
        add(one(1, of_name[0]) if count == 1 else struct.pack(f">{count + 1}i", count, *of_name))
    return b"".join(parts)


class _Reader:
    """Reads the fields of a message in order."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def more(self) -> bool:
        return self._at < len(self._data)

    def version(self) -> None:
        found = self.int16("version")
        if found < 0:
            raise WireError(f"version {found}, expected 0 or higher: {self._data[:80]!r}")

    def int16(self, name: str) -> int:
        return int(self._fixed(_I16, name))

    def int32(self, name: str) -> int:
        return int(self._fixed(_I32, name))

    def int64(self, name: str) -> int:
        return int(self._fixed(_I64, name))

    def string(self, name: str) -> str:
        count = self.int16(name)
        if count < 0:
            raise WireError(f"{name} has a length of {count}, expected a string")
        return _text(self._take(count, name))

    def nullable(self, name: str) -> bytes | None:
        """Read bytes; None if they are null or missing."""
        count = self.int32(name) if self.more() else -1
        return None if count < 0 else self._take(count, name)

    def works(self, name: str) -> tuple[tuple[str, ...], tuple[TaskId, ...]]:
        """Read connectors and tasks in order; none if the array is null or missing."""
        connectors: list[str] = []
        tasks: list[TaskId] = []
        entries = self.int32(name) if self.more() else 0
        data, at = self._data, self._at
        read_int16, read_int32 = _I16.unpack_from, _I32.unpack_from
        try:
            for _ in range(entries):
                begin = at + 2
                end = begin + read_int16(data, at)[0]
                count = read_int32(data, end)[0]
                if end < begin or count < 0:
                    raise WireError(f"{name} has a null at byte {at}: {data[:80]!r}")
                connector = _text(data[begin:end])
                at = end + 4 + 4 * count
                numbers: tuple[int, ...] = (
                    read_int32(data, end + 4)
                    if count == 1
                    else struct.unpack_from(f">{count}i", data, end + 4)
                )
                for number in numbers:
                    if number == CONNECTOR:
                        connectors.append(connector)
                    else:
                        tasks.append(_task(connector, number))
        except struct.error:
            raise WireError(
                f"{name} goes on at byte {at}, and there are {len(data)} bytes: {data[:80]!r}"
            ) from None
        self._at = at
        return tuple(connectors), tuple(tasks)

    def _fixed(self, kind: struct.Struct, name: str) -> int:
        return int(kind.unpack(self._take(kind.size, name))[0])

    def _take(self, count: int, name: str) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise WireError(
                f"{name} needs {count} bytes at byte {self._at}, and there are "
                f"{len(self._data) - self._at} more: {self._data[:80]!r}"
            )
        found = self._data[self._at : end]
        self._at = end
        return found
