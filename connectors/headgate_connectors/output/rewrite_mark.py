"""A small file beside a text file that is being written anew: how far that has come.

It is there from the start until all that was committed before is in the text file again. A crash in
between leaves a text file with some of it, beside offsets of the file before it.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from headgate.ports import TopicPartition
from headgate_connectors.output.manifest import sync_folder


class RewriteMark:
    """The mark of the text file at `output`."""

    def __init__(self, output: Path) -> None:
        self._path = output.with_name(f".{output.name}.rewrite")

    def read(self) -> dict[TopicPartition, int] | None:
        """Offsets up to which records are in the text file again; None: no rewrite is under way."""
        try:
            found = json.loads(self._path.read_bytes())
            return {(str(topic), int(number)): int(offset) for topic, number, offset in found}
        except FileNotFoundError:
            return None
        except (ValueError, TypeError):
            return {}  # marks were empty once

    def write(self, done: Mapping[TopicPartition, int]) -> None:
        draft = self._path.with_name(f"{self._path.name}.draft")
        with draft.open("w") as file:
            json.dump([[*place, offset] for place, offset in sorted(done.items())], file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._path)
        sync_folder(self._path.parent)

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)
