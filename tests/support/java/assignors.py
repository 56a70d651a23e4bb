"""The assignors and the protocol bytes of Apache's connect-runtime, in a Java process that answers
questions.

The questions and their fields are listed here. Bytes travel as hexadecimal digits, tasks as
``[connector, number]``.

``leader``: make a new worker that leads future rounds under this member id. Fields: leader,
delay_ms_max
``round``: return what its assignor computes. Fields: leader, protocol, now_ms, generation,
last_completed_generation, offset, connectors (task count by name), inconsistent, members
(``[id, metadata]`` in join order). With collect_first, garbage is collected before. The answer has
assignments (bytes by member), cpu_ns of the process, thread_cpu_ns and, unless the protocol is
`default`, the assignor's state: its fields by name
``write``: return bytes. Fields: what (assignment or metadata), version
``read``: return what Java reads from bytes, or ``refused``. Fields: what, bytes
``backoff``: return waits. Fields: delay_ms_max, attempts
``version``: return the version of Java, as java
"""

import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from headgate.java import hash as java_hash

PROGRAM: Final = "ConnectAssignors"
"""The program's name in tests/java."""


class JavaAssignors:
    """The assignors in `process`, which runs `PROGRAM`. Threads must not share it."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def ask(self, do: str, **question: Any) -> dict[str, Any]:
        to, answers = self._process.stdin, self._process.stdout
        assert to is not None and answers is not None
        to.write(json.dumps({"do": do, **question}, ensure_ascii=False) + "\n")
        to.flush()
        line = answers.readline()
        assert line, f"Java ended with {self._process.wait()} at {do} {str(question)[:500]}"
        answer: dict[str, Any] = json.loads(line)
        return answer


@pytest.fixture(scope="session")
def java(java_program: Callable[..., "subprocess.Popen[str]"]) -> Iterator[JavaAssignors]:
    """The one Java process of all comparisons."""
    process = JavaAssignors(java_program(PROGRAM))
    with pytest.MonkeyPatch.context() as patch:
        if process.ask("version")["java"] >= 19:
            # Its sets have another size: see java_hash.
            patch.setattr(java_hash, "_capacity_made", java_hash._capacity_grown)
        yield process
