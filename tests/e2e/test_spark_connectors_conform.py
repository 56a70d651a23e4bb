"""The conformance suites on the connectors that need Spark, on a real one."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.spark.shared import spark_server  # noqa: F401
from support.task.sink_suites import ParquetFolder

from headgate.testing import PlannedSinkConformance, SinkConformance, SourceConformance
from headgate_spark.server import SparkServer
from headgate_spark.sessions import START_TIMEOUT

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]
POINTS = 20


class OnSpark:
    worker_settings: Mapping[str, str]

    @pytest.fixture(autouse=True)
    def _reaches_spark(self, spark_server: SparkServer) -> None:  # noqa: F811
        self.worker_settings = {"spark.remote": spark_server.address, START_TIMEOUT: "300"}


class TestSparkSource(OnSpark, SourceConformance):
    connector = "SparkSource"
    config: ClassVar = {
        "topic": "rows",
        "format": "parquet",
        "mode": "files",
        "batch.rows": "2",
        "poll.interval.ms": "10",
        "files.settle.ms": "0",
    }
    points_max = POINTS

    def prepare(self, folder: Path) -> Mapping[str, str]:
        for number in (0, 3):
            rows = pa.table({"id": [number, number + 1, number + 2]})
            pq.write_table(rows, folder / f"{number}.parquet")
        return {"path": str(folder)}

    def expected(self) -> Sequence[object]:
        return [{"id": number} for number in range(6)]

    def bad_input(self, folder: Path) -> Mapping[str, str]:
        (folder / "bad.parquet").write_text("no Parquet")
        return self.prepare(folder)


class TestSparkSourceOfRowsThatIncrease(TestSparkSource):
    config: ClassVar = {
        "topic": "rows",
        "format": "parquet",
        "mode": "incrementing",
        "incrementing.column": "id",
        "incrementing.settle.ms": "0",
        "batch.rows": "2",
        "poll.interval.ms": "10",
    }

    def bad_input(self, folder: Path) -> None:
        """None: the rows of a table are its own; `tests/e2e/test_spark_source.py` breaks tables."""


class TestSparkSink(OnSpark, ParquetFolder, SinkConformance):
    connector = "SparkSink"
    config: ClassVar = {"format": "parquet", "rotate.records": "2"}
    exactly_once = True
    points_max = POINTS


class TestSparkFileSink(OnSpark, ParquetFolder, PlannedSinkConformance):
    connector = "SparkFileSink"
    config: ClassVar = {
        "format": "parquet",
        "batch.records.max": "3",
        "batch.interval.ms": "0",
        "on.null.value": "fail",
    }
    exactly_once = True
    points_max = POINTS
