"""A Java whose Spark Connect servers wait at a gate before their JVM begins."""

import os
import shutil
from pathlib import Path

_SCRIPT = """#!/bin/sh
case " $* " in
  *org.apache.spark.launcher.Main*) ;;
  *SparkConnectServer*)
    echo $$ >> "{asked}"
    while [ ! -e "{opened}" ]; do sleep 0.05; done ;;
esac
exec "{java}" "$@"
"""


class JavaGate:
    """A folder for JAVA_HOME. Its Java starts Spark Connect servers once the gate is open, and all
    other programs at once."""

    def __init__(self, folder: Path) -> None:
        self.home = folder
        self._asked, self._opened = folder / "asked", folder / "opened"
        java = folder / "bin" / "java"
        java.parent.mkdir(parents=True)
        text = _SCRIPT.format(asked=self._asked, opened=self._opened, java=_real_java())
        java.write_text(text)
        java.chmod(0o755)

    def open(self) -> None:
        self._opened.touch()

    @property
    def is_open(self) -> bool:
        return self._opened.exists()

    @property
    def asked(self) -> int:
        """Number of servers that were to start so far."""
        return len(self._asked.read_text().splitlines()) if self._asked.exists() else 0


def _real_java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    assert found is not None, "no java on the path"
    return found
