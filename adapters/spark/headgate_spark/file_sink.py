"""SparkFileSink: records of topics into files, exactly once, in batches that run on Spark.

Each file holds records of one topic-partition, in order of their offsets. A value that is a JSON
object becomes columns; in JSON files the object stays as it is. Any other value is text in the
column ``value``. `headgate_spark.columns` has the types, and `headgate_spark.manifest` says how a
batch commits.
"""

import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

from headgate.connector.api import (
    DataError,
    ExactlyOnceSupport,
    PlannedSinkTask,
    RetriableError,
    SinkConnector,
)
from headgate.connector.config import ConfigDef, ConfigError, Importance, Type
from headgate.connector.error_handling import ErrorSettings
from headgate.connector.sink_names import sink_topics, topic_pattern
from headgate.connector.validators import at_least, non_empty, one_of
from headgate.log.looks import last_record
from headgate.ports import TopicPartition, UnknownTopicError
from headgate_connectors.output.folders import folder_fault
from headgate_spark.alterations import alter, look
from headgate_spark.bad_records import BadRecords
from headgate_spark.batches import BatchSize, Range, cut, next_batch
from headgate_spark.columns import DECLARED, NULL, Spelling, type_name, unite_columns
from headgate_spark.entries import FOLDER, Entry, published_path
from headgate_spark.files import LocalFiles
from headgate_spark.manifest import Manifest
from headgate_spark.missing_output import MissingOutput
from headgate_spark.readable import has_envelope, refusals
from headgate_spark.sessions import Sessions, session_is_over
from headgate_spark.skin import OtherVersionError, on_executors, refusal
from headgate_spark.slices import (
    METADATA,
    RESULT_SCHEMA,
    OtherFolderError,
    SliceResult,
    SliceTask,
    run_slices,
)

_log = logging.getLogger("headgate.task")

RECORDS_MAX = 1_000_000
INTERVAL_MS = 1_000
FORMATS = ("parquet", "json", "csv")
REMOTE = "spark.remote"
"""Worker setting: address of the Spark Connect server."""


def config_def() -> ConfigDef:
    high, medium, low = Importance.HIGH, Importance.MEDIUM, Importance.LOW
    return (
        ConfigDef()
        .define("path", Type.STRING, validator=non_empty, importance=high,
                documentation="Folder for the files, a path or a file: address. It is made if it "
                "is not there; relative paths start at the pipeline file.")
        .define("format", Type.STRING, "parquet", one_of(*FORMATS), high,
                "Format of the files: parquet, json (one object per line) or csv.")
        .define("batch.records.max", Type.INT, RECORDS_MAX, at_least(1), medium,
                "Most records of one batch, all topics and partitions together. Where many "
                "wait a batch has as many as it writes in 3 s, and at first 200,000.")
        .define("batch.interval.ms", Type.LONG, INTERVAL_MS, at_least(0), medium,
                "How long records may wait for others to share their batch, unless it is full.")
        .define("on.missing.output", Type.STRING, "fail", one_of("fail", "rewrite", "accept"), low,
                "What to do if the folder has nothing of a topic partition although records of it "
                "were committed, or has lost files. Choose 'fail' to fail the task, 'rewrite' to "
                "write what the log still has from its beginning (where only some files are gone "
                "it fails, too), 'accept' to go on without those records.")
        .define("columns.case", Type.STRING, "merge", one_of("merge", "keep"), low,
                "What becomes of fields that differ from a column in case only, such as id and ID, "
                "which Spark, Hive and DuckDB take for one. Choose 'merge' to write them to the "
                "column that was there first, 'keep' to make a column for each. Of a record with "
                "both, 'merge' makes a bad record. JSON files have the fields as they are.")
        .define("columns.types", Type.LIST, "", _declared, medium,
                "Types of columns, such as price: double, note: string, for fields without a "
                "schema; boolean, long, double or string. A column is of its declared type, or "
                "else of the type of its first values. What does not fit is a bad record; a column "
                "of type string takes any value, as text. For parquet.")
        .define("on.null.value", Type.STRING, "keep", one_of("keep", "skip", "fail"), low,
                "What becomes of a record without a value (a tombstone): keep, which writes a row "
                "of nulls, skip, or fail.")
        .define("columns.metadata", Type.LIST, "", _known_metadata, low,
                "Columns to add, each with _ before its name: " + ", ".join(METADATA)
                + ". file and position are where DirectorySource read the record.")
    )  # fmt: skip


def _known_metadata(name: str, value: Any) -> None:
    for given in value or ():
        if given not in METADATA:
            known = ", ".join(METADATA)
            raise ConfigError.of(name, given, f"expected some of {known}")


def _declared(name: str, value: Any) -> None:
    for given in value or ():
        column, colon, kind = given.rpartition(":")
        if not colon or not column.strip() or kind.strip() not in DECLARED:
            known = ", ".join(DECLARED)
            raise ConfigError.of(name, given, f"expected column: type, with a type of {known}")


def declared_columns(given: Sequence[str]) -> dict[str, str]:
    """Return the kinds in `columns.types`, by column."""
    pairs = (one.rpartition(":") for one in given)
    return {column.strip(): kind.strip() for column, _, kind in pairs}


class RecordsGoneError(Exception):
    """The log no longer has the records at which the next batch is to begin."""


class ColumnTypeError(Exception):
    """The folder has a column whose type differs from the declared one."""


class SparkFileSinkTask(PlannedSinkTask):
    """The one task of a `SparkFileSink`."""

    def start(self, config: Mapping[str, str]) -> None:
        parsed = config_def().parse(_own(config))
        self._target = target_folder(parsed["path"])
        self._format: str = parsed["format"]
        self._size = BatchSize(parsed["batch.records.max"])
        self.batch_interval_ms = parsed["batch.interval.ms"]
        self._interval_s: float = self.batch_interval_ms / 1000
        self._metadata: tuple[str, ...] = tuple(dict.fromkeys(parsed["columns.metadata"]))
        self._merges_case: bool = parsed["columns.case"] == "merge"
        self._on_null: str = parsed["on.null.value"]
        self._tolerate = ErrorSettings.from_config(config).tolerate
        self._bad = BadRecords(self.context)
        writes_keys = "key" in self._metadata
        for _, error in refusals(config, self.context.worker_settings, writes_keys=writes_keys):
            raise error
        self._envelope = has_envelope(config, self.context.worker_settings)
        self._sessions = Sessions.of_task(self._remote(), self.context.worker_settings, shares=True)
        self._target.mkdir(parents=True, exist_ok=True)
        self._files = LocalFiles(self._target)
        self._manifest = Manifest(self._files, self.context.log, self.context.group)
        on_missing: str = parsed["on.missing.output"]
        self._missing = MissingOutput(
            self._manifest, self.context.log, str(self._target), on_missing
        )
        self._starts: dict[TopicPartition, int] = {}
        self._declared = declared_columns(parsed["columns.types"] or ())
        self._columns = dict(self._declared)
        self._last_batch = time.monotonic() - self._interval_s
        self._resumed = self._told_case = False
        self._last_files: tuple[str, ...] = ()
        """Files that this process has published for its last batch."""
        self._untidy = True
        """Whether there may be staged files that were never committed."""

    def run_batch(self) -> int:
        """Plan, run and commit one batch. See `PlannedSinkTask.run_batch`."""
        if self._resumed and any(self._starts.values()) and not self._has_last():
            self._resumed = False
        if not self._resumed:
            self._last_files = ()
            self._resume(self._partitions())
            self._resumed = self._untidy = True
        ends = self.context.log.end_offsets(self.context.topics)
        self._resume([partition for partition in ends if partition not in self._starts])
        positions = self._positions(ends)
        limit = self._size.now
        ranges = next_batch(positions, ends, limit)
        waiting = sum(max(ends[one] - start, 0) for one, start in positions.items()
                      if one in ends)  # fmt: skip
        rested = time.monotonic() - self._last_batch >= self._interval_s
        if not ranges or (waiting < limit and not rested):
            return 0
        self._last_batch = time.monotonic()
        untidy, self._untidy = self._untidy, True
        covered = self._run(ranges)
        took_s = time.monotonic() - self._last_batch
        self._size.took(sum(one.count for one in ranges), took_s)
        self._untidy = False
        if untidy:
            # After the commit: only then can files that were staged at the same start be dropped.
            self._manifest.drop_leftovers()
        return covered

    def stop(self) -> None:
        sessions: Sessions | None = getattr(self, "_sessions", None)
        if sessions is not None:
            sessions.close()
            self._manifest.drop_leftovers()

    # -- where to go on --

    def _has_last(self) -> bool:
        """Return whether the folder still has its manifest, and the files that were published
        last."""
        there = all(map(self._files.exists, self._last_files))
        return there and self._files.exists(FOLDER)

    def _partitions(self) -> list[TopicPartition]:
        found: list[TopicPartition] = []
        for topic in self.context.topics:
            try:
                count = self.context.log.partitions(topic)
            except UnknownTopicError:
                continue  # it is looked for again with each batch
            found += [(topic, number) for number in range(count)]
        return found

    def _resume(self, partitions: Sequence[TopicPartition]) -> None:
        if not partitions:
            return
        resumed = self._manifest.resume(partitions, self._missing.check_log)
        self._starts.update(self._missing.starts(resumed))
        self._missing.check_files(partitions)
        for partition in partitions:
            last = self._manifest.last(partition)
            if last is not None:
                self._check_declared(last.columns)
                self._columns = unite_columns([self._columns, last.columns])

    def _check_declared(self, columns: Mapping[str, str]) -> None:
        """Check the declared columns.

        Raises:
            ColumnTypeError: a declared type is not the one that the folder has.
        """
        for name, kind in self._declared.items() if self._format == "parquet" else ():
            there = columns.get(name, NULL)
            if there != NULL and type_name(there) != type_name(kind):
                raise ColumnTypeError(
                    f"columns.types has {name}: {kind}, but the column is of type "
                    f"{type_name(there)} in {self._target}. Give the sink another path, or declare "
                    "the type that is there"
                )

    def _positions(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return where to read on for each partition. That is where the next batch begins, except
        that offset 0 means the first record that the topic still has. (The batch still begins at 0.
        So of two processes with different views of the topic, one creates the entry.)

        Raises:
            RecordsGoneError: retention was faster than this task, or the topic is another one.
        """
        log, topics = self.context.log, self.context.topics
        if any(start > ends.get(partition, start) for partition, start in self._starts.items()):
            ends = log.end_offsets(topics)  # the given ones may be older than the starts
        firsts = log.start_offsets(topics)
        found: dict[TopicPartition, int] = {}
        for partition, start in sorted(self._starts.items()):
            name, first = f"{partition[0]}-{partition[1]}", firsts.get(partition, 0)
            if 0 < start < first:
                raise RecordsGoneError(
                    f"records {start} to {first - 1} of {name} were deleted from the topic before "
                    "they were written. To go on without them stop the connector and set its "
                    f"offset of {name} to {first}"
                )
            if start > ends.get(partition, start):
                raise RecordsGoneError(
                    f"{name} ends at offset {ends[partition]}, but the next batch is to begin at "
                    f"{start}: the topic was made anew, it has lost its end, or the offset was set "
                    "too far. To write what is in it now stop the connector and reset its offsets, "
                    "which removes its files, or use another connector with another path"
                )
            found[partition] = start or first
        return found

    # -- one batch --

    def _run(self, ranges: Sequence[Range]) -> int:
        slices = [
            self._slice(one, part, number)
            for one, parts in zip(ranges, cut(ranges, self._cores()), strict=True)
            for number, part in enumerate(parts)
        ]
        results = self._execute(slices)
        self._refuse_bad(slices, results)
        spelling = Spelling(self._columns) if self._merges_case else None
        parts = [self._columns, *(result.columns for result in results)]
        columns = unite_columns(parts, spelling)
        self._write_again(slices, results, columns)
        if self.context.stopping or self._pinned_otherwise(columns):
            self._drop(results)
            return 0
        self._report_bad(slices, results)
        covered = 0
        for one in ranges:
            mine = [
                result
                for task, result in zip(slices, results, strict=True)
                if (task.topic, task.partition) == (one.topic, one.partition)
            ]
            covered += self._commit(one, mine, columns)
        self._columns = columns
        self.batch_files = sum(1 for result in results if result.records)
        self._tell_skipped(results)
        self._tell_renamed(results)
        return covered

    def _pinned_otherwise(self, columns: Mapping[str, str]) -> bool:
        """Return whether an earlier process of this task has given a column another type. The
        records are then read again, as values of that type."""
        if self._format != "parquet":
            return False
        others = self._manifest.pin(columns)
        self._columns = {**self._columns, **others}
        return bool(others)

    def _slice(self, whole: Range, part: Range, number: int) -> SliceTask:
        return SliceTask(
            topic=part.topic,
            partition=part.partition,
            start=part.start,
            end=part.end,
            target=str(self._target),
            batch_start=self._starts[whole.topic, whole.partition],
            number=number,
            format=self._format,
            metadata=self._metadata,
            columns=self._columns,
            tolerate=self._tolerate,
            envelope=self._envelope,
            merges_case=self._merges_case,
            on_null=self._on_null,
            tells_bad=self._bad.reports,
        )

    def _commit(
        self,
        whole: Range,
        results: Sequence[SliceResult],
        columns: Mapping[str, str],
    ) -> int:
        partition = (whole.topic, whole.partition)
        start, era = self._starts[partition], self._manifest.era
        staged = [result.staged for result in results if result.records]
        files = tuple(
            (path, published_path(*partition, start, number, era, self._format))
            for number, path in enumerate(staged)
        )
        records = sum(result.records for result in results)
        last = last_record(self.context.log, partition, whole.end)
        entry = Entry(*partition, start, whole.end, files, records, dict(columns), era, last)
        if self._manifest.commit(entry):
            self._starts[partition] = whole.end
            self._last_files = tuple(final for _, final in files) or self._last_files
            self._bad.committed(partition, whole.end)
            return records
        # An earlier process of this task was first. Its batch is in the manifest: go on there.
        self._resume([partition])
        return 0

    def _write_again(
        self,
        slices: Sequence[SliceTask],
        results: list[SliceResult],
        columns: Mapping[str, str],
    ) -> None:
        """Write the slices again whose files have other columns than the batch, with all its
        columns."""
        if self._format == "json":
            return
        late = [
            n
            for n, result in enumerate(results)
            if result.records and list(result.columns.items()) != list(columns.items())
        ]
        if not late:
            return
        again = [_with_columns(slices[n], columns) for n in late]
        for n, result in zip(late, self._execute(again), strict=True):
            self._files.remove(results[n].staged)
            results[n] = result

    def _refuse_bad(self, slices: Sequence[SliceTask], results: Sequence[SliceResult]) -> None:
        for task, result in zip(slices, results, strict=True):
            if result.failed:
                self._drop(results)
                self._bad.failed((task.topic, task.partition), dict(result.bad))
                raise DataError(result.failed)

    def _report_bad(self, slices: Sequence[SliceTask], results: Sequence[SliceResult]) -> None:
        for task, result in zip(slices, results, strict=True):
            self._bad.report((task.topic, task.partition), dict(result.bad))

    def _tell_skipped(self, results: Sequence[SliceResult]) -> None:
        skipped = sum(result.skipped for result in results)
        if skipped and not self._bad.reports:  # otherwise the reporter reports them
            detail = next(result.detail for result in results if result.detail)
            self.context.skipped(skipped, detail)

    def _tell_renamed(self, results: Sequence[SliceResult]) -> None:
        renamed = next((result.renamed for result in results if result.renamed), "")
        if renamed and not self._told_case:
            self._told_case = True
            _log.warning(
                "fields that differ from a column in case only are written to it, such as %s; "
                "columns.case is merge",
                renamed,
            )

    def _drop(self, results: Sequence[SliceResult]) -> None:
        for result in results:
            if result.staged:
                self._files.remove(result.staged)

    # -- Spark --

    def _execute(self, slices: Sequence[SliceTask]) -> list[SliceResult]:
        """Run the slices as one job, a Spark partition each."""
        session: Any = None
        tasks = [task.to_json() for task in slices]
        work = on_executors(run_slices, self.context.log_elsewhere, tasks)
        try:
            session = self._sessions.get()
            frame = session.range(0, len(slices), 1, len(slices)).mapInArrow(work, RESULT_SCHEMA)
            rows = frame.collect()
        except Exception as error:
            if session is not None and session_is_over(error):
                self._sessions.drop(session)
            if (refused := refusal(error)) is not None:
                raise OtherVersionError(refused) from None
            if is_ours(error) and not self._is_behind(slices):
                raise
            # Executors were lost, or the server, which its supervisor starts again.
            why = self._sessions.why(error)
            raise RetriableError(f"Spark did not finish the batch: {why}") from error
        results = results_in_order([row["result"] for row in rows], len(slices))
        try:
            check_staged(self._files, results)
        except OtherFolderError as error:
            if not self._is_behind(slices):
                raise
            text = "another process has committed the batch, and dropped files of this one"
            raise RetriableError(text) from error
        return results

    def _is_behind(self, slices: Sequence[SliceTask]) -> bool:
        """Return whether others have committed a batch that begins where a slice's batch does. They
        drop files staged there, even while these are written. The next batch begins where the
        folder ends."""
        ends = [(one, self._manifest.last((one.topic, one.partition))) for one in slices]
        behind = any(last is not None and last.end > one.batch_start for one, last in ends)
        self._resumed = self._resumed and not behind
        return behind

    def _cores(self) -> int:
        """Return the number of slots that are meant to compute."""
        try:
            session = self._sessions.get()
            return int(session.conf.get("spark.default.parallelism", "2"))
        except Exception:  # out of reach: the job itself reports it
            return 2

    def _remote(self) -> str:
        remote = self.context.worker_settings.get(REMOTE)
        if not remote:
            raise ConfigError(
                f"the worker setting {REMOTE} is missing: SparkFileSink runs its batches on the "
                "Spark Connect server that it names (sc://host:port)"
            )
        return remote


class SparkFileSink(SinkConnector):
    """Writes records of topics to a folder of Parquet, JSON or CSV files, each record once."""

    VERSION: ClassVar[str] = "1"
    TASK = SparkFileSinkTask
    REQUIRES_RUNNER: ClassVar[str | None] = "spark"

    @classmethod
    def config_def(cls) -> ConfigDef:
        return config_def()

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
        """Return errors that one key alone does not show."""
        errors: dict[str, list[str]] = {}
        path = config.get("path", "")
        try:
            target = target_folder(path) if path else None
        except ConfigError as error:
            errors["path"] = [str(error)]
        else:
            if target is not None and (fault := folder_fault(target)):
                errors["path"] = [fault]
        given = {key: text for key, text in config.items() if text is not None}
        names = map(str.strip, given.get("columns.metadata", "").split(","))
        for key, refused in refusals(given, {}, writes_keys="key" in names):
            errors[key] = [str(refused)]
        return errors

    def start(self, config: Mapping[str, str]) -> None:
        self._config = dict(config)

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        return [self._config]

    @classmethod
    def exactly_once_support(cls, config: Mapping[str, str]) -> ExactlyOnceSupport:
        return ExactlyOnceSupport.SUPPORTED

    @classmethod
    def alter_offsets(
        cls, config: Mapping[str, str], offsets: Mapping[tuple[str, int], int | None]
    ) -> bool:
        """Remove batches after the new offsets, with their files. Raises `ManifestError` for an
        offset inside a batch. Without a folder there are only the group's offsets."""
        files = LocalFiles(target_folder(config["path"]))
        if files.exists(""):
            alter(files, offsets)
        return False

    @classmethod
    def reached_offsets(
        cls, config: Mapping[str, str], committed: Mapping[tuple[str, int], int]
    ) -> Mapping[tuple[str, int], int]:
        """Return the offsets in the manifest, for topics of this connector. The group only
        follows."""
        written = look(LocalFiles(target_folder(config["path"]))).positions
        pattern, names = topic_pattern(config), {topic for topic, _ in written}
        mine = sink_topics(config) if pattern is None else pattern.of(names)
        return {
            **committed,
            **{
                one: offset
                for one, offset in written.items()
                # At 0 after a reset: as if it had none.
                if one in committed or (one[0] in mine and offset > 0)
            },
        }


def target_folder(path: str) -> Path:
    """Return the folder that `path` names. Raises `ConfigError` if it is not on this machine."""
    parts = urlsplit(path)
    if len(parts.scheme) > 1:
        if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
            text = (
                "only folders of this machine's file system, or mounted there: a batch commits by "
                "a hard link, which object stores do not know"
            )
            raise ConfigError.of("path", path, text)
        path = unquote(parts.path)
    return Path(path).expanduser().absolute()


def results_in_order(texts: Sequence[str], count: int) -> list[SliceResult]:
    """Return the results of a job's slices by number. Raises `RuntimeError` unless each is there
    once."""
    found: dict[int, SliceResult] = {}
    for text in texts:
        number, plain = json.loads(text)
        found[number] = SliceResult(**plain)
    if len(texts) != count or sorted(found) != list(range(count)):
        raise RuntimeError(
            f"Spark gave {len(texts)} results for {count} slices ({sorted(found)}), expected each "
            "once"
        )
    return [found[number] for number in range(count)]


def check_staged(files: LocalFiles, results: Sequence[SliceResult]) -> None:
    """Check that this process sees the staged files.

    Raises:
        OtherFolderError: a file that an executor has written is not in this process's folder.
    """
    for result in results:
        if result.staged and not files.exists(result.staged):
            seen = f"{result.staged} was written there and is not here"
            raise OtherFolderError.of(str(files.root), result.host, seen)


def is_ours(error: Exception) -> bool:
    """Return whether a job failed by an error of our code on an executor, and not by a failure of
    Spark. Our errors come again with each try, except that a log may be reachable again."""
    text = str(error)
    return "Traceback (most recent call last)" in text and "TransportError" not in text


def _own(config: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in config.items() if key in config_def().keys}


def _with_columns(task: SliceTask, columns: Mapping[str, str]) -> SliceTask:
    return replace(task, columns=dict(columns))
