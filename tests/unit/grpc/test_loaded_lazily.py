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


def test_a_worker_without_a_listener_loads_no_grpc(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(tmp_path)],
        cwd=TESTS,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
