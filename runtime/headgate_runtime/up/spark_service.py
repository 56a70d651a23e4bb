"""The one Spark that all workers of ``headgate up`` share."""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from headgate_runtime.pipeline import Pipeline


class SparkService:
    """Starts a Spark Connect server where the runner needs one, and again when it dies."""

    def __init__(
        self, pipeline: Pipeline, join: bool, logs: Path, said: Callable[[str], None]
    ) -> None:
        self._pipeline = pipeline
        self._said = said

    def start(self, stop: threading.Event) -> None:
        return

    def worker_settings(self) -> Mapping[str, str]:
        return {}

    def tick(self) -> None:
        return

    def close(self) -> None:
        return
