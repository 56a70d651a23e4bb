"""Finds declared columns that a file lacks, and whether they may be null."""

from collections.abc import Collection, Sequence
from typing import NamedTuple


class Missing(NamedTuple):
    """Why a file lacks declared columns, as a text for users."""

    reason: str
    may_be_null: bool
    """True if the column is simply missing. False if the file seems to have it in another form."""


def missing_columns(declared: Collection[str], there: Sequence[str]) -> Missing | None:
    """Return why a file lacks declared columns. None: it has all of them.

    A column may not be null if the file has its name in another spelling (case or outer spaces), or
    has none of several declared columns. Then the file has another delimiter or other data.

    Args:
        declared: names of the declared columns.
        there: names of the file's columns.
    """
    missing = [name for name in declared if name not in there]
    if not missing:
        return None
    others = {_bare(name): name for name in there if name not in declared}
    for name in missing:
        if (other := others.get(_bare(name))) is not None:
            return Missing(
                f"column {name!r}, the file has {other!r}, which differs in case or outer spaces "
                "only",
                may_be_null=False,
            )
    shown = ", ".join(there)
    if len(missing) == len(declared) > 1:
        reason = f"columns {', '.join(declared)}, the file has none of them, but {shown}"
    else:
        reason = f"column {missing[0]}, the file has {shown}"
    return Missing(reason, may_be_null=len(missing) < len(declared))


def _bare(name: str) -> str:
    return name.strip().casefold()
