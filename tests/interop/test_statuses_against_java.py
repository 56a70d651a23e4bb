"""A Java worker's status store reads our status records, and passes over the fields that it does
not know."""

import json
import subprocess
from collections.abc import Callable

import pytest

from headgate.ids import State, TaskId
from headgate.topics.status import Status, encode_connector_status, encode_task_status

STATUSES = [
    Status(State.RUNNING, "w:8083", 3),
    Status(State.RUNNING, "w:8083", 4, version="1.2", config_offset=17),
    Status(State.FAILED, "w:8083", 5, "trace", "1.2", restarts=2, config_offset=2**40),
    Status(State.UNASSIGNED, "w:8083", 6, restarts=1, config_offset=0),
]


@pytest.mark.exhaustive
@pytest.mark.slow
def test_java_reads_statuses_that_tell_more_than_its_own(
    java_program: Callable[..., "subprocess.Popen[str]"],
) -> None:
    process = java_program("Statuses")
    assert process.stdin is not None and process.stdout is not None
    for status in STATUSES:
        for number in (-1, 0):
            task = TaskId("c", number)
            encoded = encode_connector_status("c", status)
            key, value = encoded if number < 0 else encode_task_status(task, status)
            question = {"key": key, "bytes": value.hex(), "connector": "c", "task": number}
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline()) == {
                "state": status.state.value,
                "worker_id": status.worker_id,
                "generation": status.generation,
                "trace": status.trace,
                "version": status.version,
            }
