"""A kept connection to a catalog of Iceberg tables, and the errors that it raises.

If trying again may help, it raises `CatalogAwayError`. Then the task goes on by itself once the
catalog is back. No text and no traceback of its errors has a password.
"""

import sqlite3
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import unquote_plus, urlsplit

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchTableError

from headgate.connector.api import RetriableError
from headgate.connector.secret_keys import looks_secret, without_secrets
from headgate_connectors.tables.iceberg_catalog import CATALOG, PASSWORD, is_sql
from headgate_connectors.tables.iceberg_rest import with_time_outs

_CONNECT_TIMEOUT_S: Final = "10"
_LIBPQ: Final = ("psycopg", "psycopg2")
"""Drivers that take libpq's parameters, such as connect_timeout."""
_REFUSALS: Final = (
    "authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "permission denied",
    "does not exist",
    "is not permitted to log in",
)
"""Parts of error texts with which a database refuses a login for good, so trying again is no
use."""
_AWAY: Final = {
    *("ConnectionError", "Timeout", "TimeoutError"),  # of Python, requests and SQLAlchemy
    *("ServerError", "ServiceUnavailableError", "TooManyRequestsError"),  # of pyiceberg
    *("EndpointConnectionError", "TTransportException"),  # of botocore, and Hive's
}
"""Names of exceptions for a server that does not answer. They are names, since each catalog's
library has its own classes. In requests, a certificate error is a subclass of one of them, though
it lasts."""
_MORE: Final = 300
"""Maximum characters of a reason in a message."""


class CatalogAwayError(RetriableError):
    """The catalog does not answer now. The message is for users."""


class CatalogConnection:
    """One catalog of pyiceberg, used by one thread. It connects when the catalog is first used."""

    def __init__(self, properties: Mapping[str, str], fault: type[Exception]) -> None:
        """
        Args:
            properties: result of `catalog_of`, which may hold passwords.
            fault: exception that is raised if trying again does not help.
        """
        self._properties = dict(properties)
        self._fault = fault
        self._secrets = dict(_secrets(properties))
        self._catalog: Catalog | None = None

    @property
    def catalog(self) -> Catalog:
        """The pyiceberg catalog. Raises the exceptions of its library: see `failure`."""
        if self._catalog is None:
            self._catalog = _loaded(self._properties)
        return self._catalog

    def table(self, name: str) -> Any:
        """Return a table with its newest metadata. None: there is no such table.

        Raises:
            CatalogAwayError: the catalog does not answer.
            Exception: `fault`, for any other error.
        """
        try:
            return self.catalog.load_table(name)
        except NoSuchTableError:
            return None
        except Exception as error:  # each catalog's library has its own exceptions
            failure = self.failure(f"table {name} cannot be looked at", error)
        raise failure

    def ensure_namespace(self, name: str) -> None:
        """Create the namespace if it does not exist. Another process may create it first."""
        with suppress(NamespaceAlreadyExistsError):
            try:
                self.catalog.create_namespace(name)
            except NamespaceAlreadyExistsError:
                raise
            except Exception:  # pyiceberg looks first, and then its database refuses a second one
                if not self.catalog.namespace_exists(name):
                    raise

    def failure(self, what: str, error: Exception) -> Exception:
        """Return the exception to raise for an error of the catalog's or the file system's library.

        Args:
            what: the beginning of the message, which says what failed.
        """
        kind: type[Exception] = self._fault
        if is_away(error):
            kind = CatalogAwayError
            what = f"{what}, which is tried again: {self.shown} does not answer"
        elif is_of_database(error):
            what = f"{what} in {self.shown}"
        made = kind(self._hidden(f"{what}: {_reason(error)}"))
        # A traceback that has a password is left out.
        trace = "".join(traceback.format_exception(error))
        made.__cause__ = error if self._hidden(trace) == trace else None
        return made

    @property
    def shown(self) -> str:
        """Name, type and address of the catalog for messages, without passwords."""
        name = self._properties.get("name", "default")
        own = [self._hidden(self._properties.get(key, "")) for key in ("type", "uri")]
        return f"catalog {name} ({' at '.join(filter(None, own))})"

    def _hidden(self, text: str) -> str:
        return without_secrets(text, self._secrets)

    def close(self) -> None:
        if self._catalog is not None:
            self._catalog.close()
            self._catalog = None


def _secrets(properties: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the values that no message may contain, each with a key that looks like a secret's."""
    for key, text in properties.items():
        if looks_secret(f"{CATALOG}{key}"):
            yield f"{CATALOG}{key}", text
    with suppress(ValueError):  # the uri is not an address
        address = urlsplit(properties.get("uri", ""))
        parameters = [part.partition("=") for part in address.query.split("&")]
        found = [address.password, *(text for key, _, text in parameters if looks_secret(key))]
        for number, text in enumerate(filter(None, found)):
            yield f"password.{number}", text
            yield f"password.plain.{number}", unquote_plus(text)


def _loaded(properties: Mapping[str, str]) -> Catalog:
    own = {key: text for key, text in properties.items() if key not in ("name", PASSWORD)}
    name = properties.get("name", "default")
    if not is_sql(properties):
        return load_catalog(name, **with_time_outs(name, own))
    from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError

    if "uri" in own and not own["uri"].startswith("sqlite"):
        own["uri"] = _address(own["uri"], properties.get(PASSWORD))
        # A database that was restarted has closed the connections that the pool keeps open.
        own.setdefault("pool_pre_ping", "true")
    try:
        return load_catalog(name, **own)
    except (IntegrityError, ProgrammingError, OperationalError) as error:
        # Another process created the tables of the catalog at the same moment.
        text = str(error)
        if "already exists" not in text and "duplicate key" not in text:
            raise
        return load_catalog(name, **own)


def _address(address: str, password: str | None) -> str:
    """Return the address of a database with its password, and with a time-out for connecting."""
    from sqlalchemy.engine import make_url

    url = make_url(address)
    if password:
        url = url.set(password=password)
    if url.get_driver_name() in _LIBPQ and "connect_timeout" not in url.query:
        url = url.update_query_dict({"connect_timeout": _CONNECT_TIMEOUT_S})
    return url.render_as_string(hide_password=False)


def is_away(error: Exception) -> bool:
    """Return whether an error means that the catalog does not answer now but may do so later."""
    from sqlalchemy import exc

    names = {kind.__name__ for kind in type(error).__mro__}
    if names & _AWAY and "SSLError" not in names:
        return True
    if not isinstance(error, exc.DBAPIError):
        return False
    text = str(error.orig)
    if isinstance(error.orig, sqlite3.Error):
        return "database is locked" in text
    lost = error.connection_invalidated
    lost = lost or isinstance(error, exc.OperationalError | exc.InterfaceError)
    return lost and not any(refusal in text for refusal in _REFUSALS)


def is_of_database(error: Exception) -> bool:
    from sqlalchemy import exc

    return isinstance(error, exc.SQLAlchemyError)


def _reason(error: Exception) -> str:
    """Return the text of an error on one line, without the SQL statement."""
    from sqlalchemy import exc

    if isinstance(error, exc.DBAPIError):
        return " ".join(str(error.orig).split())[:_MORE]
    return str(error).partition("\n")[0]
