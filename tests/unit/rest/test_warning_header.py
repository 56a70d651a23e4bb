"""The header Warning of an answer to a validation."""

import pytest

from headgate_rest.warning import notes_of_header, warning_header


@pytest.mark.parametrize(
    "notes",
    [
        [],
        [("a.b", "a text")],
        [("a", 'with "quotes", a \\ and 299 - "x"'), ("b", "x: y, z"), ("", "")],
    ],
)
def test_notes_come_back_from_the_header(notes: list[tuple[str, str]]) -> None:
    assert notes_of_header(warning_header(notes)) == notes


def test_a_header_has_no_line_of_its_own_and_no_other_letters() -> None:
    assert warning_header([("k", "a\r\nb\x7fö")]) == '299 - "k: a??b??"'
    assert notes_of_header('110 proxy "stale", nonsense') == []
