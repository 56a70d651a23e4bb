"""A worker process without a herder, with which `headgate up` is tested without tasks.

It answers `DescribeWorker` and writes the config topic for `PutConnectorConfig` as a herder would.
With `--owner` it claims to run everything. ``--mode`` says how it misbehaves: ``dies`` ends at once
with words on standard error, ``deaf`` ignores SIGTERM, ``fails`` shows its tasks as FAILED.
"""

import argparse
import json
import os
import signal
import sys
import threading
import time

from headgate import wire
from headgate.herder.messages import (
    DeleteConnector,
    DescribeWorker,
    ErrorKind,
    Failure,
    PutConnectorConfig,
    Result,
    Success,
    TaskView,
    WorkerView,
)
from headgate.ids import State, TaskId
from headgate.topics.config_records import (
    decode,
    encode_commit,
    encode_connector,
    encode_connector_tombstone,
    encode_task,
)
from headgate.topics.config_reducer import fold
from headgate.topics.config_state import ConfigState
from headgate_embedded import open_transport


class FakeWorker:
    def __init__(self, config: dict[str, object], arguments: argparse.Namespace) -> None:
        self.name = str(config["name"])
        self.transport = open_transport(config["transport"], url=config["url"])  # type: ignore[arg-type]
        self.arguments = arguments
        self.state = ConfigState()
        self.started = time.monotonic()

    def serve(self) -> None:
        while True:
            for call in self.transport.peers.incoming():
                self.transport.peers.answer(call.call_id, self.answer(call.call))
            time.sleep(0.01)

    def answer(self, call: object) -> Result:
        self.read()
        match call:
            case DescribeWorker():
                return Success(wire.plain(self.view()))
            case PutConnectorConfig(name, config):
                if time.monotonic() < self.started + self.arguments.ready_after:
                    return Failure(ErrorKind.NOT_READY, "the worker is starting")
                if "refuse.me" in config:
                    return Failure(ErrorKind.BAD_REQUEST, "refuse.me is not what we like")
                task = TaskId(name, 0)
                records = [encode_connector(name, config), encode_task(task, config)]
                self.write([*records, encode_commit(name, 1)])
                return Success()
            case DeleteConnector(name):
                self.write([encode_connector_tombstone(name)])
                return Success()
            case _:
                return Failure(ErrorKind.INTERNAL, f"{call}")

    def write(self, records: object) -> None:
        self.transport.config_log.append(records, privileged=False)  # type: ignore[arg-type]
        self.read()

    def read(self) -> None:
        found, _ = self.transport.config_log.read(max(0, self.state.offset))
        self.state = fold(self.state, [decode(r.offset, r.key, r.value) for r in found])

    def view(self) -> WorkerView:
        seconds = time.monotonic() - self.started
        mine = list(self.state.connector_names()) if self.name == self.arguments.owner else []
        state = State.FAILED if self.arguments.mode == "fails" else State.RUNNING
        tasks = [task for name in mine for task in self.state.tasks(name)]
        busy = seconds < self.arguments.busy
        return WorkerView(
            worker_id=self.name,
            url=f"embedded:{self.name}",
            member_id=self.name,
            leader=self.arguments.owner,
            generation=1,
            config_offset=self.state.offset,
            settled=True,
            pending=(),
            connectors=dict.fromkeys(mine, State.RUNNING),
            tasks=tuple(
                TaskView(
                    task, state, int(min(seconds, self.arguments.busy) * 1000), 0, not busy, 0, ""
                )
                for task in tasks
            ),
            rebalances=1,
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--owner", default="worker-1")
    parser.add_argument("--mode", default="")
    parser.add_argument("--busy", type=float, default=0.0)
    parser.add_argument("--ready-after", type=float, default=0.0)
    arguments = parser.parse_args()
    config = json.loads(sys.stdin.readline())
    if arguments.mode == "dies":
        sys.exit(f"{config['name']} cannot start: no reason at all")
    if arguments.mode == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))

    def watch() -> None:
        sys.stdin.read()
        os._exit(3)

    threading.Thread(target=watch, daemon=True).start()
    print("2026-01-01 00:00:00 WARNING fake: a warning for the user", file=sys.stderr, flush=True)
    FakeWorker(config, arguments).serve()


if __name__ == "__main__":
    main()
