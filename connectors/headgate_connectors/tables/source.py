"""A source of table rows, exactly once: the part that all table formats share.

A table is read in steps. The first step may be the whole table at one version (or snapshot). Each
later step is the rows that one version has added. The rows are divided into shares by the names of
their data files.

The source partition is the table and the share. The source offset names the step, a file of the
step, and how many rows of the file were read. A task that starts in the middle of a file continues
there.
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
"""A poll with this many bytes takes no further rows."""
KEPT_ROWS: Final = 65_536
"""Maximum rows of one poll if the log keeps batches and ``batch.rows`` is not set."""
_STEPS: Final = 200
"""Maximum steps of one poll. It bounds a poll whose steps have no rows."""
TASK, TASKS, BEGIN = "headgate.task", "headgate.tasks", "headgate.begin"
"""Keys that the connector adds to its task configs: the task's number, the number of tasks, and the
step at which a share without a source offset begins."""
WHOLE, FROM, AFTER = "whole", "from", "after"
"""First words of the value of `BEGIN`, before a space and the number of a step. `WHOLE`: read the
whole table as of that step. `FROM`: read what that step and later ones added. `AFTER`: read what
later ones added."""
Polled: TypeAlias = SourceItem | SourceBatch


class TableSourceError(Exception):
    """The table cannot be read, or was changed in a way that the source cannot follow. The message
    is for users."""


def told_of(name: str, error: TableSourceError) -> TableSourceError:
    """Return `error` with `name` before its text."""
    return TableSourceError(f"{name} {error}")


@dataclass(frozen=True, slots=True)
class Part:
    """A range of consecutive rows of a data file."""

    start: int
    end: int
    """Number of the row after the last."""
    values: Any
    """RecordBatch with the columns of the step. None: the rows cannot be read, for `reason`."""
    reason: str = ""


class DataFile(Protocol):
    """A file with rows of a table. It is never changed once it is written."""

    @property
    def name(self) -> str:
        """The file's name in source offsets and in the table."""
        ...

    @property
    def rows(self) -> int | None:
        """The file's row count, or None if the table does not say it."""
        ...

    def parts(self, row: int, limit: int) -> Iterator[Part]:
        """Yield the rows from `row` on, at most `limit` in a part.

        Raises:
            FileFault: the file as a whole cannot be read.
            FileNotFoundError: the file does not exist any more.
            OSError: the disk or the server failed.
        """
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """The files of one share in one version, or snapshot, of the table."""

    told: str
    """Name of the step in messages, such as "version 7 of the table at /data/orders"."""
    marks: Mapping[str, Any]
    """Members that all source offsets within the step have."""
    files: Sequence[DataFile]
    schema: Schema
    """STRUCT of the columns."""
    then: Mapping[str, Any]
    """The source offset after all files of the step were read."""
    gone: str
    """Advice to the user if a file of the step does not exist any more."""


class Steps(Protocol):
    """The steps of one share.

    All methods raise `TableSourceError`, or `RetriableError` if the table cannot be reached now.
    """

    def begin(self, begin: str) -> Mapping[str, Any] | None:
        """Return the source offset before the first row, or None if there is no table yet.

        Args:
            begin: where to begin, in the form of `BEGIN` in the task config.
        """
        ...

    def next(self, offset: Mapping[str, Any]) -> Step | None:
        """Return the step in which, or before which, `offset` stands. None: there is nothing
        new."""
        ...


@dataclass(frozen=True, slots=True)
class Share:
    """A share of the rows: those of the data files whose name hashes to its number (CRC-32 modulo
    `count`)."""

    number: int
    count: int

    def has(self, file: str) -> bool:
        return zlib.crc32(file.encode()) % self.count == self.number


class ShareReader:
    """Reads the rows of one share, step after step."""

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
            offset: the committed source offset. None: there is none, so the share begins at
                `begin`.
            rows: maximum rows of one poll.
        """
        self._steps = steps
        self._partition = partition
        self._topic = topic
        self._offset = offset
        self._begin = begin
        self._rows = rows
        self._running: Generator[Polled, None, None] | None = None
        self._held: Exception | None = None
        """An error met after rows that were returned first. The next call raises it."""

    def items(self) -> list[Polled]:
        """Return the next rows. An empty list: there is nothing new.

        Raises:
            TableSourceError: the next step cannot be read. All rows before it were returned.
            RetriableError: the table cannot be reached now. The next call tries again.
        """
        if self._held is not None:
            raise self._held
        found: list[Polled] = []
        rows = size = steps = 0
        running = self._running or self._all()
        self._running = running
        try:
            for item in running:
                # The item that follows an OffsetUpdate has a later offset, and so replaces it.
                if found and isinstance(found[-1], OffsetUpdate):
                    found.pop()
                found.append(item)
                if isinstance(item, SourceBatch):
                    rows, size = rows + item.count, size + item.values.nbytes
                steps += isinstance(item, OffsetUpdate)
                if rows >= self._rows or size >= BATCH_BYTES or steps >= _STEPS:
                    return found
        except RetriableError:
            self._running = None  # the generator has ended; a new one goes on from `_offset`
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
        """Yield all rows that the table has now, and an offset after each step."""
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
    """A task that reads shares of a table. Subclasses open the table."""

    NAME: ClassVar[str]
    """Name of the setting that names the table."""

    @abstractmethod
    def open_steps(self, config: Mapping[str, str], share: Share) -> Steps:
        """Return the steps of one share."""

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
            self._turn += 1  # a share is read to its end before the next one is
        self.context.wait(self._interval)
        return None

    def stop(self) -> None:
        for share in getattr(self, "_shares", ()):
            share.close()


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """Settings that all table sources have."""

    topic: str
    table: str
    """Name of the table in source partitions."""
    starting: str
    """`WHOLE`, ``latest``, or a number."""
    skips: bool
    """Pass over steps that take rows away."""
    shares: int
    rows: int
    interval_s: float


def partition_of(settings: SourceSettings, share: int) -> dict[str, Any]:
    """Return the source partition of one share."""
    return {"table": settings.table, "share": share, "of": settings.shares}


Committed: TypeAlias = Sequence[tuple[Partition, Mapping[str, Any]]]


def check_partitions(known: Committed, name: str, settings: SourceSettings) -> None:
    """Check that committed source partitions are those of the present settings.

    Raises:
        ConfigError: rows of another table were written, or the number of shares was another one.
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
    """Return where the shares with offsets began, without duplicates, sorted."""
    return sorted({offset["begin"] for _, offset in known if is_begin(offset.get("begin"))})


def agreed_begin(known: Committed, otherwise: str) -> str:
    """Return where a share without an offset begins: at the same step as the other shares.

    Args:
        otherwise: where the share begins if no share has an offset.

    Raises:
        TableSourceError: the other shares began at different steps.
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
    """Return the task configs. All tasks must begin at the same step, so the step is determined
    here. Once rows were written, the step is taken from their offsets.

    Args:
        first: returns the step at which a new connector begins, in the form of `BEGIN`.
    """
    tasks = min(tasks_max, settings.shares)
    found = begins(offsets.committed())
    begin = found[0] if found else first()
    common = {**config, TASKS: str(tasks), BEGIN: begin}
    return [{**common, TASK: str(task)} for task in range(tasks)]


def alterable(offsets: Sequence[tuple[Partition, Mapping[str, Any] | None]], *steps: str) -> bool:
    """Check source offsets that a user wants to set. Returns True if they are well-formed.

    Args:
        steps: members of an offset that may name its step, each a whole number.

    Raises:
        ConfigError: a partition or an offset is not one of a table source.
    """
    for partition, offset in offsets:
        if offset is None:
            continue  # any partition may be reset, so a bad one can be removed
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
    """Return whether `text` is a valid value of `BEGIN`, such as ``whole 12``."""
    kind, _, number = str(text).partition(" ")
    return kind in (WHOLE, FROM, AFTER) and number.isdecimal()
