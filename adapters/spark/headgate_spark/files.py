"""The few operations that a manifest needs of a file system, so that a model can take its place."""

import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol


class Files(Protocol):
    """Files below one folder, by relative paths with ``/``. Each call is atomic."""

    def list(self, folder: str) -> Sequence[str]:
        """Return the names in `folder`, sorted. Empty if it does not exist."""
        ...

    def read(self, path: str) -> bytes:
        """Return the content of a file. Raises `FileNotFoundError`."""
        ...

    def create(self, path: str, content: bytes) -> bool:
        """Create the file with its whole content, durably. Return False if it existed: it is
        unchanged."""
        ...

    def draft(self, prefix: str, content: bytes) -> str:
        """Write a file with a new name that begins with the path `prefix`, durably. Return its
        path."""
        ...

    def link(self, draft: str, target: str) -> bool:
        """Make the draft the file `target`, durably. The draft is gone afterwards. Return False if
        `target` existed: it is unchanged. Raises `FileNotFoundError` if the draft does not
        exist."""
        ...

    def exists(self, path: str) -> bool: ...

    def rename(self, source: str, target: str) -> None:
        """Rename a file. Raises `FileNotFoundError` if `source` does not exist."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file. Do nothing if it does not exist."""
        ...

    def sync(self, folder: str) -> None:
        """Make names that were made, moved or removed in `folder` durable. Do nothing if it does
        not exist."""
        ...


class LocalFiles:
    """A folder of this machine's file system, or of a mounted one that supports hard links."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)

    def list(self, folder: str) -> Sequence[str]:
        try:
            return sorted(entry.name for entry in os.scandir(self.root / folder))
        except FileNotFoundError:
            return []

    def read(self, path: str) -> bytes:
        return (self.root / path).read_bytes()

    def create(self, path: str, content: bytes) -> bool:
        # O_EXCL alone would leave a half-written file after a crash. A link appears whole.
        return self.link(self.draft(f"{path.rpartition('/')[0]}/.draft-", content), path)

    def draft(self, prefix: str, content: bytes) -> str:
        path = f"{prefix}{uuid.uuid4().hex}"
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        return path

    def link(self, draft: str, target: str) -> bool:
        source, place = self.root / draft, self.root / target
        try:
            os.link(source, place)
        except FileExistsError:
            # This may still be our link: a network file system that got no answer asks again, and
            # then finds its own link.
            if not source.samefile(place):
                return False
        finally:
            source.unlink(missing_ok=True)
        self.sync(target.rpartition("/")[0])
        return True

    def exists(self, path: str) -> bool:
        return (self.root / path).exists()

    def rename(self, source: str, target: str) -> None:
        os.rename(self.root / source, self.root / target)  # noqa: PTH104

    def remove(self, path: str) -> None:
        (self.root / path).unlink(missing_ok=True)

    def sync(self, folder: str) -> None:
        try:
            handle = os.open(self.root / folder, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            return
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def local_path(path: Path) -> str:
    """Return an absolute path of this machine as Spark takes it. Nothing is escaped: to Spark
    ``%20`` is a part of the name."""
    return f"file://{path}"
