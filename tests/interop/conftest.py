"""Workers of ours, as processes, beside Java's."""

from support.beside_java import cluster, growing  # noqa: F401
from support.headgate_worker import headgate_worker  # noqa: F401
