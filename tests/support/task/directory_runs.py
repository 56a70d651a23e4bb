"""Runs of a DirectorySource over files of a folder."""

from pathlib import Path
from typing import Any

from support.task.source_tasks import Offsets, Run

from headgate.connector.api import SkippedRecord, SourceRecord
from headgate.connector.text_converters import text_of
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


def texts(records: list[Any]) -> list[str]:
    """What `StringConverter` makes of the values."""
    found: list[SourceRecord | SkippedRecord] = records
    return [text_of(one.value_schema, one.value) for one in found if isinstance(one, SourceRecord)]
