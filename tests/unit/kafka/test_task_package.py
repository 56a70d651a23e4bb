"""A process of tasks loads little of the adapter. Some objects are made once for all processes that
are forked from it."""

import json
import subprocess
import sys
from typing import Any

OPENED = """
import json, sys
from headgate_kafka import open_task_transport

worker = {
    "bootstrap.servers": "127.0.0.1:1",
    "group.id": "g",
    "offset.storage.topic": "offsets",
}
transport = open_task_transport(
    worker, {}, connector="c", kind="source", exactly_once=True, warn=lambda _line: None
)
producer = transport.record_log.producer("p", "g-c-0", None)
print(json.dumps([name for name in sys.modules if name.partition(".")[0] == "kafka"]))
"""
FIRST_CLIENT = """
import gc, json, os, re, sys
from pathlib import Path
import headgate_kafka
from confluent_kafka.admin import AdminClient
from headgate_runtime.tasks.zygote import threads

if "prepared" in sys.argv:
    headgate_kafka.before_forks()
alone = threads() == 1
# As before forks of tasks; else a collection in the child, now and then, makes pages its own.
gc.collect()
gc.freeze()
if os.fork() == 0:
    def own_kib():
        rollup = Path("/proc/self/smaps_rollup").read_text()
        return int(re.search("Private_Dirty: +([0-9]+)", rollup)[1])
    before = own_kib()
    client = AdminClient({"log_level": 0})
    print(json.dumps({"alone": alone, "kib": own_kib() - before}), flush=True)
    os._exit(0)
os.wait()
"""


def told_by(code: str, *arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def test_kafka_python_is_not_loaded_where_tasks_begin() -> None:
    assert told_by(OPENED) == []


def test_what_the_first_client_makes_is_made_before_the_forks() -> None:
    first, prepared = told_by(FIRST_CLIENT), told_by(FIRST_CLIENT, "prepared")
    assert prepared["alone"], "a thread was left: nothing can be forked"
    # What a forked process has to itself of it; seen were 1,450 and 750.
    assert prepared["kib"] < first["kib"] - 400
