"""Many processes open and close a log at once. The last one to close it must not refuse the
next."""

import threading
from pathlib import Path

from headgate_embedded import open_transport, transport_settings

ROUNDS = 30
OPENINGS = 6


def test_opening_while_the_last_connection_is_closed(tmp_path: Path) -> None:
    errors: list[str] = []
    for number in range(ROUNDS):
        folder = tmp_path / str(number)
        folder.mkdir()
        open_transport(transport_settings(folder)).close()
        threads = [threading.Thread(target=open_and_close, args=(folder, errors)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert errors == []


def open_and_close(folder: Path, errors: list[str]) -> None:
    try:
        for _ in range(OPENINGS):
            open_transport(transport_settings(folder)).close()
    except Exception as error:
        errors.append(f"{type(error).__name__}: {error}")
