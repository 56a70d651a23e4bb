"""Finds in an Iceberg table's metadata whether others rolled it back or renamed its columns."""

from typing import Any


def is_rolled_back(metadata: Any, snapshot: int) -> bool:
    """Return whether the table was rolled back behind `snapshot`: whether the current snapshot does
    not descend from it.

    Old snapshots expire. The result is False if `snapshot` itself has expired, or if the line of
    ancestors ends at an expired snapshot that is newer than `snapshot`. (When a snapshot expires,
    pyiceberg makes its successor the first of the line.)

    Args:
        metadata: pyiceberg's metadata of the table.
    """
    known = {each.snapshot_id: each for each in metadata.snapshots}
    wanted, at = known.get(snapshot), metadata.current_snapshot_id
    if wanted is None:
        return False
    while at is not None and at != snapshot:
        found = known.get(at)
        if found is None:
            return False
        if (found.sequence_number or 0) < (wanted.sequence_number or 0):
            return True
        at = found.parent_snapshot_id
    return at is None


def renamed_columns(metadata: Any) -> dict[str, str]:
    """Return the present name of each renamed column, by its former name. Former names that another
    column has now are left out."""
    now = {field.field_id: field.name for field in metadata.schema().fields}
    names = set(now.values())
    return {
        field.name: now[field.field_id]
        for schema in metadata.schemas
        for field in schema.fields
        if field.field_id in now and field.name not in names
    }
