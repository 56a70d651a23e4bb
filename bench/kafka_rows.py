"""Typed rows with three transforms: ours from Parquet files, beside Java's Connect from memory.

The chain is that of `transforms`. Our rows go as batches through the embedded log to Parquet files,
and from a Parquet file to a topic of Kafka, for which JSON is made column by column. Java's task
makes its rows in memory and writes them to such a topic, by JsonConverter and as Avro
(`bench/java/BenchRows.java`). It reads no file and asks no registry, and no sink writes its rows to
a file. Our worker asks a registry once for each topic. Both have exactly-once on, and on Kafka a
transaction per second.

On Kafka the time is that between the first commit and the last but one. The last commit waits until
its second has passed, however little is left to move. CPU is that of the worker with its tasks,
without the work of Kafka's broker.
"""

import os
import shutil
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka.admin import AdminClient

from bench.files import PARQUET, PIPELINE, moved, write_files
from bench.kafka_source import BY_INTERVAL, Commits
from bench.kafka_topics import create_topic, delete_topic
from bench.kafka_workers import JAVA, JSON, OURS, Worker, Workers, cpu_of, tail_of, workers
from bench.medians import medians
from bench.transforms import CHAIN
from bench.up_job import UpJob
from local_kafka.jars import AVRO, ensure, pinned
from local_kafka.jvm import compile_java
from local_kafka.registry import schema_registry

ROWS: Final = int(os.environ.get("HEADGATE_BENCH_ROWS", "1000000"))
BATCH: Final = 2_000
REPEATS: Final = 3
PACKAGE: Final = "org.apache.kafka.connect.transforms."
TRANSFORMS: Final = {
    "transforms": "cut,cast,hide",
    "transforms.cut.type": f"{PACKAGE}ReplaceField$Value",
    "transforms.cut.exclude": "text",
    "transforms.cut.renames": "id:number",
    "transforms.cast.type": f"{PACKAGE}Cast$Value",
    "transforms.cast.spec": "number:string,pieces:int64",
    "transforms.hide.type": f"{PACKAGE}MaskField$Value",
    "transforms.hide.fields": "customer",
    "transforms.hide.replacement": "***",
}
WITH_SCHEMAS: Final = {"value.converter": JSON, "value.converter.schemas.enable": "true"}
PLAIN: Final = {"value.converter": JSON, "value.converter.schemas.enable": "false"}
OUR_AVRO: Final = "io.confluent.connect.avro.AvroConverter"
AS_AVRO: Final = {"value.converter": "BenchRows$AvroConverter"}
SERVICES: Final = {
    "source.SourceConnector": "BenchRows$Source",
    "storage.Converter": "BenchRows$AvroConverter",
}


class Cost(NamedTuple):
    rate: float
    """Rows per second."""
    cpu_us: float
    """CPU microseconds per row."""


class Mark(NamedTuple):
    """A commit of a source offset, as seen in the offsets topic."""

    position: int
    """Number of rows up to the commit."""
    at: float
    cpu: float
    """CPU seconds that the worker has used until the commit."""


class Side:
    """A worker of one kind, and the connector that it runs."""

    def __init__(self, made: Workers, kind: str, config: Mapping[str, str], rows: int) -> None:
        self.group = f"rows-{'java' if kind == JAVA else 'ours'}"
        self._address = made.broker.address
        self._admin = AdminClient({"bootstrap.servers": self._address})
        plugins = {"plugin.path": str(made.folder / "plugins")} if kind == JAVA else {}
        self._worker: Worker = made.make(kind, self.group, plugins)
        self._worker.start()
        self._config, self._rows, self._count = config, rows, 0

    def run(self, converter: Mapping[str, str]) -> Cost:
        """Run the connector once, and return its cost.

        Raises:
            RuntimeError: not all rows were written (the message has the end of the worker's log),
                or the rows were in too few transactions to measure the time between two.
        """
        self._count += 1
        name = f"{self.group}-{self._count}"
        create_topic(self._admin, name)
        commits = Commits(self._address, f"{self.group}-offsets")
        given = {**self._config, **TRANSFORMS, **converter, **BY_INTERVAL}
        given |= {"topic": name, "tasks.max": "1"}
        reply = self._worker.rest.create(name, given)
        assert reply.status == 201, reply
        marks: list[Mark] = []
        try:
            for position in commits.positions(name):
                marks.append(Mark(position, time.perf_counter(), cpu_of(self._worker)))
                if position >= self._rows:
                    break
        except TimeoutError as error:
            raise RuntimeError(f"{error}{tail_of(self._worker)}") from error
        commits.close()
        self._worker.rest.delete(f"/connectors/{name}")
        delete_topic(self._admin, name)
        return between(marks)


def between(marks: Sequence[Mark]) -> Cost:
    """Return the cost of the rows between the first commit and the last but one.

    Raises:
        RuntimeError: there are fewer than three commits.
    """
    if len(marks) < 3:
        raise RuntimeError(f"{len(marks)} commits, expected 3: set HEADGATE_BENCH_ROWS higher")
    first, last = marks[0], marks[-2]
    rows = last.position - first.position
    return Cost(rows / (last.at - first.at), 1e6 * (last.cpu - first.cpu) / rows)


def run() -> Iterator[str]:
    """Yield report lines: each round, then the rate and CPU of each way beside Java's best."""
    settings = {"log.segment.delete.delay.ms": "1000"}
    with workers(settings) as made, schema_registry(made.folder / "registry") as url:
        write_plugin(made.folder)
        files, one = made.folder / "files", made.folder / "one"
        write_files(files, ROWS, PARQUET)
        write_files(one, ROWS, PARQUET, files=1)
        source = {"connector.class": "BenchRows$Source", "batch.size": f"{BATCH}"}
        java = Side(made, JAVA, {**source, "rows": f"{ROWS}"}, ROWS)
        reads = {"connector.class": "DirectorySource", "path": str(one), "batch.size": f"{BATCH}"}
        ours = Side(made, OURS, reads, ROWS)
        costs: dict[str, list[Cost]] = {}
        pipeline = PIPELINE.format(more=CHAIN, rotate=ROWS // 4)
        with UpJob(made.folder / "up", pipeline, "write") as job:
            for turn in range(REPEATS + 1):
                found = _round(job, files, turn, java, ours, url)
                rates = ", ".join([f"{name} {cost.rate:,.0f}" for name, cost in found.items()])
                yield f"round {turn}, rows/s: {rates}"
                if turn:  # the first turn warms up Java's compiler
                    for name, cost in found.items():
                        costs.setdefault(name, []).append(cost)
        yield from _lines(costs)


def _round(
    job: UpJob, files: Path, turn: int, java: Side, ours: Side, registry: str
) -> dict[str, Cost]:
    up = moved(job, files, ROWS, turn)
    avro = {"value.converter": OUR_AVRO, "value.converter.schema.registry.url": registry}
    return {
        "ours, batches, to Parquet": Cost(up.rate, 1e6 * up.cpu_seconds / up.rows),
        "ours, to a topic, JSON with schemas": ours.run(WITH_SCHEMAS),
        "ours, to a topic, JSON": ours.run(PLAIN),
        "ours, to a topic, Avro": ours.run(avro),
        "Java, JSON with schemas": java.run(WITH_SCHEMAS),
        "Java, JSON": java.run(PLAIN),
        "Java, Avro": java.run(AS_AVRO),
    }


def _lines(costs: Mapping[str, list[Cost]]) -> Iterator[str]:
    middle = {name: medians(some) for name, some in costs.items()}
    best = max(cost.rate for name, cost in middle.items() if name.startswith("Java"))
    yield f"{ROWS:,} rows of 6 columns, 3 transforms, one task; medians of {REPEATS}, in turns"
    yield f"{'':36}{'rows/s':>10}{'us CPU/row':>12}{'of Java best':>14}{'least-most rows/s':>22}"
    for name, cost in middle.items():
        rates = [one.rate for one in costs[name]]
        spread = f"{min(rates):,.0f}-{max(rates):,.0f}"
        line = f"{name:36}{cost.rate:>10,.0f}{cost.cpu_us:>12.2f}{cost.rate / best:>14.2f}"
        yield f"{line}{spread:>22}"


def write_plugin(folder: Path) -> None:
    """Install BenchRows and the jars it needs as a Java plugin below ``plugins``."""
    classes, plugin = folder / "classes", folder / "plugins" / "rows"
    plugin.mkdir(parents=True)
    compile_java(Path(__file__).parent / "java" / "BenchRows.java", classes, AVRO)
    with zipfile.ZipFile(plugin / "rows.jar", "w") as jar:
        for path in classes.rglob("*.class"):
            jar.write(path, path.relative_to(classes))
        for kind, name in SERVICES.items():
            jar.writestr(f"META-INF/services/org.apache.kafka.connect.{kind}", f"{name}\n")
    for one in pinned(AVRO):
        shutil.copy(ensure(AVRO) / one.name, plugin)
