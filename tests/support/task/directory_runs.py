"""Runs of a DirectorySource over the files of a folder."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from support.task.source_tasks import Offsets, Run

from headgate.connector.api import SkippedRecord, SourceRecord
from headgate.connector.batches import SourceBatch
from headgate.connector.text_converters import text_of
from headgate_arrow.rows import source_records
from headgate_connectors.directory import DirectorySource


def run(
    folder: Path | str,
    offsets: Offsets | None = None,
    batch: int = 2000,
    *,
    until_idle: bool = True,
    **more: str,
) -> Run:
    """Run a task once. It skips bad records, and takes a file as complete at once."""
    config = {
        "path": str(folder),
        "topic": "t",
        "file.settle.ms": "0",
        "batch.size": str(batch),
        "errors.tolerance": "all",
        **more,
    }
    return Run(DirectorySource, config, offsets, until_idle=until_idle)


def by_batches(folder: Path, offsets: Offsets | None = None, **more: str) -> list[Any]:
    """Return what a task gives that may send batches, with the records of each batch in its
    place."""
    config = {"path": str(folder), "topic": "t", "errors.tolerance": "all", **more}
    subject = Run(DirectorySource, config, offsets, start=False)
    subject.context.takes_batches = subject.context.keeps_batches = True
    subject.task.start(subject.config)
    return in_records(subject.rest())


def in_records(items: Sequence[Any]) -> list[Any]:
    """Return the items of a source, with the records of each batch in its place."""
    return [
        one
        for item in items
        for one in (source_records(item) if isinstance(item, SourceBatch) else [item])
    ]


def texts(records: list[Any]) -> list[str]:
    """Return the values as `StringConverter` writes them."""
    found: list[SourceRecord | SkippedRecord] = records
    return [text_of(one.value_schema, one.value) for one in found if isinstance(one, SourceRecord)]
