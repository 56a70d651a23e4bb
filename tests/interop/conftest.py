"""Workers of ours, as processes, beside Java's."""

from support.headgate_worker import headgate_worker  # noqa: F401
