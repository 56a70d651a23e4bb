"""A worker without a gRPC listener loads neither gRPC nor protobuf."""

import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2]
WITHOUT = """
import sys
from pathlib import Path
import headgate_runtime.cli
import headgate_runtime.command.standalone
import headgate_runtime.command.worker
import headgate_runtime.tasks.zygote
import headgate_runtime.up.command
import headgate_runtime.command.parser
from support.rest.worker import rest_worker

with rest_worker(Path(sys.argv[1])):
    pass
loaded = [name for name in ("grpc", "google.protobuf", "headgate_grpc") if name in sys.modules]
sys.exit(f"loaded: {loaded}" if loaded else 0)
"""

ZYGOTE = """
import sys
from headgate_runtime.tasks import zygote

zygote._load([zygote.BODY, *zygote.LATE, "headgate_kafka", "headgate_embedded"])
loaded = [name for name in ("grpc", "google.protobuf", "headgate_grpc") if name in sys.modules]
sys.exit(f"loaded: {loaded}" if loaded else 0)
"""
WITH = """
import sys
from pathlib import Path
from support.grpc.worker import grpc_worker

with grpc_worker(Path(sys.argv[1])) as served:
    served.client.get_cluster()
    loaded = [name for name in sys.modules if name.startswith("grpc_reflection.")]

    import grpc
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
    with grpc.insecure_channel(served.address.removeprefix("grpc://")) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        asked = reflection_pb2.ServerReflectionRequest(list_services="")
        (told,) = stub.ServerReflectionInfo(iter([asked]), timeout=20)
    names = {each.name for each in told.list_services_response.service}
    assert "headgate.v1.ConnectorService" in names, names
sys.exit(f"loaded: {loaded}" if loaded else 0)
"""


def succeeds(script: str, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder)],
        cwd=TESTS,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_worker_without_a_listener_loads_no_grpc(tmp_path: Path) -> None:
    succeeds(WITHOUT, tmp_path)


def test_reflection_is_loaded_when_somebody_asks_for_it(tmp_path: Path) -> None:
    succeeds(WITH, tmp_path)


def test_what_tasks_are_forked_from_loads_no_grpc(tmp_path: Path) -> None:
    succeeds(ZYGOTE, tmp_path)
