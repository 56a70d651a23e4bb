"""`headgate up` uses a third party's schema registry behind TLS, client certificates and a password
to which the pipeline file only refers."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.commands.pipelines import Up
from support.grpc.pem import make_pem
from support.registry.gate import USER_INFO, gate
from support.registry.server import schema_registry  # noqa: F401

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]
SECONDS = 150

CONVERTER = """
"value.converter" = "AvroConverter"
"value.converter.schema.registry.url" = "{url}"
"value.converter.schema.registry.ssl.truststore.location" = "{pem}/ca.pem"
"value.converter.schema.registry.ssl.keystore.location" = "{pem}/both.pem"
"value.converter.basic.auth.credentials.source" = "USER_INFO"
"value.converter.basic.auth.user.info" = "${{file:{pem}/registry.properties:user.info}}"
"""
PIPELINE = """
[cluster]
runner = "thread"
"offset.flush.interval.ms" = 500
"headgate.restart.max" = 0
{cluster}
[connectors.read]
"connector.class" = "DirectorySource"
path = "in"
topic = "{topic}"
{connector}
[connectors.write]
"connector.class" = "DirectorySink"
topics = "{topic}"
path = "out"
"rotate.interval.ms" = 500
{connector}
"""


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    made = Up(tmp_path, ("--until-idle",))
    yield made
    made.clean_up()


def rows(first: int) -> pa.Table:
    numbers = range(first, first + 100)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "price": pa.array([f"{n}.25" for n in numbers]).cast(pa.decimal128(38, 2)),
            "at": pa.array(numbers, pa.timestamp("ms", "UTC")),
        }
    )


def written(up: Up) -> pa.Table:
    files = sorted((up.folder / "out").glob("*.parquet"))
    return pa.concat_tables([pq.read_table(file) for file in files]).sort_by("id")


def kept(up: Up) -> bytes:
    """All that it has printed, logged and stored."""
    files = [up.folder / "up.txt", *(p for p in up.log_folder.rglob("*") if p.is_file())]
    return b"".join(file.read_bytes() for file in files)


def ended(up: Up) -> int:
    process = up.start().process
    assert process is not None
    return process.wait(SECONDS)


@pytest.mark.parametrize("place", ["cluster", "connector"])
def test_types_come_through_and_no_password_is_kept(
    up: Up,
    schema_registry: str,  # noqa: F811
    place: str,
) -> None:
    """A user that is refused costs no record: with the right password all is written, once."""
    pem = up.folder / "pem"
    pem.mkdir()
    make_pem(pem)
    both = (pem / "client.key").read_text() + (pem / "client.pem").read_text()
    (pem / "both.pem").write_text(both)
    secret = pem / "registry.properties"
    topic = f"of-{place}"
    (up.folder / "in").mkdir()
    with gate(pem, schema_registry, client_ca="ca") as url:
        where = {"cluster": "", "connector": "", place: CONVERTER.format(url=url, pem=pem)}
        (up.folder / "pipeline.toml").write_text(PIPELINE.format(topic=topic, **where))
        secret.write_text(f"user.info={USER_INFO}\n")
        pq.write_table(rows(0), up.folder / "in" / "first.parquet")
        assert ended(up) == 0, up.tail()
        assert written(up).equals(rows(0))

        secret.write_text("user.info=bob:hunter2\n")
        pq.write_table(rows(100), up.folder / "in" / "second.parquet")
        assert ended(up) == 1, up.tail()
        told = (up.folder / "up.txt").read_text()
        assert "refuses the user (401)" in told
        assert "check basic.auth.user.info" in told

        secret.write_text(f"user.info={USER_INFO}\n")
        assert ended(up) == 0, up.tail()
    assert written(up).equals(pa.concat_tables([rows(0), rows(100)]))
    everything = kept(up)
    assert b"hunter2" not in everything
    assert USER_INFO.partition(":")[2].encode() not in everything
    # A client that asks the registry itself finds the topic's schema there.
    assert httpx.get(f"{schema_registry}/subjects/{topic}-value/versions").json() == [1]
