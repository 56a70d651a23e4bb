"""A connection to a catalog of Iceberg tables, which is kept, and what is told when it fails.

Where trying again may help, it fails with `CatalogAwayError`: the task goes on by itself once the
catalog is back. No text and no trace of what it raises has a password.
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
"""What a database says to someone who must not come in, however often that is tried."""
_AWAY: Final = {
    *("ConnectionError", "Timeout", "TimeoutError"),  # of Python, requests and SQLAlchemy
    *("ServerError", "ServiceUnavailableError", "TooManyRequestsError"),  # of pyiceberg
    *("EndpointConnectionError", "TTransportException"),  # of botocore, and Hive's
}
"""Names of errors that say that a server does not answer, since each catalog's library has its own.
requests counts an error of a certificate among them, which lasts."""
_MORE: Final = 300
"""Most characters of a reason that are shown."""


class CatalogAwayError(RetriableError):
    """The catalog does not answer now. For users."""


class CatalogConnection:
    """One catalog of pyiceberg; one thread. It is connected to when it is first asked."""

    def __init__(self, properties: Mapping[str, str], fault: type[Exception]) -> None:
        """
        Args:
            properties: as `catalog_of` gives them; may hold passwords.
            fault: what is raised where trying again does not help.
        """
        self._properties = dict(properties)
        self._fault = fault
        self._secrets = dict(_secrets(properties))
        self._catalog: Catalog | None = None

    @property
    def catalog(self) -> Catalog:
        """The catalog itself. Raises what its library raises: see `failure`."""
        if self._catalog is None:
            self._catalog = _loaded(self._properties)
        return self._catalog

    def table(self, name: str) -> Any:
        """The newest metadata of a table; None: there is no such table.

        Raises:
            CatalogAwayError: the catalog does not answer.
            Exception: `fault`, for any other reason.
        """
        try:
            return self.catalog.load_table(name)
        except NoSuchTableError:
            return None
        except Exception as error:  # each catalog's library has its own
            failure = self.failure(f"table {name} cannot be looked at", error)
        raise failure

    def ensure_namespace(self, name: str) -> None:
        """Make the namespace if it is not there. Another process may be faster."""
        with suppress(NamespaceAlreadyExistsError):
            try:
                self.catalog.create_namespace(name)
            except NamespaceAlreadyExistsError:
                raise
            except Exception:  # pyiceberg looks first, and then its database refuses a second one
                if not self.catalog.namespace_exists(name):
                    raise

    def failure(self, what: str, error: Exception) -> Exception:
        """What is to be raised for `error`, of the catalog's library or of the file system's.

        Args:
            what: what was not done; the text goes on from there.
        """
        kind: type[Exception] = self._fault
        if is_away(error):
            kind = CatalogAwayError
            what = f"{what}, which is tried again: {self.shown} does not answer"
        elif is_of_database(error):
            what = f"{what} in {self.shown}"
        made = kind(self._hidden(f"{what}: {_reason(error)}"))
        # A trace that has a password is left out.
        trace = "".join(traceback.format_exception(error))
        made.__cause__ = error if self._hidden(trace) == trace else None
        return made

    @property
    def shown(self) -> str:
        """The catalog as users know it, without passwords."""
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
    """Values that no text may have, each by a key that looks like a secret's."""
    for key, text in properties.items():
        if looks_secret(f"{CATALOG}{key}"):
            yield f"{CATALOG}{key}", text
    with suppress(ValueError):  # it is no address
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
        # A database that was started anew has closed what is kept open.
        own.setdefault("pool_pre_ping", "true")
    try:
        return load_catalog(name, **own)
    except (IntegrityError, ProgrammingError, OperationalError) as error:
        # Another process has made the tables of the catalog in the same moment.
        text = str(error)
        if "already exists" not in text and "duplicate key" not in text:
            raise
        return load_catalog(name, **own)


def _address(address: str, password: str | None) -> str:
    """The address of a database, with the password, and with an end to waiting for its server."""
    from sqlalchemy.engine import make_url

    url = make_url(address)
    if password:
        url = url.set(password=password)
    if url.get_driver_name() in _LIBPQ and "connect_timeout" not in url.query:
        url = url.update_query_dict({"connect_timeout": _CONNECT_TIMEOUT_S})
    return url.render_as_string(hide_password=False)


def is_away(error: Exception) -> bool:
    """Whether it says that the catalog does not answer now, and may do so later."""
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
    """The text of an error in one line, without the statement of SQL."""
    from sqlalchemy import exc

    if isinstance(error, exc.DBAPIError):
        return " ".join(str(error.orig).split())[:_MORE]
    return str(error).partition("\n")[0]
