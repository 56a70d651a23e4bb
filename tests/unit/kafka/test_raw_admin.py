"""Admin requests over kafka-python when they cannot be made at all."""

import errno
import sys
from typing import Any

import pytest

from headgate.ports import TransportError
from headgate_kafka.admin import raw_client
from headgate_kafka.admin.raw_admin import RawAdmin


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> RawAdmin:
    """An admin client of a process that has no file descriptor left."""

    def refuse(**_settings: Any) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(raw_client, "KafkaAdminClient", refuse)
    return RawAdmin({"bootstrap_servers": ["b:1"]})


def test_a_state_that_cannot_be_asked_for_is_unknown(admin: RawAdmin) -> None:
    assert admin.transaction_state("g-c-0") is None


def test_a_fence_that_cannot_be_asked_for_may_be_tried_again(admin: RawAdmin) -> None:
    with pytest.raises(TransportError, match=r"no connection for administration .* open files"):
        admin.fence(["g-c-0"], 1_000)


class NoFilesLeft:
    """A finder of modules in a process without a file descriptor left."""

    def find_spec(self, name: str, *_where: Any) -> None:
        if name == raw_client.__name__:
            raise OSError(errno.EMFILE, "Too many open files")


def test_a_library_that_cannot_be_loaded_is_like_brokers_that_cannot_be_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    admin = RawAdmin({"bootstrap_servers": ["b:1"]})
    monkeypatch.delitem(sys.modules, raw_client.__name__)
    monkeypatch.setattr(sys, "meta_path", [NoFilesLeft(), *sys.meta_path])
    assert admin.transaction_state("g-c-0") is None
    with pytest.raises(TransportError, match=r"kafka-python, .* cannot be loaded: .* open files"):
        admin.fence(["g-c-0"], 1_000)
