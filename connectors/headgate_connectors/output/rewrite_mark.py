"""The rewrite mark: a small file beside a text file whose committed records are written again.

It says how far the rewrite has come. It exists from the start of the rewrite until all records that
were committed before are in the text file again. A crash in between leaves a text file with a part
of the records, while the committed offsets still are those of the lost file.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from headgate.ports import TopicPartition
from headgate_connectors.output.manifest import sync_folder


class RewriteMark:
    """The rewrite mark of the text file at `output`."""

    def __init__(self, output: Path) -> None:
        self._path = output.with_name(f".{output.name}.rewrite")

    def read(self) -> dict[TopicPartition, int] | None:
        """Return the offsets up to which records are in the text file again. None: no rewrite is
        under way."""
        try:
            found = json.loads(self._path.read_bytes())
            return {(str(topic), int(number)): int(offset) for topic, number, offset in found}
        except FileNotFoundError:
            return None
        except (ValueError, TypeError):
            return {}  # an earlier version wrote empty marks

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
