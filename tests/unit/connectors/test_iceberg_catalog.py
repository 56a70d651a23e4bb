"""Some catalogs of Iceberg are refused by name. No message about a catalog shows a password."""

import json
import traceback
from typing import Any

import pytest
from sqlalchemy.engine import make_url

from headgate.connector.validation import validate_connector
from headgate_connectors.iceberg_sink import IcebergSink
from headgate_connectors.iceberg_source import IcebergSource
from headgate_connectors.tables.iceberg_connection import (
    CatalogAwayError,
    CatalogConnection,
    _address,
)
from headgate_connectors.tables.sink import TableError

SECRET = "s3cr@t/ä"
ESCAPED = "s3cr%40t%2F%C3%A4"
NOBODY = "127.0.0.1:1"
"""A port at which no server is."""
AWAY: list[dict[str, str]] = [
    {"uri": f"postgresql://lake:{ESCAPED}@{NOBODY}/lake"},
    {"uri": f"postgresql://lake@{NOBODY}/lake?password={ESCAPED}"},
    {"uri": f"postgresql://lake@{NOBODY}/lake", "password": SECRET},
    {"type": "rest", "uri": f"http://{NOBODY}/catalog", "token": SECRET},
    {"type": "rest", "uri": f"http://lake:{ESCAPED}@{NOBODY}/catalog"},
    {"type": "rest", "uri": f"http://{NOBODY}/catalog", "s3.secret-access-key": SECRET},
]
REFUSED: list[tuple[dict[str, str], str, str]] = [
    ({"type": "in-memory"}, "catalog.type", "which no other process sees"),
    ({"type": "sqll", "uri": "sqlite:////c.db"}, "catalog.type", "is sqll, expected one of"),
    ({"uri": "sqlite://"}, "catalog.uri", "is a database in memory"),
    ({"type": "sql", "uri": "sqlite:///:memory:"}, "catalog.uri", "is a database in memory"),
    ({"type": "sql", "uri": "nowhere"}, "catalog.uri", "is no address of a database"),
    ({"type": "sql", "uri": "oracel://h/d"}, "catalog.uri", "is of oracel, a database or driver"),
    (
        {"uri": f"postgresql+pg8000://lake:{ESCAPED}@h/d"},
        "catalog.uri",
        "needs the Python package pg8000 on each worker, which is not installed or cannot be "
        'loaded: pip install "pg8000"',
    ),
    (
        {"uri": "postgresql+psycopg2://h/d"},
        "catalog.uri",
        "needs the Python package psycopg2 on each worker, which is not installed or cannot be "
        'loaded: pip install "psycopg2-binary"',
    ),
    (
        {"uri": f"postgresql://lake:{ESCAPED}@h/d", "password": SECRET},
        "catalog.uri",
        "has a password, and catalog.password is given",
    ),
    (
        {"type": "rest", "uri": "https://h", "password": SECRET},
        "catalog.password",
        "is for catalogs of type sql",
    ),
]


def config(properties: dict[str, str]) -> dict[str, str]:
    return {"table": "a.b", **{f"catalog.{key}": text for key, text in properties.items()}}


def all_of(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


@pytest.mark.parametrize(("given", "key", "text"), REFUSED)
def test_a_catalog_that_cannot_work_is_refused(given: dict[str, str], key: str, text: str) -> None:
    for connector in (IcebergSink, IcebergSource):
        found = connector.validate(config(given))
        assert list(found) == [key]
        assert text in found[key][0]
        assert "s3cr" not in found[key][0]


@pytest.mark.parametrize(
    "given",
    [
        {"uri": "postgresql://lake@h/d", "password": SECRET},
        {"uri": "postgresql+psycopg://lake@h/d"},
        {"type": "SQL", "uri": "sqlite:////data/catalog.db"},
        {"type": "sql", "uri": "postgresql://lake:${file:/run/lake:password}@h/d"},
        {"type": "rest", "uri": "https://h/catalog", "credential": "id:secret"},
        {"name": "one.of.pyiceberg.yaml"},
    ],
)
def test_a_catalog_that_can_work_is_taken(given: dict[str, str]) -> None:
    assert IcebergSink.validate(config(given)) == {}


@pytest.mark.parametrize("given", AWAY)
def test_a_catalog_that_is_down_is_tried_again_and_told_without_passwords(
    given: dict[str, str],
) -> None:
    with pytest.raises(CatalogAwayError) as told:
        CatalogConnection(given, TableError).table("shop.rows")
    text = str(told.value)
    assert "table shop.rows cannot be looked at, which is tried again: catalog default (" in text
    assert f"{NOBODY}/" in text
    assert ") does not answer: " in text
    assert "s3cr" not in all_of(told.value)


def test_what_pyiceberg_says_of_an_address_is_told_without_its_password() -> None:
    given = {"uri": f"mysql://lake:{ESCAPED}@{NOBODY}/lake"}
    with pytest.raises(TableError, match="mysql://lake:\\[hidden\\]@") as told:
        CatalogConnection(given, TableError).table("shop.rows")
    assert "s3cr" not in all_of(told.value)


@pytest.mark.parametrize("given", AWAY)
def test_an_answer_to_a_validation_has_no_password(given: dict[str, str]) -> None:
    own: dict[str, Any] = {"name": "x", "connector.class": "IcebergSink", "topics": "t"}
    infos = validate_connector(
        IcebergSink,
        {**own, **config(given)},
        worker_settings={},
        exactly_once_enabled=False,
        runner="process",
    )
    found = json.dumps(infos.plain(), ensure_ascii=False)
    assert "s3cr" not in found
    assert '"catalog.uri"' in found


def test_a_password_needs_no_escapes_and_waiting_has_an_end() -> None:
    url = make_url(_address(f"postgresql://lake@{NOBODY}/lake?application_name=a", SECRET))
    assert (url.username, url.password, url.host) == ("lake", SECRET, "127.0.0.1")
    assert url.query == {"application_name": "a", "connect_timeout": "10"}
    kept = _address("postgresql://lake@h/lake?connect_timeout=3", None)
    assert make_url(kept).query == {"connect_timeout": "3"}
