"""How the converters of a task are made. Those with a schema registry come from an adapter."""

from collections.abc import Callable, Mapping
from typing import cast

from headgate.connector.api import Converter
from headgate.connector.registry_converters import RegistryConverter
from headgate.connector.schema_registry import SchemaLog


def converter_maker(transport: Mapping[str, str]) -> Callable[[type[Converter]], Converter]:
    """Return a function that makes a converter of its class, for a task whose log is
    `transport`."""

    def make(found: type[Converter]) -> Converter:
        if not issubclass(found, RegistryConverter):
            return found()
        return _with_registry(found, transport)

    return make


def _with_registry(found: type[RegistryConverter], transport: Mapping[str, str]) -> Converter:
    """Return a converter that has a schema registry.

    Raises:
        MissingExtraError: a package of the adapter is not installed.
    """
    from headgate_registry.converters import working

    embedded = transport.get("kind") == "embedded"
    return working(found, _open_schemas(transport["path"]) if embedded else None)


def _open_schemas(path: str) -> Callable[[], SchemaLog]:
    def opened() -> SchemaLog:
        from headgate_embedded.schemas import open_schemas

        return cast(SchemaLog, open_schemas(path))

    return opened
