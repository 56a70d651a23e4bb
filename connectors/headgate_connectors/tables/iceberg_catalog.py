"""Config settings that name an Iceberg table and its catalog."""

import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from headgate.connector.config import ConfigDef, Importance, Type

CATALOG: Final = "catalog."
"""Prefix of settings that are properties of the catalog."""
PASSWORD: Final = "password"
"""Name of the one catalog property that is Headgate's own, and not pyiceberg's."""
_REFERENCE: Final = "${"
_TYPES: Final = ("bigquery", "dynamodb", "glue", "hive", "rest", "sql")
_SQL_SCHEMES: Final = ("sqlite", "postgresql")
"""Schemes of addresses that pyiceberg takes for a SQL catalog without ``catalog.type``."""
_PACKAGES: Final = {"psycopg": "psycopg[binary]", "psycopg2": "psycopg2-binary"}
"""Package to install for a driver's module, if the two have different names."""


def define_catalog(config: ConfigDef) -> ConfigDef:
    """Return `config` with the documented settings of a catalog. pyiceberg has more properties."""
    string, secret = Type.STRING, Type.PASSWORD
    high, medium, low = Importance.HIGH, Importance.MEDIUM, Importance.LOW
    return (
        config.define("catalog.type", string, "", None, high,
                "Kind of the catalog: sql (tables of a database), rest, or glue, hive, dynamodb or "
                "bigquery. Without it catalog.uri tells. Every other property of pyiceberg's "
                "catalog can be given as catalog.NAME, too.")
        .define("catalog.uri", secret, None, None, high,
                "Address of the catalog, such as sqlite:////data/catalog.db, "
                "postgresql://user@host:5432/database or https://host/path. It is hidden where it "
                "is shown, since it may have a password.")
        .define("catalog.warehouse", string, "", None, high,
                "Where new tables are kept, such as file:///data/warehouse or s3://bucket/folder. "
                "For rest it is what the server calls a warehouse.")
        .define("catalog.name", string, "default", None, medium,
                "Name of the catalog. A sql catalog keeps the tables of each name apart.")
        .define("catalog.password", secret, None, None, medium,
                "For sql: password of the database, instead of one in catalog.uri. No character of "
                "it needs to be escaped.")
        .define("catalog.credential", secret, None, None, medium,
                "For rest: the client's id and its secret, as ID:SECRET.")
        .define("catalog.token", secret, None, None, medium,
                "For rest: a bearer token.")
        .define("catalog.s3.endpoint", string, "", None, low,
                "Address of the object store, if it is not that of AWS.")
        .define("catalog.s3.region", string, "", None, low, "Region of the object store.")
        .define("catalog.s3.access-key-id", string, "", None, low, "Key of the object store.")
        .define("catalog.s3.secret-access-key", secret, None, None, low,
                "Secret of that key.")
        .define("catalog.s3.session-token", secret, None, None, low,
                "Token of that key, if it is one of a session.")
    )  # fmt: skip


def catalog_of(config: Mapping[str, str]) -> dict[str, str]:
    """Return the catalog's properties without empty ones. They may hold passwords."""
    own = {key: text for key, text in config.items() if key.startswith(CATALOG) and text}
    return {key[len(CATALOG) :]: text.strip() for key, text in own.items() if text.strip()}


def is_sql(properties: Mapping[str, str]) -> bool:
    """Return whether the properties name a SQL catalog, which keeps its data in a database."""
    kind = properties.get("type", "").lower()
    return kind == "sql" or (not kind and properties.get("uri", "").startswith(_SQL_SCHEMES))


def catalog_errors(config: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
    """Return the errors, by key, of ``table`` and of the catalog's properties."""
    table = config.get("table", "").strip()
    if table and not re.fullmatch(r"[^.\s]+(\.[^.\s]+)+", table):
        return {"table": [f"is {table}, expected a namespace and a name, such as shop.orders"]}
    properties = catalog_of(config)
    if not properties:
        text = "names no catalog: set catalog.type and catalog.uri, as pyiceberg knows them"
        return {"table": [text]}
    kind = properties.get("type", "").lower()
    if kind == "in-memory":
        text = "is in-memory, which no other process sees: its tables end with the task"
        return {"catalog.type": [text]}
    if kind and kind not in _TYPES:
        return {"catalog.type": [f"is {kind}, expected one of {', '.join(_TYPES)}"]}
    if not is_sql(properties):
        if PASSWORD in properties:
            text = "is for catalogs of type sql: for rest, set catalog.credential or catalog.token"
            return {"catalog.password": [text]}
        return {}
    fault = _address_fault(properties)
    return {} if fault is None else {"catalog.uri": [fault]}


def _address_fault(properties: Mapping[str, str]) -> str | None:
    """Return what is wrong with the address of a SQL catalog. The text has no password."""
    address = properties.get("uri", "")
    if not address or _REFERENCE in address:
        return None  # pyiceberg's config file or a config provider may have the address
    if address.startswith("sqlite"):
        return _sqlite_fault(address)
    if PASSWORD in properties and _has_password(address):
        return "has a password, and catalog.password is given: leave one of them out"
    return _driver_fault(address)


def _sqlite_fault(address: str) -> str | None:
    path = address.partition("://")[2].partition("?")[0].strip("/")
    if not path or path == ":memory:":
        return "is a database in memory, which no other process sees: name a file"
    return None


def _has_password(address: str) -> bool:
    try:
        return bool(urlsplit(address).password)
    except ValueError:
        return False  # it is not an address, and its driver will report that


def _driver_fault(address: str) -> str | None:
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError

    try:
        url = make_url(address)
        dialect = url.get_dialect()
        dialect.import_dbapi()
    except NoSuchModuleError:
        scheme = address.partition(":")[0]
        return f"is of {scheme}, a database or driver that SQLAlchemy does not know here"
    except (ArgumentError, ValueError):
        return "is no address of a database, expected one such as postgresql://user@host/database"
    except ImportError as error:
        module = (error.name or url.get_driver_name()).partition(".")[0]
        package = _PACKAGES.get(module, module)
        return (
            f"needs the Python package {module} on each worker, which is not installed or cannot "
            f'be loaded: pip install "{package}"'
        )
    if dialect.is_async:
        return f"has the driver {url.get_driver_name()}, expected one that is not asynchronous"
    return None
