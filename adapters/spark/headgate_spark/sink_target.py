"""What SparkSink writes its batches to with Spark: a folder of files, or anything else."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headgate.connector.api import DataError, RetriableError
from headgate.ports import TopicPartition
from headgate_connectors.formats.old_calendar import GREGORIAN_SECOND, has_older
from headgate_connectors.output.partitions import NULL_FOLDER
from headgate_connectors.tables.columns import Evolution, conform, merge_columns
from headgate_connectors.tables.delta_types import stored_schema
from headgate_connectors.tables.sink import Batch, TableError
from headgate_spark.arrow_rows import check_columns, prepare
from headgate_spark.csv_texts import has_written_as
from headgate_spark.files import local_path
from headgate_spark.folder_log import FolderLog
from headgate_spark.sessions import (
    Sessions,
    executors_lost,
    first_line,
    session_is_over,
    with_cause,
)

_ENDINGS: Final[Mapping[str, Sequence[str]]] = {
    "parquet": (".parquet",),
    "orc": (".orc",),
    "avro": (".avro",),
    "csv": (".csv",),
    "json": (".json", ".jsonl"),
    "text": (".txt",),
    "xml": (".xml",),
}
FILE_FORMATS: Final = tuple(_ENDINGS)
"""Formats whose files are staged and committed, exactly once."""
_MICROS: Final = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
_TIMES: Final = {"timestampFormat": f"{_MICROS}XXX", "timestampNTZFormat": _MICROS}
_SAFE: Final[Mapping[str, Mapping[str, str]]] = {
    "json": _TIMES,
    "xml": _TIMES,
    "csv": {
        **_TIMES,
        "header": "true",
        "escape": '"',
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
    },
}
"""Options without which Spark would cut microseconds, or spaces around a text."""
_TRIES: Final = 50
BATCH: Final = "batch"
"""Name under which the setting `sql` sees the rows of a batch."""


class WriteMode(StrEnum):
    """What to do with files that were in the folder before the sink's first batch.

    Names are those of Spark's `DataFrameWriter.mode`. Its `ignore` is missing on purpose: each
    record would be lost silently.
    """

    APPEND = "append"
    """Files stay, and those of the batches are added."""
    OVERWRITE = "overwrite"
    """Files are replaced by the first batch. Later batches are added to it."""
    ERROR = "error"
    """Files are an error, before anything is written."""


class SparkWriter:
    """Writes tables of pyarrow with Spark. For one thread."""

    def __init__(
        self,
        sessions: Sessions,
        format: str,
        options: Mapping[str, str],
        partition_by: Sequence[str],
        sql: str = "",
    ) -> None:
        self.format = format
        self.sql = sql
        """A query over each batch. Empty: rows are written as they are."""
        self._sessions = sessions
        self._options = {**_SAFE.get(format.lower(), {}), **options}
        self._partition_by = list(partition_by)
        self._prepared: Any = None

    def write(self, table: Any, path: str) -> None:
        """Append the rows. Without a `path`, the options say where.

        Raises:
            DataError: as in `check_rows`.
            RetriableError: Spark is out of reach.
            TableError: Spark cannot write it.
        """
        self.check_rows(table)
        with self._spark("Spark did not write the batch") as session:
            frame = session.createDataFrame(table)
            if path:
                frame = frame.coalesce(1)
            writer = frame.write.format(self.format).mode("append").options(**self._options)
            if self._partition_by:
                writer = writer.partitionBy(*self._partition_by)
            if path:
                writer.save(path)
            else:
                writer.save()

    def select(self, table: Any) -> Any:
        """Return the rows that `sql` makes of a batch, with types that the sink can keep.

        Raises:
            DataError: a column of the result has a type that cannot be kept.
            RetriableError: Spark is out of reach.
            TableError: Spark refuses the query, or a row.
        """
        if not self.sql:
            return table
        with self._spark("Spark did not run the query of the setting sql") as session:
            session.createDataFrame(table).createOrReplaceTempView(BATCH)
            frame = session.sql(self.sql)
            check_columns(frame)
            found = frame.toArrow()
        return found.cast(stored_schema(found.schema, "Spark"))

    @contextmanager
    def _spark(self, what: str) -> Iterator[Any]:
        """Yield a session. Errors in its use are told apart. `what` has failed, if it is no
        outage."""
        session: Any = None
        try:
            session = self._session()
            yield session
        except DataError:
            raise
        except Exception as error:
            if session is None or session_is_over(error):
                self._sessions.drop(session)
                why = self._sessions.why(error)
                raise RetriableError(f"Spark is out of reach: {why}") from error
            if executors_lost(error):
                raise RetriableError(f"Spark has lost executors: {first_line(error)}") from error
            raise TableError(f"{what}: {with_cause(error)}") from error

    def _session(self) -> Any:
        session = self._sessions.get()
        if session is not self._prepared:
            prepare(session, 10_000)
            # Otherwise a local time would become an instant.
            session.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
            # Spark would write INT96, which other readers take for nanoseconds in 64 bits. For
            # pyarrow, a time of the year 1000 would be one of 2169.
            session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
            self._prepared = session
        return session

    def check_rows(self, table: Any, known: Sequence[str] = ()) -> None:
        """Check the values of the rows.

        Args:
            known: columns that the files have besides those of `table`.

        Raises:
            DataError: Spark would change a value, at least for some readers.
        """
        for name in table.schema.names if self.format.lower() == "orc" else ():
            if has_older(pa, table.column(name), GREGORIAN_SECOND):
                raise DataError(
                    f"column {name} has a day before 15 October 1582, which Spark writes to ORC by "
                    "the old calendar, so that other readers take it for another day: write "
                    "Parquet, or make it a text by a transform (Cast)"
                )
        if self.format.lower() == "text":
            self._check_lines(table)
        names = {*known, *table.schema.names}.difference(self._partition_by)
        if self.format.lower() == "csv" and len(names) == 1 and not self._option("nullvalue"):
            (name,) = names
            if name not in table.schema.names or table.column(name).null_count:
                raise DataError(
                    f"column {name} is null, and is the only one: Spark writes no line for that, "
                    "and the record is lost. Add a column, set option.nullValue, or use another "
                    "format"
                )
        if self.format.lower() == "csv":
            self._check_texts(table)
        self._check_partitions(table)

    def _check_texts(self, table: Any) -> None:
        """Check that no value is written as a null is, and no text as an empty text is. By default
        Spark writes nothing and ``""`` for them."""
        null, empty = self._option("nullvalue") or "", self._option("emptyvalue")
        for name in table.schema.names:
            column = table.column(name)
            if name in self._partition_by:
                continue
            if not pa.types.is_string(column.type):
                if null and has_written_as(column, null, self._option("dateformat") is None):
                    raise DataError(
                        f"column {name} has a value that is written as {null!r}, which is what "
                        "option.nullValue writes: readers could not tell the two apart. Set it to "
                        "a text that does not occur"
                    )
                continue
            for value, option in ((null, "nullValue"), (empty, "emptyValue")):
                if value and pc.any(pc.equal(column, value)).as_py():
                    raise DataError(
                        f"column {name} has the text {value!r}, which is what option.{option} "
                        "writes: readers could not tell the two apart. Set it to a text that does "
                        "not occur"
                    )
            if empty == null and pc.any(pc.equal(column, "")).as_py():
                raise DataError(
                    f"column {name} has an empty text, which option.emptyValue makes the same as a "
                    "null: leave option.emptyValue out, or set it to a text that does not occur"
                )

    def _option(self, name: str) -> str | None:
        """Return an option by its name in lower case, as Spark looks it up."""
        return {key.lower(): text for key, text in self._options.items()}.get(name)

    def _check_lines(self, table: Any) -> None:
        """Check that each value is one line. Source: Spark's TextOutputWriter."""
        own = self._option("linesep")
        for name in table.schema.names:
            column = table.column(name)
            if name in self._partition_by or not pa.types.is_string(column.type):
                continue
            if column.null_count:
                raise DataError(f"column {name} is null, which Spark writes as an empty text")
            ends = ("\n", "\r") if own is None else (own,)
            if any(pc.any(pc.match_substring(column, end)).as_py() for end in ends):
                raise DataError(
                    f"column {name} has a line end, which readers of text take for the end of a "
                    "record: use another format, or set option.lineSep"
                )

    def _check_partitions(self, table: Any) -> None:
        for name in self._partition_by:
            if name not in table.schema.names:
                raise DataError(f"partition.by names {name}, which the value has no column for")
            column = table.column(name)
            if pa.types.is_binary(column.type):
                raise DataError(
                    f"column {name} of partition.by has bytes, of which Spark makes texts: those "
                    "that are no UTF-8 would be lost"
                )
            texts = column.unique().to_pylist() if pa.types.is_string(column.type) else ()
            for text, told in (("", "an empty text"), (NULL_FOLDER, f"the text {NULL_FOLDER}")):
                if text in texts:
                    raise DataError(
                        f"column {name} of partition.by has {told}, which Spark writes as null"
                    )

    def close(self) -> None:
        self._sessions.close()


class AnyTarget:
    """A target that keeps no offsets: rows that were written come again after a failure."""

    knows_offsets = False

    def __init__(self, writer: SparkWriter, path: str) -> None:
        self._writer = writer
        self._path = path

    @property
    def columns(self) -> Any:
        return None

    def stored_schema(self, columns: Any) -> Any:
        return stored_schema(columns, "Spark")

    def check_rows(self, rows: Any) -> None:
        """Check the rows. Raises `DataError`: Spark would change a value."""
        if not self._writer.sql:  # the query's rows are checked when they are written
            self._writer.check_rows(rows)

    def check_names(self, columns: Any) -> None: ...

    def promotes(self, was: Any, now: Any) -> bool:
        """Return False: columns keep their types, since readers take a folder of files for one
        table."""
        return False

    def read(self) -> None: ...

    def reached(self, place: TopicPartition) -> int | None:
        return None

    def last_time(self, place: TopicPartition) -> int | None:
        return None

    def commit(self, batch: Batch) -> bool:
        rows = self._writer.select(batch.data)
        if rows.num_rows:
            self._writer.write(rows, self._path)
        return True

    def close(self) -> None:
        self._writer.close()


class FolderTarget:
    """A folder of files, with commits of `headgate_spark.folder_log`: exactly once."""

    knows_offsets = True

    def __init__(
        self,
        writer: SparkWriter,
        root: Path,
        connector: str,
        evolution: Evolution,
        mode: WriteMode = WriteMode.APPEND,
    ) -> None:
        self._writer = writer
        self._root = root
        self._log = FolderLog(root, connector)
        self._evolution = evolution
        self._mode = mode

    @property
    def columns(self) -> Any:
        """Columns of the files. None if `sql` makes other columns of the records: they are compared
        later."""
        return None if self._writer.sql else _columns(self._log.columns)

    def stored_schema(self, columns: Any) -> Any:
        return stored_schema(columns, "Spark")

    def check_rows(self, rows: Any) -> None:
        """Check the rows. Raises `DataError`: Spark would change a value."""
        if not self._writer.sql:  # the query's rows are checked when they are written
            columns = self.columns
            self._writer.check_rows(rows, () if columns is None else columns.names)

    def check_names(self, columns: Any) -> None: ...

    def promotes(self, was: Any, now: Any) -> bool:
        """Return False: columns keep their types, since readers take a folder of files for one
        table."""
        return False

    def read(self) -> None:
        # Listed before the commits: a file that another task publishes meanwhile has a commit by
        # then.
        others = self._log.others() if self._is_first(WriteMode.ERROR) else ()
        self._log.read()
        if self._is_first(WriteMode.OVERWRITE):
            self._replaceable()  # otherwise it fails only when the first batch is written
        shown = [file for file in others if not Path(file).name.startswith(("_", "."))]
        if shown and self._is_first(WriteMode.ERROR):
            more = f" and {len(shown) - 1} more" if len(shown) > 1 else ""
            raise TableError(
                f"write.mode is error, and {self._root} has files that are not of this sink: "
                f"{shown[0]}{more}. Move them away, or set write.mode = append to write beside "
                "them, or overwrite to replace them"
            )
        self._log.drop_leftovers()

    def _is_first(self, mode: WriteMode) -> bool:
        """Return whether `mode` is the sink's, and nothing was committed yet."""
        return self._mode is mode and not self._log.has_begun

    def reached(self, place: TopicPartition) -> int | None:
        return self._log.offsets.get(place)

    def last_time(self, place: TopicPartition) -> int | None:
        return self._log.times.get(place)

    def commit(self, batch: Batch) -> bool:
        """Write the batch, then commit it. Return False if the folder is not at the offsets at
        which the batch begins."""
        token = ""
        written: Any = None
        rows = self._writer.select(batch.data)
        for _ in range(_TRIES):
            if self._is_behind(batch):
                if token:
                    self._log.drop(token)
                return False
            columns = merge_columns(_columns(self._log.columns), rows.schema, self._evolution)
            if written is None or not columns.equals(written):
                if token:
                    self._log.drop(token)
                token, written = self._log.token(batch.starts), columns
                staging = self._log.staging(token)
                staging.mkdir(parents=True)
                if rows.num_rows and not self._stage(conform(rows, columns), staging, batch):
                    self._log.drop(token)
                    return False
            # Of several first commits one succeeds: it alone replaces what it has found.
            replaced = self._replaceable() if self._is_first(WriteMode.OVERWRITE) else ()
            if self._log.commit(batch.ends, token, _text(columns), replaced, batch.times):
                return True
        raise TableError(f"others have written to the folder during each of {_TRIES} commits")

    def _replaceable(self) -> Sequence[str]:
        return self._log.replaceable(_ENDINGS[self._writer.format.lower()])

    def _stage(self, rows: Any, staging: Path, batch: Batch) -> bool:
        """Write the files of a batch. Return False if others have committed its rows meanwhile.
        They then drop these files, so Spark may fail because its folder is gone.

        Raises:
            RetriableError, TableError: as in `SparkWriter.write`, or the files are elsewhere.
        """
        try:
            self._writer.write(rows, local_path(staging))
        except TableError:
            if self._is_behind(batch):
                return False
            raise
        if _is_written(staging):
            return True
        if self._is_behind(batch):
            return False
        raise _elsewhere(staging)

    def _is_behind(self, batch: Batch) -> bool:
        """Return whether the folder has moved on from the offsets at which the batch begins."""
        self._log.read()
        return any(self.reached(place) != start for place, start in batch.starts.items())

    def close(self) -> None:
        self._writer.close()


def _is_written(staging: Path) -> bool:
    """Return whether the staging folder has files. Spark does not notice if an executor's folder is
    another one."""
    try:
        names = [path.name for path in staging.rglob("*") if path.is_file()]
    except FileNotFoundError:
        return False  # others are dropping it at this moment
    return not all(name.startswith(("_", ".")) for name in names)


def _elsewhere(staging: Path) -> TableError:
    return TableError(
        f"Spark has written the batch, and {staging} has nothing of it: its executors have another "
        "folder there. path must name a folder of a file system that the machines of the worker "
        "and of all executors have mounted there"
    )


def _text(columns: Any) -> str:
    return base64.b64encode(columns.serialize().to_pybytes()).decode()


def _columns(text: str) -> Any:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text))) if text else None
