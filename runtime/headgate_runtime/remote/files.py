"""Connectors from files, as arguments of ``create``, ``apply`` and ``diff``."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import typer

from headgate_runtime.remote.options import refuse

ENDINGS: Final = (".json", ".properties")
INPUT: Final = "standard input"

Files: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE",
        help="Connectors: JSON or properties, as for standalone; a folder of .json and .properties "
        "files; - for standard input.",
    ),
]
MoreFiles: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("-f", "--file", "--filename", metavar="FILE", help="The same as FILE."),
]
FileName: TypeAlias = Annotated[
    str | None,
    typer.Option("--name", metavar="NAME", help="Of the connector, where its file has no name."),
]


def read(
    given: Sequence[str] | None, more: Sequence[str] | None, name: str | None = None
) -> list[Any]:
    """Return the connectors of all files, as `CreateConnector`. Each may be named once."""
    files = [*(given or ()), *(more or ())]
    if not files:
        refuse("no file is given\n  next: give files or folders; --help has an example")
    from headgate_runtime.config.connector_files import (
        ConnectorFileError,
        connector_of,
        read_connector_file,
    )

    if name is not None and len(files) > 1:
        refuse("--name is of one connector\n  next: give one file with it")
    found: dict[str, tuple[str, Any]] = {}
    try:
        for path in _expanded(files):
            if path == "-":
                one = connector_of(sys.stdin.buffer.read(), INPUT, name)
            else:
                one = read_connector_file(path, name)
            if one.name in found:
                where = f"{found[one.name][0]} and {path}"
                refuse(f"{one.name} is in {where}\n  next: nothing was asked; keep one of them")
            found[one.name] = path, one
    except ConnectorFileError as error:
        refuse(f"{error}\n  next: nothing was asked; mend the file")
    return [one for _, one in found.values()]


def _expanded(files: Sequence[str]) -> Iterator[str]:
    for each in files:
        folder = Path(each)
        if each == "-" or not folder.is_dir():
            yield each
            continue
        inside = sorted(str(path) for path in folder.iterdir() if path.suffix in ENDINGS)
        if not inside:
            refuse(f"{each} is a folder without {' or '.join(ENDINGS)} files")
        yield from inside
