"""Mixins that conformance suites of several sinks share. They come before the suite in the
bases."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow.parquet as pq

from headgate.testing import Message


class TwoPartitions:
    """Six texts in two partitions, for a sink that cannot write a null."""

    def messages(self) -> Sequence[Message]:
        return [Message(f"text {number}", partition=number % 2) for number in range(6)]

    def bad_message(self) -> Message:
        return Message(None)


class ParquetFolder(TwoPartitions):
    """The same texts, for a sink that writes Parquet files into the folder of its setting
    ``path``."""

    def prepare(self, folder: Path) -> Mapping[str, str]:
        return {"path": str(folder / "out")}

    def written(self, folder: Path) -> list[object]:
        files = sorted((folder / "out").glob("*.parquet"))
        return [row["value"] for file in files for row in pq.read_table(file).to_pylist()]
