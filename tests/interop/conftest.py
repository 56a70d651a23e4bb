"""Workers of ours, as processes, beside Java's."""

import os
from pathlib import Path

import pytest
from support.commands.worker import headgate_worker  # noqa: F401
from support.java.beside_java import cluster, growing  # noqa: F401
from support.java.connect import SOURCES
from support.java.twin_source import NAME, TESTS, announce
from support.kafka.world import kafka_world  # noqa: F401

from local_kafka.jvm import compile_java


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ``plugin.path`` with Java's half of the twin source; ours is on Python's."""
    announce(tmp_path / "packages")
    paths = (str(tmp_path / "packages"), str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")]))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    classes = tmp_path / "plugins" / "twin"
    services = classes / "META-INF" / "services"
    services.mkdir(parents=True)
    (services / "org.apache.kafka.connect.source.SourceConnector").write_text(f"{NAME}\n")
    compile_java(SOURCES / f"{NAME}.java", classes)
    return classes.parent
