"""What FileStreamSource and FileStreamSink have in common: the key ``file``."""

from collections.abc import Mapping
from pathlib import Path

FILE = "headgate.file"
"""Added to the configs of tasks where the path is relative: the absolute one, as tasks may have
another working directory. An absolute path needs no addition, so that the configs equal Java's."""


def file_errors(config: Mapping[str, str], stream: str) -> dict[str, list[str]]:
    """Errors of validation by key: ``file`` must be given, as `stream` cannot serve instead."""
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
