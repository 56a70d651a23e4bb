"""The REST catalog of pyiceberg, with time-outs for its server."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.utils.config import Config
from requests import Session
from requests.adapters import BaseAdapter

TIMEOUTS_S: Final = (10.0, 60.0)
"""Maximum seconds until the server is reached, and between two parts of its answer. A commit
without an answer in time may have been made, so its caller looks at the table again."""
_IMPLEMENTATION: Final = "py-catalog-impl"


class TimedRestCatalog(RestCatalog):
    """A REST catalog with time-outs. It overrides the two methods by which pyiceberg makes its
    session."""

    def _config_headers(self, session: Session) -> None:
        super()._config_headers(session)
        _limit(session)  # before a token is requested

    def _create_session(self) -> Session:
        session = super()._create_session()
        _limit(session)  # again, for the adapter that signs requests for AWS, which was added last
        return session


def with_time_outs(name: str, properties: Mapping[str, str]) -> dict[str, Any]:
    """Return properties with which pyiceberg loads a `TimedRestCatalog`.

    They are returned unchanged if they do not name a REST catalog, or if pyiceberg's own config
    file or variables give the type of the catalog with that name.
    """
    said = Config().get_catalog_config(name) or {}
    own: dict[str, Any] = {**said, **properties}
    kind, uri = str(own.pop("type", "")).lower(), str(own.get("uri", ""))
    is_rest = uri and (kind == "rest" or (not kind and uri.startswith("http")))
    if not is_rest or "type" in said or _IMPLEMENTATION in own:
        return dict(properties)
    return {**own, _IMPLEMENTATION: f"{__name__}.{TimedRestCatalog.__name__}"}


def _limit(session: Session) -> None:
    for adapter in session.adapters.values():
        if "send" not in vars(adapter):
            adapter.send = partial(_send, adapter)  # type: ignore[method-assign]


def _send(adapter: BaseAdapter, *given: Any, **named: Any) -> Any:
    if named.get("timeout") is None:
        named["timeout"] = TIMEOUTS_S
    return type(adapter).send(adapter, *given, **named)
