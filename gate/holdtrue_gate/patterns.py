"""Path rules: which paths of a repository a list of names and globs means. Paths are relative, with forward slashes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str]:
    anchored = "/" in pattern.rstrip("/")
    body, index, text = "", 0, pattern.strip("/")
    while index < len(text):
        if text.startswith("**/", index):
            body, index = body + "(?:.*/)?", index + 3
        elif text.startswith("**", index):
            body, index = body + ".*", index + 2
        elif text[index] == "*":
            body, index = body + "[^/]*", index + 1
        elif text[index] == "?":
            body, index = body + "[^/]", index + 1
        else:
            body, index = body + re.escape(text[index]), index + 1
    lead = "" if anchored else "(?:.*/)?"
    # Whatever a rule names, it also means everything below it: `tests` is the folder and its data.
    return re.compile(f"{lead}{body}(?:/.*)?", re.DOTALL)


class PathRules:
    """A path matches when one rule does.

    A rule without a slash means a name at any depth (`conftest.py`, `test_*.py`); one with a slash is anchored at the
    root (`impl/tests`,
    `**/tests/**`). `*` and `?` stay within one component, `**` crosses them. A matching folder brings everything below it.
    """

    def __init__(self, rules: Iterable[str]) -> None:
        self.rules = tuple(rules)

    def matches(self, path: str) -> bool:
        """Whether one of the rules means `path`."""
        return any(_compiled(rule).fullmatch(path) for rule in self.rules)

    def __repr__(self) -> str:
        return f"PathRules({list(self.rules)!r})"
