"""Options and settings that all tests share."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="fill in the outputs of the text scenarios instead of comparing them",
    )
