"""The table of specs/config-providers: what Kafka makes of references to config providers."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TABLE = Path(__file__).parents[3] / "specs" / "config-providers"
PLACE = "@files@"
"""Stands in the table for the folder that has the cases' files."""
ENVIRONMENT = {
    "REGION": "eu",
    "EMPTY": "",
    "LOOP": "${env:REGION}",
    "SECRET_A": "a",
    "OTHER": "o",
}
"""Environment variables of the cases that name none of their own."""


def cases(kind: str) -> list[dict[str, Any]]:
    """Return the cases of one kind: transform, reverse or worker."""
    text = (TABLE / "cases.jsonl").read_text(encoding="utf-8")
    found = [case for case in map(json.loads, text.splitlines()) if case["do"] == kind]
    return [{"environment": ENVIRONMENT, **case} for case in found]


def lay_out(folder: Path) -> None:
    """Write the files that the cases read."""
    contents: Mapping[str, str | Mapping[str, str]] = json.loads(
        (TABLE / "files.json").read_text(encoding="utf-8")
    )
    for name, content in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            path.write_bytes(content.encode())
        else:
            path.write_bytes(bytes.fromhex(content["hex"]))


def placed(case: Any, folder: Path) -> Any:
    """Return the case with `folder` as the place of its files."""
    return json.loads(json.dumps(case).replace(PLACE, str(folder)))


def unplaced(answer: Any, folder: Path) -> Any:
    return json.loads(json.dumps(answer).replace(str(folder), PLACE))
