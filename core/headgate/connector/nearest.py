"""Suggestion for a misspelt word."""

from collections.abc import Iterable


def nearest(word: str, words: Iterable[str]) -> str | None:
    """Return the word that needs the fewest edits of one letter from `word`; None if none is near.
    The limit is a third of the letters or two edits, whichever is more, and always fewer than all
    letters."""
    best: tuple[int, str] | None = None
    limit = max(2, len(word) // 3)
    for known in sorted(words):
        if abs(len(word) - len(known)) > limit:  # comparing long words would also be slow
            continue
        distance = _edits(word.lower(), known.lower())
        if best is None or distance < best[0]:
            best = (distance, known)
    return best[1] if best and best[0] <= limit and best[0] < len(word) else None


def _edits(left: str, right: str) -> int:
    """Return how many insertions, deletions and changes of one letter turn `left` into `right`."""
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        corner, row[0] = row[0], i
        for j, b in enumerate(right, 1):
            corner, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, corner + (a != b))
    return row[-1]
