"""Time-outs of the REST catalog: which catalogs have them, and from which call on."""

import socket
import time
from collections.abc import Iterator

import pytest
from pyiceberg.catalog.rest import RestCatalog

from headgate_connectors.tables import iceberg_rest
from headgate_connectors.tables.iceberg_connection import CatalogAwayError, CatalogConnection
from headgate_connectors.tables.iceberg_rest import TimedRestCatalog, with_time_outs
from headgate_connectors.tables.sink import TableError

TIMED = {"py-catalog-impl": "headgate_connectors.tables.iceberg_rest.TimedRestCatalog"}
URI = {"uri": "http://h/x"}


@pytest.fixture
def silent() -> Iterator[str]:
    """Address of a server that takes connections and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("more", [{}, {"credential": "id:secret"}, {"rest.sigv4-enabled": "true"}])
def test_a_server_that_never_answers_is_away(
    silent: str, more: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg_rest, "TIMEOUTS_S", (0.2, 0.2))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "none")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    since = time.monotonic()
    connection = CatalogConnection({"type": "rest", "uri": silent, **more}, TableError)
    with pytest.raises(CatalogAwayError, match=r"does not answer: .*timed? ?out"):
        connection.table("shop.rows")
    assert time.monotonic() - since < 20


@pytest.mark.parametrize(
    ("given", "loaded"),
    [
        ({"type": "rest", **URI}, {**URI, **TIMED}),
        ({"type": "REST", **URI, "token": "t"}, {**URI, "token": "t", **TIMED}),
        (URI, {**URI, **TIMED}),
        ({"type": "glue"}, {"type": "glue"}),
        ({"type": "hive", "uri": "thrift://h"}, {"type": "hive", "uri": "thrift://h"}),
        ({"type": "rest"}, {"type": "rest"}),
        ({**URI, "py-catalog-impl": "a.B"}, {**URI, "py-catalog-impl": "a.B"}),
    ],
)
def test_only_rest_catalogs_are_replaced(given: dict[str, str], loaded: dict[str, str]) -> None:
    assert with_time_outs("default", given) == loaded


def test_what_pyiceberg_is_told_elsewhere_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", "http://h/x")
    assert with_time_outs("lake", {"type": "rest"}) == {**URI, **TIMED}
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TYPE", "rest")
    assert with_time_outs("lake", {}) == {}


def test_the_methods_are_those_of_pyiceberg() -> None:
    """The methods are not part of pyiceberg's documented API."""
    for name in ("_config_headers", "_create_session"):
        assert name in vars(TimedRestCatalog)
        assert name in vars(RestCatalog)
