"""Registry of the workers on a data folder, for other processes: one file for each worker.

``<data>/workers/<name>.json`` holds ``{"name", "url", "pid", "up"}``. `up` is the process id of the
`headgate up` that runs the worker. A file whose `up` is gone is ignored.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from headgate_runtime.config.private_files import make_private_folder, write_private

FOLDER = "workers"


@dataclass(frozen=True, slots=True)
class Registered:
    name: str
    url: str
    pid: int | None
    """Process id of the worker. None while it waits to be started again."""
    up: int


class Registry:
    def __init__(self, data: Path) -> None:
        self._folder = data / FOLDER
        make_private_folder(self._folder)
        self._written: dict[str, Registered] = {}

    def free_names(self, count: int) -> list[str]:
        """Return ``worker-1`` and so on, without the names that other living workers use."""
        taken = {one.name for one in self.others()}
        names: list[str] = []
        number = 0
        while len(names) < count:
            number += 1
            if f"worker-{number}" not in taken:
                names.append(f"worker-{number}")
        return names

    def write(self, workers: Sequence[tuple[str, str, int | None]]) -> None:
        """Write name, URL and process id of each worker of ours. Only changes are written."""
        for name, url, pid in workers:
            entry = Registered(name, url, pid, os.getpid())
            if self._written.get(name) == entry:
                continue
            path = self._folder / f"{name}.json"
            draft = path.with_suffix(".tmp")
            write_private(draft, json.dumps(asdict(entry)) + "\n")
            draft.replace(path)
            self._written[name] = entry

    def remove(self) -> None:
        for name in self._written:
            (self._folder / f"{name}.json").unlink(missing_ok=True)
        self._written.clear()

    def others(self) -> list[Registered]:
        """Return the workers that another living `headgate up` runs, by name."""
        return [one for one in registered(self._folder.parent) if one.up != os.getpid()]


def registered(data: Path) -> list[Registered]:
    """Return all workers on the data folder whose `headgate up` is alive, by name."""
    found: list[Registered] = []
    for path in sorted((data / FOLDER).glob("*.json")):
        try:
            entry = Registered(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):
            continue  # removed at this moment, or not ours
        if _lives(entry.up):
            found.append(entry)
    return found


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
