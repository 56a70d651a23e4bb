"""What a SparkFileSink does if its folder lacks files that were committed to it."""

import logging
from collections.abc import Mapping, Sequence

from headgate.log.looks import record_time
from headgate.ports import RecordLog, TopicPartition
from headgate_connectors.output.other_log import WAYS_ON, other_log
from headgate_spark.entries import Entry
from headgate_spark.manifest import Manifest

_log = logging.getLogger("headgate.task")


class OutputMissingError(Exception):
    """The folder lacks files that were committed to it."""


class MissingOutput:
    """The choice of `on.missing.output`, applied to one folder.

    Args:
        log: where the records come from.
        target: the folder, for messages.
        choice: `on.missing.output`, one of fail, rewrite, accept.
    """

    def __init__(self, manifest: Manifest, log: RecordLog, target: str, choice: str) -> None:
        self._manifest = manifest
        self._log = log
        self._target = target
        self._choice = choice
        self._told: set[str] = set()

    def starts(self, starts: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Return `starts`, or 0 for partitions that are to be rewritten. A partition is missing if
        records were committed, and the folder knows of none.

        Raises:
            OutputMissingError: a partition is missing, and `on.missing.output` is fail.
        """
        missing = {
            partition: start
            for partition, start in starts.items()
            if start > 0 and not self._manifest.knows(partition)
        }
        if not missing:
            return starts
        names = ", ".join(
            f"{start:,} of {topic}-{number}" for (topic, number), start in sorted(missing.items())
        )
        seen = f"{self._target} has no record, but these were committed to it: {names}"
        if self._choice == "fail":
            raise OutputMissingError(
                f"{seen}. To write what the log still has into it anew, set on.missing.output = "
                "rewrite, or stop the connector and reset its offsets; to go on without those "
                "records, set it to accept"
            )
        self._tell("all", seen)
        return {**starts, **dict.fromkeys(missing, 0)} if self._choice == "rewrite" else starts

    def check_files(self, partitions: Sequence[TopicPartition]) -> None:
        """Check that the files of the known batches exist.

        Raises:
            OutputMissingError: a file is gone, and `on.missing.output` is not accept. (A rewrite is
                of a whole folder, and would double the files that are left.)
        """
        gone = self._manifest.gone(partitions)
        if not gone:
            return
        records = sum(entry.records for entry, _ in gone)
        batches = "1 batch" if len(gone) == 1 else f"{len(gone)} batches"
        names = [name for _, lost in gone for name in lost]
        whole = all(len(lost) == len(entry.files) for entry, lost in gone)
        seen = (
            f"{'1 file is' if len(names) == 1 else f'{len(names):,} files are'} gone from "
            f"{self._target}, such as {names[0]}, of {batches} with {'' if whole else 'some of '}"
            f"{records:,} committed records"
        )
        if self._choice != "accept":
            raise OutputMissingError(
                f"{seen}. Put them back; or stop the connector and reset its offsets, to write "
                "anew what the log still has; or set on.missing.output = accept, to go on without "
                "those records"
            )
        self._tell(gone[-1][0].path, seen)

    def check_log(self, entry: Entry) -> None:
        """
        Raises:
            OutputMissingError: the log is not the one whose records the folder has, and
                `on.missing.output` is not accept.
        """
        if entry.last_record is None:
            return
        offset, expected = entry.last_record
        place = (entry.topic, entry.partition)
        seen = other_log(self._record_time, "it has", place, offset + 1, expected)
        if seen is None:
            return
        seen = f"{self._target}: {seen}"
        if self._choice != "accept":
            raise OutputMissingError(f"{seen}. {WAYS_ON}")
        self._tell(entry.path, seen)

    def _record_time(self, topic: str, partition: int, offset: int) -> int | None:
        return record_time(self._log, (topic, partition), offset)

    def _tell(self, what: str, seen: str) -> None:
        if what not in self._told:
            self._told.add(what)
            _log.warning("%s; on.missing.output is %s", seen, self._choice)
