"""What findings declare of their tests: `expected_at_parent` and `detects` of `regressions/F-*/finding.toml`, as the
commit has them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable

from holdtrue_gate.errors import ConfigError
from holdtrue_gate.verdict import Expectation

_FINDING = re.compile(r"(?P<folder>(?:.*/)?regressions/F-[^/]+)/finding\.toml")
_RATE = re.compile(r"\s*(\d+)\s*/\s*(\d+)\s*")


def parse(source: bytes, path: str) -> Expectation:
    """The expectation in one `finding.toml`. Raises ConfigError on a value that means nothing."""
    try:
        document = tomllib.loads(source.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError("finding-toml", f"{path} cannot be read: {error}") from error
    expected = document.get("expected_at_parent", "assertion")
    words: object = [expected] if isinstance(expected, str) else expected
    if not isinstance(words, list) or not all(isinstance(word, str) and word for word in words):
        raise ConfigError(
            "finding-value",
            f"{path}: expected_at_parent must be text or a list of texts",
            "assertion, hang, crash, or an exception such as sqlite3.IntegrityError",
        )
    detects = document.get("detects")
    rate: tuple[int, int] | None = None
    if detects is not None:
        match = _RATE.fullmatch(detects) if isinstance(detects, str) else None
        if match is None or not 0 < int(match.group(1)) <= int(match.group(2)):
            raise ConfigError("finding-value", f'{path}: detects must be "k/n" with 0 < k <= n, not {detects!r}')
        rate = (int(match.group(1)), int(match.group(2)))
    return _expectation(words, rate)


def _expectation(words: Iterable[str], rate: tuple[int, int] | None = None) -> Expectation:
    found = set(words)
    return Expectation(frozenset(found - {"assertion", "hang", "crash"}), "hang" in found, "crash" in found, rate)


def of_commit(trailers: Iterable[tuple[str, str]], sha: str = "") -> Expectation:
    """What a commit declares of its new tests, for a project without findings: `Expected-at-parent: sqlite3.IntegrityError`
    and `Detects: k/n` in the trailers, as in a `finding.toml`. Raises ConfigError."""
    words: list[str] = []
    rate: tuple[int, int] | None = None
    for key, value in trailers:
        if key == "expected-at-parent":
            words.extend(word.strip() for word in value.split(",") if word.strip())
        elif key == "detects":
            match = _RATE.fullmatch(value)
            if match is None or not 0 < int(match.group(1)) <= int(match.group(2)):
                raise ConfigError(
                    "finding-value", f'{sha[:12]}: the trailer Detects must be "k/n" with 0 < k <= n, not {value!r}'
                )
            rate = (int(match.group(1)), int(match.group(2)))
    return _expectation(words, rate)


def collect(paths: Iterable[str], read: Callable[[str], bytes | None]) -> dict[str, Expectation]:
    """Expectations by folder (`regressions/F-0007-slug`). `read` gives the bytes of a path at the commit. Raises
    ConfigError."""
    found: dict[str, Expectation] = {}
    for path in paths:
        match = _FINDING.fullmatch(path)
        source = read(path) if match else None
        if match and source is not None:
            found[match.group("folder")] = parse(source, path)
    return found


def of_node(id_: str, declared: dict[str, Expectation]) -> Expectation:
    """What the finding whose folder holds this node id declares."""
    for folder, expectation in declared.items():
        if id_.startswith(folder + "/"):
            return expectation
    return Expectation()
