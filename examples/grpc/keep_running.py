"""A service that keeps one connector running: it creates it, waits for it, and restarts what fails.

headgate up pipeline.toml              # in one terminal
python keep_running.py in.txt orders   # in another one, in the same folder
"""

import sys

from headgate_grpc.client import HeadgateError, connect
from headgate_grpc.v1.connector_pb2 import STATE_FAILED

RESTARTS_MAX = 5


def keep_running(file: str, name: str) -> None:
    config = {"connector.class": "FileStreamSource", "file": file, "topic": name}
    restarts = 0
    with connect() as headgate:  # HEADGATE_URL, or the `headgate up` of this folder
        headgate.put_config(name, config)
        try:
            headgate.wait(name, timeout_s=60)
            print(f"{name} runs", flush=True)
        except HeadgateError as error:
            print(f"{name} does not run yet: {error.message}", flush=True)
        for change in headgate.watch(names=[name]):
            if change.connector is None:
                print(f"{name} was deleted", flush=True)
                return
            statuses = [change.connector.status, *(task.status for task in change.connector.tasks)]
            if any(status.state == STATE_FAILED for status in statuses):
                if restarts == RESTARTS_MAX:
                    sys.exit(f"{name} still fails after {restarts} restarts")
                restarts += 1
                print(f"{name} has failed, restart {restarts}", flush=True)
                headgate.restart(name, include_tasks=True, only_failed=True)


if __name__ == "__main__":
    keep_running(*sys.argv[1:3])
