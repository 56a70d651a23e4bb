"""The rights that a sink's principal needs follow from the topics in its config."""

import pytest

from headgate_kafka.admin.permissions import consumer_permissions, sink_admin_permissions

NAMES = ["logs-a", "logs-b", "logs-x", "more-logs-a"]


@pytest.mark.parametrize(
    ("config", "topics"),
    [
        ({"topics": "mine"}, ["mine"]),
        ({"topics.regex": "logs-[a-z&&[^x]]"}, ["logs-a", "logs-b"]),
        ({"topics.regex": "*"}, []),
    ],
)
def test_read_on_each_topic(config: dict[str, str], topics: list[str]) -> None:
    found = [str(each) for each in consumer_permissions({}, "s", config, lambda: NAMES)]
    assert found == ["Read on Group:connect-s", *(f"Read on Topic:{topic}" for topic in topics)]
    of_admin = [str(each) for each in sink_admin_permissions({}, "s", config, lambda: NAMES)]
    assert of_admin == [
        "Describe on Group:connect-s",
        *(f"Describe on Topic:{topic}" for topic in topics),
        *found,
        "Delete on Group:connect-s",
    ]
