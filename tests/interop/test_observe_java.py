"""`headgate observe` on a cluster of real Java workers."""

import itertools
import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.commands.observing import changing_nothing, observe, observed
from support.kafka.broker import Found

from local_kafka.java_connect import SINK, SOURCE, JavaWorker

pytestmark = pytest.mark.slow


@pytest.mark.exhaustive
def test_a_java_cluster_is_seen_without_joining_it(
    kafka_broker: Found,
    kafka_name: str,
    java_worker: Callable[..., JavaWorker],
    tmp_path: Path,
) -> None:
    source = tmp_path / "in.txt"
    source.write_text("".join(f"{n}\n" for n in range(100)))
    settings = {"exactly.once.source.support": "enabled"}
    worker = java_worker(kafka_broker.address, kafka_name, settings)
    make_connectors(worker, f"{kafka_name}-data", source)

    at = ("--bootstrap-servers", kafka_broker.address, "--group", kafka_name)
    topics = [f"--{kind}-topic={kafka_name}-{kind}s" for kind in ("config", "offset")]
    topics.append(f"--status-topic={kafka_name}-status")
    view = changing_nothing(kafka_broker.address, lambda: observed(*at, *topics))

    address = worker.url.removeprefix("http://")
    assert (view["group"]["state"], view["group"]["protocol"]) == ("Stable", "sessioned")
    assert view["group"]["leader"] == address
    (member,) = view["group"]["members"]
    assert member["tasks"] == ["bad-0", "snk-0", "src-0"]
    connectors = view["connectors"]
    assert connectors["snk"]["target_state"] == "PAUSED"
    assert connectors["src"]["tasks"][0]["owner"] == address
    assert connectors["src"]["fencing"] == {"pending": False, "count": 1, "waiting": False}
    assert connectors["src"]["offsets"] == [
        {"partition": {"filename": str(source)}, "offset": {"position": 290}}
    ]
    assert connectors["snk"]["progress"]["partitions"][0]["end"] >= 100
    assert len(view["findings"]) == 1
    assert view["findings"][0].startswith(f"bad-0 FAILED on {address}: ")

    # The workers' file names all of it; a person gets the same in words.
    file = worker.folder / "connect-distributed.properties"
    shown = changing_nothing(kafka_broker.address, lambda: observe("--properties", str(file)))
    assert shown.returncode == 0, shown.stderr
    assert f"{address} (leader)" in shown.stdout
    assert "bad-0 FAILED" in shown.stdout

    # Nobody joined, nothing was written.
    assert observed(*at, *topics)["group"] == view["group"]
    assert observed(*at, *topics)["config"] == view["config"]

    check_follow(worker, *at, *topics)

    worker.kill()
    other = observed("--bootstrap-servers", kafka_broker.address, "--group", "no-such", *topics)
    assert (other["group"]["state"], other["group"]["members"]) == ("Dead", [])


def make_connectors(worker: JavaWorker, topic: str, source: Path) -> None:
    """A source that runs, a sink that is paused, and one that has failed."""
    files = {"topic": topic, "topics": topic, "tasks.max": "1"}
    for name, plugin, file in (
        ("src", SOURCE, source),
        ("snk", SINK, source.parent / "out.txt"),
        ("bad", SINK, source.parent / "no-folder" / "out.txt"),
    ):
        config = {"connector.class": plugin, "file": str(file), **files}
        config.pop("topic" if plugin == SINK else "topics")
        assert worker.rest.create(name, config).status == 201
    for name, states in (("src", ["RUNNING"]), ("snk", ["RUNNING"]), ("bad", ["FAILED"])):
        worker.rest.await_tasks(name, states)
    assert worker.rest.put("/connectors/snk/pause").status == 202
    worker.rest.await_tasks("snk", ["PAUSED"])


def heed_interrupts() -> None:
    """Let a child process react to Ctrl-C: shells start background processes with the signal
    ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def check_follow(worker: JavaWorker, *options: str) -> None:
    """Follow shows one view at once, one more after a change, none in between, and ends by
    Ctrl-C."""
    command = [sys.executable, "-m", "headgate_runtime.cli", "observe", *options]
    with subprocess.Popen(
        [*command, "--follow", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    ) as process:
        views: queue.Queue[Any] = queue.Queue()

        def read() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                views.put(json.loads(line))

        reading = threading.Thread(target=read)
        reading.start()
        try:
            first = views.get(timeout=60)
            assert first["connectors"]["snk"]["target_state"] == "PAUSED"
            assert worker.rest.put("/connectors/snk/resume").status == 202
            deadline = time.monotonic() + 60
            following = []
            while (
                not following
                or following[-1]["connectors"]["snk"]["tasks"][0]["state"] != "RUNNING"
            ):
                following.append(views.get(timeout=max(deadline - time.monotonic(), 0)))
            assert following[-1]["connectors"]["snk"]["target_state"] == "STARTED"
            assert all(a != b for a, b in itertools.pairwise([first, *following]))
        finally:
            process.send_signal(signal.SIGINT)
            try:
                assert process.wait(30) in (0, 130)
            finally:
                process.kill()
            reading.join(30)
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


@pytest.mark.exhaustive
def test_what_cannot_be_observed_is_said(kafka_broker: Found) -> None:
    nowhere = observe("--bootstrap-servers", "127.0.0.1:1", "--group", "g", "--config-topic=c")
    assert nowhere.returncode == 2
    assert "127.0.0.1:1" in nowhere.stderr
    at = ("--bootstrap-servers", kafka_broker.address)
    assert "--group" in observe(*at).stderr
    named = [f"--{kind}-topic=no-such-topic" for kind in ("config", "offset", "status")]
    absent = observe(*at, "--group", "g", *named)
    assert absent.returncode == 2
    assert "no-such-topic" in absent.stderr
