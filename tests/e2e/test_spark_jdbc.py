"""A table of PostgreSQL by SparkSource over JDBC, through the log, into a Delta table by key."""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from deltalake import DeltaTable
from support.commands.pipelines import Up
from support.commands.processes import hurt, seldom_hurt
from support.postgres.server import Postgres

from local_kafka import jars

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive, pytest.mark.timeout(1200)]

PINS = Path(__file__).parents[2] / "requirements" / "jdbc-jars.txt"
PIPELINE = """
[cluster]
workers = 2
data = "state"
runner = "spark"
"session.timeout.ms" = 6000
"heartbeat.interval.ms" = 1000
"scheduled.rebalance.max.delay.ms" = 500
"offset.flush.interval.ms" = 500

[spark]
master = "local[2]"

[spark.conf]
"spark.jars" = "{jar}"

[connectors.read]
"connector.class" = "SparkSource"
topic = "changes"
format = "jdbc"
mode = "incrementing"
"incrementing.column" = "seq"
"incrementing.settle.ms" = 500
"poll.interval.ms" = 300
"batch.rows" = 500
shares = 2
"tasks.max" = 2
"option.url" = "{url}"
"option.dbtable" = "changes"
"option.user" = "postgres"
"option.driver" = "org.postgresql.Driver"

[connectors.write]
"connector.class" = "DeltaSink"
topics = "changes"
path = "table"
"write.mode" = "upsert"
"key.columns" = "id,seq"
"rotate.records" = 2000
"rotate.interval.ms" = 500

[connectors.copy]
"connector.class" = "SparkSink"
topics = "changes"
format = "jdbc"
delivery = "at_least_once"
"option.url" = "{url}"
"option.dbtable" = "copy"
"option.user" = "postgres"
"option.driver" = "org.postgresql.Driver"
"rotate.interval.ms" = 500
"""
TABLE = """
CREATE TABLE changes (seq BIGSERIAL PRIMARY KEY, id INT NOT NULL, amount NUMERIC(12, 2),
  at TIMESTAMPTZ NOT NULL, local TIMESTAMP, name TEXT)
"""
ROWS = """
INSERT INTO changes (id, amount, at, local, name)
SELECT n % 997, CASE WHEN n % 7 = 0 THEN NULL ELSE n / 100.0 END,
  '2026-01-01T00:00:00.123456+02'::timestamptz + n * interval '1 microsecond',
  '2026-01-01'::timestamp + n * interval '1 second', 'é' || n
FROM generate_series({first}, {last}) AS n
"""
QUERY = """
SELECT DISTINCT seq, id, amount, extract(epoch FROM at)::numeric, local, name FROM {table}
ORDER BY seq
"""
KILLS, STEP = 10, 5_000


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    server = Postgres().start()
    yield server
    server.stop()


def test_a_table_of_postgresql_comes_out_equal_through_kills(
    tmp_path: Path, postgres: Postgres, ups: list[Up], say: Callable[[str], None]
) -> None:
    seed = random.randrange(2**32)
    say(f"seed {seed}")
    chance = random.Random(seed)
    (jar,) = jars.ensure(PINS).glob("*.jar")
    postgres.sql(TABLE)
    postgres.sql(ROWS.format(first=1, last=STEP))
    (tmp_path / "pipeline.toml").write_text(PIPELINE.format(jar=jar, url=postgres.url))
    up = Up(tmp_path).start()
    ups.append(up)
    up.wait_for("rows in the table", lambda: rows(tmp_path) > 0, 300)
    last = STEP
    done: Counter[str] = Counter()
    for _ in range(KILLS):
        postgres.sql(ROWS.format(first=last + 1, last=last + STEP))
        last += STEP
        time.sleep(chance.uniform(0.5, 3))
        alive = [one for one in up.look() if "headgate_runtime" in one.command]
        with suppress(ProcessLookupError):
            done[hurt(seldom_hurt(alive, done, chance))] += 1
    up.wait_for("all rows", lambda: rows(tmp_path) >= last, 240)
    up.wait_for("all rows of the copy", lambda: copied(postgres) == last, 120)
    assert up.end() == 0, up.tail()
    wanted = postgres.sql(QUERY.format(table="changes")).splitlines()
    assert postgres.sql(QUERY.format(table="copy")).splitlines() == wanted
    found = DeltaTable(tmp_path / "table").to_pyarrow_table().sort_by("seq").to_pylist()
    assert [_as_psql(row) for row in found] == wanted
    # MERGE by key hides a record that came twice; the log does not.
    assert up.records("changes") == last
    say(f"{dict(done)}, {last} rows equal")


def rows(folder: Path) -> int:
    if not DeltaTable.is_deltatable(str(folder / "table")):
        return 0
    return DeltaTable(folder / "table").to_pyarrow_table().num_rows


def copied(postgres: Postgres) -> int:
    """Return the number of rows in the copy, each counted once."""
    return int(postgres.sql("SELECT count(DISTINCT seq) FROM copy"))


def _as_psql(row: dict[str, object]) -> str:
    at = row["at"]
    shown = {
        **row,
        "amount": "" if row["amount"] is None else row["amount"],
        "at": f"{int(at.timestamp())}.{at.microsecond:06}",  # type: ignore[attr-defined]
    }
    return "|".join(str(shown[name]) for name in ("seq", "id", "amount", "at", "local", "name"))
