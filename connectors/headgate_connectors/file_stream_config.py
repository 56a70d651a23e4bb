"""The config key ``file``, which FileStreamSource and FileStreamSink have in common."""

from collections.abc import Mapping
from pathlib import Path

FILE = "headgate.file"
"""Key of a task config with the absolute path of the file, since a task may have another working
directory. It is added only if ``file`` is relative. Otherwise the task config equals Java's."""


def file_errors(config: Mapping[str, str], stream: str) -> dict[str, list[str]]:
    """Return validation errors by key. ``file`` is required, since `stream` is not supported in its
    place."""
    if (config.get("file") or "").strip():
        return {}
    return {
        "file": [
            f'Missing configuration "file": a task may run in any process, so {stream} is not '
            "supported. Name a file."
        ]
    }


def task_config(config: Mapping[str, str]) -> Mapping[str, str]:
    path = Path(config["file"].strip())
    return config if path.is_absolute() else {**config, FILE: str(path.absolute())}
