"""A folder read twice: record by record, and in batches where its source makes them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from support.task.directory_runs import in_records
from support.task.source_tasks import Offsets, Run

from headgate.connector.api import SourceItem, SourceRecord
from headgate.connector.batches import SourceBatch
from headgate_connectors.directory import DirectorySource


def run(
    folder: Path, settings: dict[str, str], offsets: Offsets | None = None, *, by_batch: bool
) -> Run:
    config = {"path": str(folder), "topic": "t", "file.settle.ms": "0", **settings}
    found = Run(DirectorySource, config, offsets, start=False)
    found.context.takes_batches = found.context.keeps_batches = by_batch
    found.task.start(found.config)
    return found


def comparable(item: SourceItem) -> SourceItem:
    """Return the item with floats as texts, since NaN is not equal to itself and -0.0 is equal to
    0.0."""
    if not isinstance(item, SourceRecord):
        return item
    value = {
        name: (type(one), repr(one) if isinstance(one, float) else one)
        for name, one in item.value.items()
    }
    return replace(item, value=value)


def both(
    folder: Path, settings: dict[str, str], after: Callable[[], None] = lambda: None
) -> tuple[list[SourceItem], int]:
    """Read the folder both ways, call `after`, and read the rest. Assert that both ways give the
    same records.

    Returns the records, and how many of them came in batches.
    """
    subjects = [run(folder, settings, by_batch=by_batch) for by_batch in (False, True)]
    found = [subject.rest(2000) for subject in subjects]
    after()
    found = [one + subject.rest(2000) for one, subject in zip(found, subjects, strict=True)]
    one_by_one, by_batch = map(in_records, found)
    assert list(map(comparable, by_batch)) == list(map(comparable, one_by_one))
    assert subjects[0].context.quarantined == subjects[1].context.quarantined
    return one_by_one, sum(one.count for one in found[1] if isinstance(one, SourceBatch))
