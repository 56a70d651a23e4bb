"""Questions to a program of `tests/java`: one line of JSON for each question, and one for its
answer."""

import json
import subprocess
from typing import Any


class JavaProgram:
    """A program that `java_program` has started. Threads must not share it."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def ask(self, **question: Any) -> Any:
        to, answers = self._process.stdin, self._process.stdout
        assert to is not None and answers is not None
        to.write(json.dumps(question) + "\n")
        to.flush()
        line = answers.readline()
        assert line, f"Java ended with {self._process.wait()} at {question}"
        return json.loads(line)
