"""How far a DirectorySink is with one topic-partition."""

from dataclasses import dataclass

from headgate_connectors.output.manifest import Entry
from headgate_connectors.output.part_files import StagedFiles
from headgate_connectors.output.refill import Refill


@dataclass(slots=True)
class PartitionState:
    committed: int | None
    """Offset up to which records are in published files; None: there is no file yet."""
    next: int = -1
    """Offset after the last record that was taken; -1: none was."""
    time: int | None = None
    """Timestamp of that record."""
    files: StagedFiles | None = None
    resumed: bool = False
    """Another task was first: the rest of the batch is delivered anew, from `committed` on."""
    last: Entry | None = None
    """The last entry, whose files were there."""
    refill: Refill | None = None
    """Files that are written anew before it goes on."""
