"""A worker of a group, as its leader's last round reports it."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit


def member(told: Mapping[str, Any], group: Mapping[str, Any]) -> dict[str, Any]:
    """Return the worker's entry in the group.

    Args:
        told: the worker in the answer to `DescribeGroup`.
        group: the whole answer.
    """
    return {
        "worker_id": urlsplit(told["url"]).netloc,
        "url": told["url"],
        "member": True,
        "leader": told["url"] == group["leader"],
        "generation": group["generation"],
    }
