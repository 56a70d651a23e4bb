"""``python -m headgate_runtime.worker``: one worker of `headgate up`."""

from headgate_runtime.worker.loop import main

main()
