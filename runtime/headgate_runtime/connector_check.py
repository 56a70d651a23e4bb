"""Is a connector config right, as far as can be told before anything runs?"""

from collections.abc import Iterator, Mapping

from headgate_runtime.plugins import PluginError, find_connector


def connector_problems(config: Mapping[str, str], runner: str) -> Iterator[tuple[str, str]]:
    """What is wrong with `config`: key (empty: the connector as a whole) and text.

    Args:
        config: with ``name`` and ``connector.class``.
        runner: where tasks will run; some connectors run on one runner only.
    """
    try:
        connector = find_connector(config["connector.class"])
    except PluginError as error:
        yield "connector.class", str(error)
        return
    needed = connector.REQUIRES_RUNNER
    if needed is not None and needed != runner:
        yield (
            "connector.class",
            f'{config["connector.class"]} needs runner = "{needed}" under [cluster], '
            f'the runner is "{runner}"',
        )
