"""Runs of a DirectorySource over files of a folder."""

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
    """Bad records are skipped, and a file counts as still at once."""
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
    """What a task gives whose records may be batches, with each batch in records."""
    config = {"path": str(folder), "topic": "t", "errors.tolerance": "all", **more}
    subject = Run(DirectorySource, config, offsets, start=False)
    subject.context.takes_batches = subject.context.keeps_batches = True
    subject.task.start(subject.config)
    return in_records(subject.rest())


def in_records(items: Sequence[Any]) -> list[Any]:
    """Items of a source, with the records of a batch in its place."""
    return [
        one
        for item in items
        for one in (source_records(item) if isinstance(item, SourceBatch) else [item])
    ]


def texts(records: list[Any]) -> list[str]:
    """What `StringConverter` makes of the values."""
    found: list[SourceRecord | SkippedRecord] = records
    return [text_of(one.value_schema, one.value) for one in found if isinstance(one, SourceRecord)]
