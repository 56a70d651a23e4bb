"""The state of a Delta table at one version: its id, its columns, and whether it can be read.

Column mapping, deletion vectors and other features that change the meaning of a data file are
refused. The error names the feature.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.schema import Schema as DeltaSchema

from headgate.connector.schema import Schema
from headgate_arrow import arrow_types
from headgate_connectors.tables.delta_errors import in_a_line
from headgate_connectors.tables.source import TableSourceError

_READER_VERSION: Final = 3
_MAPPING: Final = "columnMapping"
_READ: Final = frozenset({"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", _MAPPING})
"""Reader features that do not change which rows a data file gives. Column mapping is one as long as
its mode is ``none``."""
_MODE: Final = "delta.columnMapping.mode"


@dataclass(frozen=True, slots=True)
class TableState:
    """The id, columns and partitions of a Delta table at one version."""

    id: str
    columns: Any
    """pyarrow.Schema that batches of the table have."""
    schema: Schema
    """STRUCT of the same columns."""
    partition_by: tuple[str, ...]

    @classmethod
    def of(
        cls,
        id: str,
        columns: DeltaSchema,
        partition_by: Collection[str],
        configuration: Mapping[str, str],
    ) -> "TableState":
        """Return the state of a table with these columns, partitions and properties.

        Raises:
            TableSourceError: rows of such a table cannot be read. The text follows its name.
        """
        mode = configuration.get(_MODE, "none")
        if mode != "none":
            raise TableSourceError(
                f"has column mapping ({_MODE} = {mode}), which the source does not read: write "
                "the rows to a table without it"
            )
        try:
            schema = arrow_types.struct_schema(pa.schema(columns.to_arrow()))
        except arrow_types.NoFormError as error:
            raise TableSourceError(f"has a column that cannot be read: {error}") from error
        arrow = arrow_types.arrow_schema(schema)
        for name in partition_by:
            kind = arrow.field(name).type
            if pa.types.is_binary(kind):
                raise TableSourceError(
                    f"is partitioned by {name} of type {kind}, whose values writers write into the "
                    "log in different ways: write the rows to a table without that partition"
                )
        return cls(id, arrow, schema, tuple(partition_by))

    @classmethod
    def loaded(cls, table: Any) -> "TableState":
        """Return the state of a `DeltaTable`. Raises like `of`."""
        told = table.protocol()
        check_protocol(told.min_reader_version, told.reader_features)
        about = table.metadata()
        return cls.of(
            str(about.id), table.schema(), about.partition_columns, dict(about.configuration)
        )

    @classmethod
    def of_action(cls, action: Mapping[str, Any]) -> "TableState":
        """Return the state of the table after an action ``metaData``. Raises like `of`."""
        try:
            columns = DeltaSchema.from_json(action["schemaString"])
        except (DeltaError, ValueError) as error:
            raise TableSourceError(f"has a schema that cannot be read: {error}") from error
        return cls.of(
            str(action["id"]),
            columns,
            action.get("partitionColumns") or (),
            action.get("configuration") or {},
        )


def check_protocol(reader_version: int, features: Collection[str] | None) -> None:
    """Check that a table with this reader version and these reader features can be read.

    Raises:
        TableSourceError: it cannot. The text follows the table's name.
    """
    unknown = sorted(set(features or ()) - _READ)
    if unknown:
        raise TableSourceError(
            f"has the reader feature {', '.join(unknown)}, which the source does not read: drop "
            "the feature, or write the rows to a table without it"
        )
    if reader_version > _READER_VERSION:
        raise TableSourceError(
            f"needs readers of version {reader_version}, the source is of {_READER_VERSION}"
        )


def load(path: Path, version: int | None = None) -> Any:
    """Return the `DeltaTable` at `version`, or at the newest version. None: there is no table.

    Raises:
        TableSourceError: the table cannot be loaded.
    """
    try:
        return DeltaTable(path, version=version)
    except TableNotFoundError:
        return None
    except (DeltaError, OSError, ValueError) as error:
        which = "" if version is None else f"version {version} of "
        raise TableSourceError(
            f"{which}the table at {path} cannot be read: {in_a_line(error)}"
        ) from error


def partition_value(text: str | None, kind: Any) -> Any:
    """Return the pyarrow.Scalar of a partition value in the log. An empty text is null.

    A timestamp without a zone is taken as UTC, as delta-rs writes and reads it.

    Raises:
        ValueError: the text is not a value of the type `kind`.
    """
    if text is None or text == "":
        return pa.scalar(None, kind)
    if pa.types.is_timestamp(kind) and kind.tz is not None and not _has_zone(text):
        text = f"{text}Z"
    return pa.scalar(text).cast(kind)


def _has_zone(text: str) -> bool:
    time = text[len("YYYY-MM-DD") :]
    return time.endswith("Z") or "+" in time or "-" in time
