"""The files that a task of DirectorySource has claimed, as the other tasks see them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headgate_connectors.files import claims
from headgate_connectors.files.claims import FileClaims, claims_folder

CLAIMS_AND_WAITS = """
import sys
from pathlib import Path
from headgate_connectors.files.claims import FileClaims
claims = FileClaims(Path(sys.argv[1]), 1, print)
claims.claim({7})
print("claimed", flush=True)
sys.stdin.read()
"""


def of(folder: Path, task: int) -> FileClaims:
    return FileClaims(folder / "all" / "one", task, pytest.fail)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def test_a_file_is_claimed_by_one_task_until_it_is_released(folder: Path) -> None:
    (folder / "all").mkdir()
    one, two = of(folder, 0), of(folder, 1)
    assert one.claim({1, 2}) == {1, 2}
    assert two.claim({2, 3}) == {3}
    assert (one.held, two.held) == ({1, 2}, {3})
    one.release({2, 9})
    assert two.claim({2}) == {2}
    assert one.claim({2, 3}) == set()
    two.close()
    assert one.claim({2, 3}) == {2, 3}
    one.close()


def test_a_task_that_was_replaced_keeps_nobody_waiting_of_its_number(folder: Path) -> None:
    """A replaced task is fenced, so what it has not committed it never will."""
    former, now = of(folder, 0), of(folder, 0)
    assert former.claim({1}) == {1}
    assert now.claim({1}) == {1}
    former.close()
    now.close()


def test_what_a_killed_process_has_claimed_is_free(folder: Path) -> None:
    place = folder / "all" / "one"
    process = subprocess.Popen(
        [sys.executable, "-c", CLAIMS_AND_WAITS, str(place)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdin is not None
    assert process.stdout.readline() == "claimed\n"
    subject = of(folder, 0)
    assert subject.claim({7, 8}) == {8}
    process.kill()
    process.wait()
    assert subject.claim({7}) == {7}
    assert len(list(place.iterdir())) == 1  # that of the killed one is gone
    subject.close()
    process.stdin.close()
    process.stdout.close()


def test_a_folder_that_cannot_be_written_is_told_and_stops_nobody(folder: Path) -> None:
    (folder / "file").write_text("")
    told: list[str] = []
    subject = FileClaims(folder / "file" / "one", 0, told.append)
    assert subject.claim({1}) == {1}
    assert subject.claim({2}) == {2}
    assert len(told) == 1 and "a file that is renamed while it is read may" in told[0].lower()
    subject.close()


def test_a_folder_of_another_user_is_not_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(claims.os, "getuid", lambda: os.geteuid() + 1)
    FileClaims(folder / "all" / "one", 0, told.append).claim({1})
    assert "belongs to another user" in told[0]


@pytest.mark.parametrize("written", [0, 5])
def test_a_disk_that_is_full_at_a_release_keeps_nobody_waiting(
    folder: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    """That holds also if half of a number was written. The numbers after it would be misread."""
    (folder / "all").mkdir()
    told: list[str] = []
    one, two = FileClaims(folder / "all" / "one", 0, told.append), of(folder, 1)
    assert one.claim({1, 2}) == {1, 2}
    assert two.claim({1, 2}) == set()
    with monkeypatch.context() as full:
        full.setattr(claims.os, "write", lambda _file, _data: written)
        one.release({1})
    assert "No space left on device" in told[0]
    assert two.claim({1, 2}) == {1, 2}
    assert one.claim({1}) == {1}
    assert len(told) == 1
    two.close()


def test_a_file_that_was_tidied_up_is_written_again(folder: Path) -> None:
    (folder / "all").mkdir()
    one, two = of(folder, 0), of(folder, 1)
    assert one.claim({1}) == {1}
    for path in (folder / "all" / "one").iterdir():
        path.unlink()
    assert one.claim({2}) == {2}
    assert two.claim({1, 2, 3}) == {3}
    one.close()
    two.close()
    assert list((folder / "all" / "one").iterdir()) == []


def test_clusters_connectors_and_directories_have_claims_of_their_own() -> None:
    """A paused task holds up no task of another cluster."""
    given = [(cluster, name, where) for cluster in "pq" for name in "ab" for where in ("/x", "/y")]
    assert len({claims_folder(*each) for each in given}) == 8
    assert claims_folder("p", "a", "/x") == claims_folder("p", "a", "/x")
