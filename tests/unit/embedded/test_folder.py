"""The lock on the data folder."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headgate_embedded import FolderHeldError, hold_folder

HOLD = """
import sys, time
from headgate_embedded import hold_folder
lock = hold_folder(sys.argv[1])
print("held", flush=True)
time.sleep(60)
"""


def test_second_is_told_who_holds_it_with_what_command_and_since_when(tmp_path: Path) -> None:
    with hold_folder(tmp_path / "data"):
        with pytest.raises(FolderHeldError) as told:
            hold_folder(tmp_path / "data")
        assert f"process {os.getpid()} (" in str(told.value)
        assert "pytest" in str(told.value)
        assert "since 20" in str(told.value)
    hold_folder(tmp_path / "data").close()


def test_holder_that_was_killed_holds_nothing(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(FolderHeldError, match=f"process {holder.pid} "):
            hold_folder(tmp_path)
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        holder.stdout.close()
    hold_folder(tmp_path).close()


def test_children_do_not_inherit_it(tmp_path: Path) -> None:
    lock = hold_folder(tmp_path)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        lock.close()
        hold_folder(tmp_path).close()
    finally:
        child.communicate(b"\n")
