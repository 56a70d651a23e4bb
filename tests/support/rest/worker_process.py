"""A worker in a process of its own: ``python -m support.rest.worker_process FOLDER KEY=VALUE...``.

The process prints its URL. For each line of its standard input it prints how many blocks of memory
its objects have, and it ends when the input does. Keys are those of the REST server. NOFILE is the
process's limit of descriptors.
"""

import gc
import resource
import sys
from pathlib import Path

from support.rest.worker import rest_worker
from support.rest.world import LOCAL

from headgate_rest.settings import FRONT_PROCESS
from headgate_runtime.worker import collector


def main(folder: str, *settings: str) -> None:
    given = dict(setting.split("=", 1) for setting in settings)
    descriptors = int(given.pop("NOFILE", "0"))
    if descriptors:
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    collector.settle()  # as `headgate worker` does
    with rest_worker(Path(folder), rest={**LOCAL, FRONT_PROCESS: "true", **given}) as service:
        print(service.url, flush=True)
        for _ in sys.stdin:
            gc.collect()
            print(sys.getallocatedblocks(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
