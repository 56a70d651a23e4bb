"""The lock on the data folder."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headgate_embedded import (
    FolderHeldError,
    hold_folder,
    is_held,
    open_transport,
    transport_settings,
)

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


def test_who_looks_whether_it_is_held_makes_nothing_and_locks_nothing(tmp_path: Path) -> None:
    assert not is_held(tmp_path / "none")
    assert not (tmp_path / "none").exists()
    with hold_folder(tmp_path):
        assert is_held(tmp_path)
    assert not is_held(tmp_path)  # this process lives, and has let go of it
    (tmp_path / "headgate.lock").write_text("?")
    assert not is_held(tmp_path)
    hold_folder(tmp_path).close()


def test_children_do_not_inherit_it(tmp_path: Path) -> None:
    lock = hold_folder(tmp_path)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        lock.close()
        hold_folder(tmp_path).close()
    finally:
        child.communicate(b"\n")


def rights(folder: Path) -> dict[str, int]:
    """Return the rights of users other than the owner on the folder and all that is in it."""
    found = [folder, *folder.rglob("*")]
    return {str(one): mode for one in found if (mode := one.stat().st_mode & 0o077)}


@pytest.fixture
def generous_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("generous_umask")
def test_a_folder_and_what_is_in_it_are_for_its_owner_alone(tmp_path: Path) -> None:
    """Configs with passwords lie there."""
    data = tmp_path / "data"
    with hold_folder(data), closing(open_transport(transport_settings(data))) as transport:
        transport.record_log.create_topic("t", 1)
        assert (data / "headgate.db-wal").exists()
        assert rights(data) == {}


@pytest.mark.usefixtures("generous_umask")
def test_a_folder_that_an_earlier_version_made_becomes_its_owners_alone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with hold_folder(data), closing(open_transport(transport_settings(data))):
        for one in (data, *data.rglob("*")):
            one.chmod(0o777 if one.is_dir() else 0o666)
        assert rights(data)
        with closing(open_transport(transport_settings(data))):
            pass
        with pytest.raises(FolderHeldError):
            hold_folder(data)
        assert rights(data) == {}
