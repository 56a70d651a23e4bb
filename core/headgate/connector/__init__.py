"""Everything that authors of connectors need: base classes, records, and definitions of options.

A connector is a `SourceConnector` or a `SinkConnector` that divides its work into tasks, and a task
class that does one share of it. See docs/build/connectors.md. The names below are public and stay;
modules of this package may move.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from headgate.connector.api import (
        Connector,
        ConnectorContext,
        Converter,
        DataError,
        ErrantRecordReporter,
        ExactlyOnceSupport,
        Headers,
        OffsetReader,
        OffsetUpdate,
        Partition,
        PlannedSinkTask,
        PlannedSinkTaskContext,
        RecordMetadata,
        Reported,
        RetriableError,
        SinkConnector,
        SinkRecord,
        SinkTask,
        SinkTaskContext,
        SkippedRecord,
        SourceConnector,
        SourceRecord,
        SourceTask,
        SourceTaskContext,
        TransactionContext,
        Transform,
        Value,
    )
    from headgate.connector.batches import RowNumbers, RowOffsets, SinkBatch, SourceBatch
    from headgate.connector.config import (
        NO_DEFAULT,
        ConfigDef,
        ConfigError,
        ConfigKey,
        ConfigValue,
        Importance,
        Password,
        Recommender,
        Type,
        Validator,
        Width,
    )
    from headgate.connector.config_providers import ConfigProvider, ConfigProviderError
    from headgate.connector.schema import Field, Schema, SchemaAndValue, SchemaType, validate
    from headgate.connector.validators import (
        all_of,
        at_least,
        between,
        non_empty,
        non_null,
        one_of,
        one_of_any_case,
        optional,
        regex,
        unique_values,
    )

__all__ = [
    "NO_DEFAULT",
    "ConfigDef",
    "ConfigError",
    "ConfigKey",
    "ConfigProvider",
    "ConfigProviderError",
    "ConfigValue",
    "Connector",
    "ConnectorContext",
    "Converter",
    "DataError",
    "ErrantRecordReporter",
    "ExactlyOnceSupport",
    "Field",
    "Headers",
    "Importance",
    "OffsetReader",
    "OffsetUpdate",
    "Partition",
    "Password",
    "PlannedSinkTask",
    "PlannedSinkTaskContext",
    "Recommender",
    "RecordMetadata",
    "Reported",
    "RetriableError",
    "RowNumbers",
    "RowOffsets",
    "Schema",
    "SchemaAndValue",
    "SchemaType",
    "SinkBatch",
    "SinkConnector",
    "SinkRecord",
    "SinkTask",
    "SinkTaskContext",
    "SkippedRecord",
    "SourceBatch",
    "SourceConnector",
    "SourceRecord",
    "SourceTask",
    "SourceTaskContext",
    "TransactionContext",
    "Transform",
    "Type",
    "Validator",
    "Value",
    "Width",
    "all_of",
    "at_least",
    "between",
    "non_empty",
    "non_null",
    "one_of",
    "one_of_any_case",
    "optional",
    "regex",
    "unique_values",
    "validate",
]

_HOMES: Final = {
    "headgate.connector.api": (
        "Connector ConnectorContext Converter DataError ErrantRecordReporter "
        "ExactlyOnceSupport Headers OffsetReader OffsetUpdate Partition PlannedSinkTask "
        "PlannedSinkTaskContext RecordMetadata Reported RetriableError SinkConnector "
        "SinkRecord SinkTask SinkTaskContext SkippedRecord "
        "SourceConnector SourceRecord SourceTask SourceTaskContext TransactionContext "
        "Transform Value"
    ),
    "headgate.connector.batches": "RowNumbers RowOffsets SinkBatch SourceBatch",
    "headgate.connector.config": (
        "NO_DEFAULT ConfigDef ConfigError ConfigKey ConfigValue Importance Password "
        "Recommender Type Validator Width"
    ),
    "headgate.connector.config_providers": "ConfigProvider ConfigProviderError",
    "headgate.connector.schema": "Field Schema SchemaAndValue SchemaType validate",
    "headgate.connector.validators": (
        "all_of at_least between non_empty non_null one_of one_of_any_case optional regex "
        "unique_values"
    ),
}
"""Public names of each module, separated by spaces."""
_HOME_OF: Final = {name: module for module, names in _HOMES.items() for name in names.split()}

if not TYPE_CHECKING:  # for a type checker, a name that is not listed above is an error

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first used: the modules of these names in turn import
        modules of this package."""
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_HOME_OF[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
