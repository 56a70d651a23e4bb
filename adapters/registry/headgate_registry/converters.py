"""The working converters for the classes of `headgate.connector.registry_converters`."""

import importlib
from typing import Final

from headgate.connector.registry_converters import RegistryConverter
from headgate.errors import MissingExtraError
from headgate_registry.base import FormatConverter, OpenLog

_MODULES: Final = {
    "AvroConverter": "headgate_registry.avro_converter",
    "JsonSchemaConverter": "headgate_registry.json_schema_converter",
    "ProtobufConverter": "headgate_registry.protobuf_converter",
}


def working(found: type[RegistryConverter], open_log: OpenLog | None) -> FormatConverter:
    """Make the working converter for a converter's class.

    Args:
        open_log: opens the schemas of the embedded log. None: the transport is another one.

    Raises:
        MissingExtraError: a package of the extra ``registry`` is not installed.
    """
    try:
        importlib.import_module("headgate_registry.remote")
        module = importlib.import_module(_MODULES[found.__name__])
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("headgate"):
            raise
        raise MissingExtraError("registry") from error
    made: FormatConverter = module.Working(open_log)
    return made
