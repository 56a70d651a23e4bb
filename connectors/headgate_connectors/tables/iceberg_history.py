"""What others have done to an Iceberg table, as its metadata tell: rolled back, columns renamed."""

from typing import Any


def is_rolled_back(metadata: Any, snapshot: int) -> bool:
    """Whether the table has left `snapshot` behind: the current snapshot does not descend from it.

    Old snapshots expire: nothing is claimed of one that has, or where the line of ancestors ends at
    one that has before `snapshot` should have been met. (pyiceberg makes what follows such a one
    the first of its line.)

    Args:
        metadata: of the table, as pyiceberg has it.
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
    """Present name by former name, of columns that have another name than they once had, where no
    other column has taken the former name."""
    now = {field.field_id: field.name for field in metadata.schema().fields}
    names = set(now.values())
    return {
        field.name: now[field.field_id]
        for schema in metadata.schemas
        for field in schema.fields
        if field.field_id in now and field.name not in names
    }
