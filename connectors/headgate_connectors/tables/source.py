"""Rows of a table as records, exactly once: what is common to the formats of tables.

A table is read in steps: all of it as it was at first, then what each later version (or snapshot)
has added. The rows are divided into shares by the names of their data files. The source partition
is the table and the share. The source offset says which step, which file of it, and how many rows
of that; a start in the middle of a file goes on there.
"""

import zlib
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol, TypeAlias

from headgate.connector.api import (
    OffsetReader,
    OffsetUpdate,
    Partition,
    RetriableError,
    SkippedRecord,
    SourceItem,
    SourceTask,
)
from headgate.connector.batches import RowOffsets, SourceBatch
from headgate.connector.config import ConfigError
from headgate.connector.schema import Schema
from headgate_arrow import compact
from headgate_connectors.files.reader import FileFault

BATCH_BYTES: Final = 16 * 1024 * 1024
"""Bytes from which on a poll takes no further rows."""
KEPT_ROWS: Final = 65_536
"""Most rows of one poll where the log keeps batches, unless ``batch.rows`` is set."""
_STEPS: Final = 200
"""Most steps of one poll: they may all be without rows."""
TASK, TASKS, BEGIN = "headgate.task", "headgate.tasks", "headgate.begin"
"""What the connector adds to the configs of its tasks: the number of each, that of all, and at
which step a share begins that has no offset."""
WHOLE, FROM, AFTER = "whole", "from", "after"
"""How `BEGIN` begins, before a space and a step: the whole table as of then, what that step and
later ones have added, or what later ones have."""
Polled: TypeAlias = SourceItem | SourceBatch


class TableSourceError(Exception):
    """The table cannot be read, or is not as the source has left it. For users."""


def told_of(name: str, error: TableSourceError) -> TableSourceError:
    """`error`, whose text is to follow a name, with that name."""
    return TableSourceError(f"{name} {error}")


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of a data file that follow each other."""

    start: int
    end: int
    """Number of the row after the last."""
    values: Any
    """RecordBatch with the columns of the step; None: they cannot be read, for `reason`."""
    reason: str = ""


class DataFile(Protocol):
    """A file with rows of a table, which never changes."""

    @property
    def name(self) -> str:
        """The name by which offsets and the table know it."""
        ...

    @property
    def rows(self) -> int | None:
        """How many rows it has, where the table says so."""
        ...

    def parts(self, row: int, limit: int) -> Iterator[Part]:
        """The rows from `row` on, at most `limit` of them in a part.

        Raises:
            FileFault: the file as a whole cannot be read.
            FileNotFoundError: it is gone.
            OSError: of the disk, or of the server.
        """
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """What one version, or one snapshot, of the table gives to a share."""

    told: str
    """What it is, such as "version 7 of the table at /data/orders"."""
    marks: Mapping[str, Any]
    """Members that all source offsets inside it have."""
    files: Sequence[DataFile]
    schema: Schema
    """STRUCT of the columns."""
    then: Mapping[str, Any]
    """The source offset once all of it is read."""
    gone: str
    """What a user can do about a file of it that is gone."""


class Steps(Protocol):
    """The steps of one share. Raises `TableSourceError` from all of its methods, or
    `RetriableError` where the table cannot be asked for now."""

    def begin(self, begin: str) -> Mapping[str, Any] | None:
        """The source offset before the first row; None: there is no table yet.

        Args:
            begin: as `BEGIN` has it.
        """
        ...

    def next(self, offset: Mapping[str, Any]) -> Step | None:
        """The step that `offset` is in, or before; None: there is nothing new."""
        ...


@dataclass(frozen=True, slots=True)
class Share:
    """A share of the rows: those of the files whose name gives its number."""

    number: int
    count: int

    def has(self, file: str) -> bool:
        return zlib.crc32(file.encode()) % self.count == self.number


class ShareReader:
    """The rows of one share, step after step."""

    def __init__(
        self,
        steps: Steps,
        partition: Partition,
        topic: str,
        offset: Mapping[str, Any] | None,
        begin: str,
        rows: int,
    ) -> None:
        """
        Args:
            offset: the committed source offset; None: there is none, and it begins at `begin`.
            rows: most rows of one poll.
        """
        self._steps = steps
        self._partition = partition
        self._topic = topic
        self._offset = offset
        self._begin = begin
        self._rows = rows
        self._running: Generator[Polled, None, None] | None = None
        self._held: Exception | None = None
        """What has come to pass behind rows that were given first."""

    def items(self) -> list[Polled]:
        """The next rows; none when there is nothing new.

        Raises:
            TableSourceError: the next step cannot be read. All rows before it were given.
            RetriableError: it cannot be looked for now; the next call does so again.
        """
        if self._held is not None:
            raise self._held
        found: list[Polled] = []
        rows = size = steps = 0
        running = self._running or self._all()
        self._running = running
        try:
            for item in running:
                # What comes next has a later offset.
                if found and isinstance(found[-1], OffsetUpdate):
                    found.pop()
                found.append(item)
                if isinstance(item, SourceBatch):
                    rows, size = rows + item.count, size + item.values.nbytes
                steps += isinstance(item, OffsetUpdate)
                if rows >= self._rows or size >= BATCH_BYTES or steps >= _STEPS:
                    return found
        except RetriableError:
            self._running = None  # it has ended; another one goes on from `_offset`
            if not found:
                raise
            return found
        except Exception as error:  # the rows before it come first
            self._held = error
            if not found:
                raise
            return found
        self._running = None
        return found

    def close(self) -> None:
        """Close the file that is open, if one is."""
        if self._running is not None:
            self._running.close()

    def _all(self) -> Generator[Polled, None, None]:
        """All there is now."""
        if self._offset is None:
            self._offset = self._steps.begin(self._begin)
            if self._offset is None:
                return
            yield OffsetUpdate(self._partition, self._offset)
        while (step := self._steps.next(self._offset)) is not None:
            yield from self._of_step(step, self._offset)
            self._offset = step.then
            yield OffsetUpdate(self._partition, self._offset)

    def _of_step(self, step: Step, offset: Mapping[str, Any]) -> Iterator[Polled]:
        files, row = list(step.files), 0
        name = offset.get("file")
        if name is not None:
            at = next((at for at, file in enumerate(files) if file.name == name), None)
            if at is None:
                raise TableSourceError(
                    f"{step.told} does not name the file {name}, which was read up to row "
                    f"{offset.get('row', 0)}: the table was made anew. {step.gone}"
                )
            done = bool(offset.get("done"))
            files = files[at + 1 if done else at :]
            row = 0 if done else int(offset.get("row", 0))
        for file in files:
            yield from self._of_file(step, file, row)
            row = 0

    def _of_file(self, step: Step, file: DataFile, row: int) -> Iterator[Polled]:
        shared = {**step.marks, "file": file.name}
        where = f"file {file.name} of {step.told}"
        try:
            for part in file.parts(row, self._rows):
                if part.values is None:
                    count = part.end - part.start
                    offset = {**shared, "row": part.end}
                    yield SkippedRecord(self._partition, offset, f"{where}: {part.reason}", count)
                else:
                    yield from self._batches(step, shared, part)
                row = part.end
        except FileFault as fault:
            left = 1 if file.rows is None else max(file.rows - row, 1)
            offset = {**shared, "row": row, "done": True}
            yield SkippedRecord(self._partition, offset, f"{where}: {fault}", left)
        except FileNotFoundError as error:
            raise TableSourceError(
                f"{where} is gone, and its rows from row {row} on were not read. {step.gone}"
            ) from error
        except OSError as error:
            raise TableSourceError(f"{where} cannot be read: {error}") from error

    def _batches(self, step: Step, shared: Mapping[str, Any], part: Part) -> Iterator[Polled]:
        rest, start = part.values, part.start
        while rest.num_rows:
            values = compact.first_part(rest, BATCH_BYTES)
            end = start + values.num_rows
            offsets = RowOffsets({"row": range(start + 1, end + 1)}, shared)
            yield SourceBatch(self._partition, offsets, self._topic, values, step.schema)
            rest, start = rest.slice(values.num_rows), end


class TableSourceTask(SourceTask):
    """Subclasses open the table."""

    NAME: ClassVar[str]
    """Name of the setting that says which table."""

    @abstractmethod
    def open_steps(self, config: Mapping[str, str], share: Share) -> Steps:
        """What one share reads."""

    @abstractmethod
    def settings(self, config: Mapping[str, str]) -> "SourceSettings": ...

    def start(self, config: Mapping[str, str]) -> None:
        settings = self.settings(config)
        known = self.context.offsets.committed()
        check_partitions(known, self.NAME, settings)
        rows = settings.rows
        if self.context.keeps_batches and "batch.rows" not in config:
            rows = KEPT_ROWS
        self._interval = settings.interval_s
        self._turn = 0
        self._shares: list[ShareReader] = []
        for number in range(int(config[TASK]), settings.shares, int(config[TASKS])):
            partition = partition_of(settings, number)
            offset = self.context.offsets.offset(partition)
            begin = config[BEGIN] if offset is not None else agreed_begin(known, config[BEGIN])
            steps = self.open_steps(config, Share(number, settings.shares))
            self._shares.append(ShareReader(steps, partition, settings.topic, offset, begin, rows))

    def poll(self) -> list[Polled] | None:
        for _ in self._shares:
            if items := self._shares[self._turn % len(self._shares)].items():
                return items
            self._turn += 1  # a share is read to its end before the next
        self.context.wait(self._interval)
        return None

    def stop(self) -> None:
        for share in getattr(self, "_shares", ()):
            share.close()


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """Settings that all sources of tables share."""

    topic: str
    table: str
    """Name of the table in source partitions."""
    starting: str
    """`WHOLE`, ``latest``, or a number."""
    skips: bool
    """Pass over what takes rows away."""
    shares: int
    rows: int
    interval_s: float


def partition_of(settings: SourceSettings, share: int) -> dict[str, Any]:
    """Source partition of one share."""
    return {"table": settings.table, "share": share, "of": settings.shares}


Committed: TypeAlias = Sequence[tuple[Partition, Mapping[str, Any]]]


def check_partitions(known: Committed, name: str, settings: SourceSettings) -> None:
    """
    Raises:
        ConfigError: rows were written of another table, or with another number of shares.
    """
    again = (
        "set it back, or stop the connector and reset its offsets to write everything anew, or "
        "give the connector another name"
    )
    for partition, _ in known:
        if partition.get("table") != settings.table:
            text = f"rows of {partition.get('table')} were written: {again}"
            raise ConfigError.of(name, settings.table, text)
        if partition.get("of") != settings.shares:
            text = f"rows were written with {partition.get('of')} shares: {again}"
            raise ConfigError.of("shares", settings.shares, text)


def begins(known: Committed) -> list[str]:
    """Where the shares with offsets have begun, each place once."""
    return sorted({offset["begin"] for _, offset in known if is_begin(offset.get("begin"))})


def agreed_begin(known: Committed, otherwise: str) -> str:
    """Where a share begins that has no offset: where the others did.

    Args:
        otherwise: where it begins if none has begun.

    Raises:
        TableSourceError: they began at different steps.
    """
    found = begins(known)
    if len(found) > 1:
        raise TableSourceError(
            f"the shares of the connector began differently ({', '.join(found)}), so where one "
            "without an offset begins is not known: stop the connector and reset all of its offsets"
        )
    return found[0] if found else otherwise


def task_configs(
    config: Mapping[str, str],
    settings: SourceSettings,
    tasks_max: int,
    offsets: OffsetReader,
    first: Callable[[], str],
) -> list[Mapping[str, str]]:
    """Configs of the tasks. All tasks must begin at one step, so it is found out here, and is not
    found out anew once rows were written.

    Args:
        first: the step that a new connector begins at, as `BEGIN` has it.
    """
    tasks = min(tasks_max, settings.shares)
    found = begins(offsets.committed())
    begin = found[0] if found else first()
    common = {**config, TASKS: str(tasks), BEGIN: begin}
    return [{**common, TASK: str(task)} for task in range(tasks)]


def alterable(offsets: Sequence[tuple[Partition, Mapping[str, Any] | None]], *steps: str) -> bool:
    """Preflight of offsets that a user alters.

    Args:
        steps: members of an offset that may name its step: a whole number.

    Raises:
        ConfigError: a partition or an offset is none of a table.
    """
    for partition, offset in offsets:
        if offset is None:
            continue  # anything may be forgotten
        if not {"table", "share", "of"} <= partition.keys():
            raise ConfigError("Partition objects should contain the keys table, share and of")
        step = next((key for key in steps if key in offset), steps[0])
        for key in (step, *(("row",) if "file" in offset else ())):
            value = offset.get(key)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise ConfigError(
                    f"Offset objects should either be null or contain the key {key!r} with a whole "
                    f"number of 0 or more, not {value!r}"
                )
        begin = offset.get("begin")
        if begin is not None and not is_begin(begin):
            raise ConfigError(
                f"The key 'begin' of an offset should be such as '{WHOLE} 12', not {begin!r}"
            )
    return True


def is_begin(text: Any) -> bool:
    """Whether it is what `BEGIN` may be."""
    kind, _, number = str(text).partition(" ")
    return kind in (WHOLE, FROM, AFTER) and number.isdecimal()
