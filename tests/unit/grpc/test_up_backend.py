"""The process of `headgate up` reads its log with several threads."""

import asyncio
import threading
from pathlib import Path
from typing import Any

from headgate.topics.config_records import encode_connector
from headgate_grpc import messages
from headgate_runtime.api.up_backend import NO_ANSWER, UpBackend, _LogView
from headgate_runtime.config.settings import WorkerSettings
from headgate_runtime.up import folder


def test_what_was_touched_is_told_before_any_thread_answers_with_it(tmp_path: Path) -> None:
    """Otherwise a watch that begins after a listing would begin with less than the listing had."""
    transport = folder.open_log(tmp_path, print)
    writer = folder.open_log(tmp_path, print)
    view = _LogView(transport)
    telling, go = threading.Event(), threading.Event()

    def touched(names: object) -> None:
        telling.set()
        go.wait(10)

    view.watch(touched)
    writer.config_log.claim(1)
    writer.config_log.append([encode_connector("a", {"k": "v"})], privileged=True)
    assert telling.wait(10)
    seen: list[bool] = []
    reader = threading.Thread(
        target=lambda: seen.append(view.read()[0].entry("a") is not None), daemon=True
    )
    reader.start()
    reader.join(0.2)
    early = list(seen)
    go.set()
    reader.join(10)
    assert (early, seen) == ([], [True])
    view.watch(None)
    transport.close()
    writer.close()


def test_why_a_worker_does_not_answer_is_told() -> None:
    unused: Any = None
    settings = WorkerSettings({"group.id": "g", "plugin.path": ()}, {})
    workers = [("worker-1", "embedded:worker-1", None)]
    backend = UpBackend(unused, unused, settings, list, lambda: workers)
    (told,) = messages.cluster(asyncio.run(backend.group(100))).workers
    assert (told.answers, told.unknown) == (False, NO_ANSWER)
