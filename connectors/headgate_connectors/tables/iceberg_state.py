"""The state of an Iceberg table at one snapshot: its columns with their ids, and its files."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import ManifestContent, ManifestEntryStatus
from pyiceberg.schema import index_by_id
from pyiceberg.transforms import IdentityTransform

from headgate.connector.schema import Schema
from headgate_arrow import arrow_types
from headgate_connectors.tables.data_file import Ids, ParquetData, field_id
from headgate_connectors.tables.source import DataFile, Share, TableSourceError

_SMALL: Final = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
_PARQUET: Final = "PARQUET"


@contextmanager
def reading(what: str, gone: str) -> Iterator[None]:
    """Turn errors from reading the table's metadata or data files into `TableSourceError`.

    Args:
        what: name of what is read, for messages.
        gone: advice to the user if a file does not exist any more.
    """
    try:
        yield
    except TableSourceError:
        raise
    except FileNotFoundError as error:
        raise TableSourceError(f"{what} cannot be read, a file of it is gone. {gone}") from error
    except Exception as error:  # each file system's library has its own exceptions
        told = str(error).partition("\n")[0]
        raise TableSourceError(f"{what} cannot be read: {told}") from error


@dataclass(frozen=True, slots=True)
class SnapshotState:
    """The columns of a table at one snapshot."""

    columns: Any
    """pyarrow.Schema that batches of the table have."""
    schema: Schema
    """STRUCT of the same columns."""
    ids: Ids

    @classmethod
    def of(cls, metadata: Any, snapshot: Any) -> "SnapshotState":
        """Return the state of the table at `snapshot`.

        Args:
            metadata: pyiceberg's metadata of the table.

        Raises:
            TableSourceError: the rows cannot be read. The text follows the snapshot's name.
        """
        found = metadata.schema()
        if snapshot.schema_id is not None:
            found = metadata.schema_by_id(snapshot.schema_id) or found
        for number, field in index_by_id(found).items():  # also fields within structs
            if field.initial_default is not None:
                raise TableSourceError(
                    f"has a default for column {found.find_column_name(number)} in files that lack "
                    "it, which the source does not read: write the rows to a table without it"
                )
        shape = pa.schema([_small(field) for field in schema_to_pyarrow(found)])
        try:
            schema = arrow_types.struct_schema(shape)
        except arrow_types.NoFormError as error:
            raise TableSourceError(f"has a column that cannot be read: {error}") from error
        return cls(arrow_types.arrow_schema(schema), schema, Ids(shape, _names(metadata, shape)))


def _names(metadata: Any, shape: Any) -> Mapping[str, int]:
    """Return the ids of columns by name, for files without ids. It is empty if the table has no
    name mapping."""
    mapping = metadata.name_mapping()
    known = {field_id(field) for field in shape}
    found = [] if mapping is None else mapping.root
    return {name: one.field_id for one in found for name in one.names if one.field_id in known}


def _small(field: Any) -> Any:
    """Return a field with the types that records and Parquet files have. pyiceberg uses large
    types, such as large_string."""
    return field.with_type(_small_type(field.type))


def _small_type(kind: Any) -> Any:
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return kind.storage_type
    if types.is_struct(kind):
        return pa.struct([_small(kind.field(at)) for at in range(kind.num_fields)])
    if types.is_map(kind):
        return pa.map_(_small(kind.key_field), _small(kind.item_field))
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.list_(_small(kind.value_field))
    return _SMALL.get(kind, kind)


# -- files --


@dataclass(frozen=True, slots=True)
class Files:
    """Data files and delete files that the manifests of a snapshot list."""

    added: list[Any]
    """Manifest entries of the data files that the snapshot itself has added."""
    live: list[Any]
    """Manifest entries of all data files that the table has at the snapshot."""
    removed: int
    """Number of data files that the snapshot has removed."""
    deletes: int
    """Number of delete files that the snapshot has added."""
    deleting: int
    """Number of delete files that the table has at the snapshot."""


def files_of(snapshot: Any, io: Any, *, whole: bool) -> Files:
    """Read the manifests of a snapshot.

    Args:
        whole: read all manifests. Otherwise only those that the snapshot itself has added are read,
            so `live` and `deleting` are incomplete.
    """
    added, live = list[Any](), list[Any]()
    removed = deletes = deleting = 0
    for manifest in snapshot.manifests(io):
        own = manifest.added_snapshot_id == snapshot.snapshot_id
        if not own and not whole:
            continue
        for entry in manifest.fetch_manifest_entry(io, discard_deleted=False):
            mine = own and entry.snapshot_id in (None, snapshot.snapshot_id)
            is_new = mine and entry.status == ManifestEntryStatus.ADDED
            is_there = entry.status != ManifestEntryStatus.DELETED
            if manifest.content == ManifestContent.DELETES:
                deletes += is_new
                deleting += is_there
                continue
            removed += mine and not is_there
            if is_new:
                added.append(entry)
            if is_there:
                live.append(entry)
    return Files(added, live, removed, deletes, deleting)


def data_files(
    entries: list[Any], state: SnapshotState, table: Any, share: Share
) -> list[DataFile]:
    """Return the data files that belong to the share, the oldest first.

    Raises:
        TableSourceError: a file cannot be read. The text follows the snapshot's name.
    """
    found: list[tuple[int, str, DataFile]] = []
    for entry in entries:
        data = entry.data_file
        path = data.file_path
        if not share.has(path):
            continue
        if data.file_format.name != _PARQUET:
            raise TableSourceError(
                f"has the file {path} of format {data.file_format.name}, expected {_PARQUET}"
            )
        if data.key_metadata is not None:
            raise TableSourceError(f"has the file {path}, which is encrypted")
        opener = partial(_opened, table.io, path)
        size, rows = data.file_size_in_bytes, data.record_count
        ids = replace(state.ids, needed=_of_partitions(table.metadata, data.spec_id))
        made = ParquetData(path, opener, state.columns, {}, size, rows, ids)
        found.append((entry.sequence_number or 0, path, made))
    return [file for _, _, file in sorted(found, key=lambda each: each[:2])]


def _of_partitions(metadata: Any, spec_id: int) -> frozenset[int]:
    """Return the ids of columns whose own values are partition values in this spec."""
    spec = metadata.specs()[spec_id]
    return frozenset(
        [one.source_id for one in spec.fields if isinstance(one.transform, IdentityTransform)]
    )


def _opened(io: Any, path: str) -> tuple[Any, int]:
    file = io.new_input(path)
    return file.open(), len(file)
