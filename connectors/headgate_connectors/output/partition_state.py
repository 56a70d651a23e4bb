"""The state of one topic-partition in a task of DirectorySink."""

from dataclasses import dataclass

from headgate_connectors.output.manifest import Entry
from headgate_connectors.output.part_files import StagedFiles
from headgate_connectors.output.refill import Refill


@dataclass(slots=True)
class PartitionState:
    """How far the task has come with one topic-partition."""

    committed: int | None
    """Offset up to which records are in published files. None: there is no file yet."""
    next: int = -1
    """Offset after the last record that was taken. -1: none was."""
    time: int | None = None
    """Timestamp of the last record that was taken, in milliseconds."""
    files: StagedFiles | None = None
    resumed: bool = False
    """The rest of the batch in hand is ignored, since records are delivered again from the offset
    where the partition was resumed."""
    last: Entry | None = None
    """The last manifest entry, if its files were there when they were last looked at."""
    refill: Refill | None = None
    """Deleted files that are written again before the partition goes on."""
