"""Headgate's own code as one archive, which Spark carries to executors on other machines.

Headgate's dependencies cannot be carried so: Python does not load compiled modules from an archive.
They must be installed there.
"""

import hashlib
import importlib.metadata
import importlib.util
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PACKAGES: Final = (
    "headgate",
    "headgate_arrow",
    "headgate_connectors",
    "headgate_embedded",
    "headgate_kafka",
    "headgate_registry",
    "headgate_runtime",
    "headgate_spark",
)
"""Packages that tasks import."""
_TIME: Final = (1980, 1, 1, 0, 0, 0)


def write_archive(folder: Path) -> Path:
    """Write the archive into `folder`, named by version and content. Older ones are removed."""
    files = dict(sorted(_files()))
    digest = hashlib.sha256()
    for name, content in files.items():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    version = importlib.metadata.version("headgate")
    target = folder / f"headgate-{version}-{digest.hexdigest()[:12]}.zip"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f"{target.name}.{os.getpid()}"
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                archive.writestr(zipfile.ZipInfo(name, _TIME), content, zipfile.ZIP_DEFLATED)
        draft.replace(target)
    for other in folder.glob("headgate-*.zip"):
        if other != target:
            other.unlink(missing_ok=True)
    return target


def _files() -> Iterator[tuple[str, bytes]]:
    """Yield the names in the archive, and their contents."""
    for package in PACKAGES:
        found = importlib.util.find_spec(package)
        for place in (found.submodule_search_locations or ()) if found is not None else ():
            root = Path(place)
            for path in root.rglob("*"):
                if path.is_file() and "__pycache__" not in path.parts:
                    yield f"{package}/{path.relative_to(root).as_posix()}", path.read_bytes()
    # The connectors are found by these.
    announced = importlib.metadata.distribution("headgate")
    for name in ("METADATA", "entry_points.txt"):
        folder = f"headgate-{announced.version}.dist-info"
        yield f"{folder}/{name}", (announced.read_text(name) or "").encode()
