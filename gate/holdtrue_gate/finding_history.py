"""What the history says about findings: which commits carry a `Finding:` trailer, and which folders there ever were."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from holdtrue_gate.findings import FOLDER
from holdtrue_gate.repo import Commit, Repository

_ID = re.compile(r"\bF-[0-9]{4,}\b")
_FOLDER_ID = re.compile(r"(F-[0-9]{4,})(?:-[^/]*)?\Z")

HERE = "HEAD"
EVERYWHERE = "--all"


@dataclass(frozen=True)
class Mention:
    """A commit and the findings that its trailers name."""

    sha: str
    findings: frozenset[str]


def mentions(repository: Repository, where: str = HERE) -> list[Mention]:
    """The commits with a `Finding:` trailer, newest first: those of HEAD, of a commit, or of every branch and tag."""
    answer = repository.ask(
        "log", "-z", "--encoding=UTF-8", "--format=%H%n%B", "--topo-order", "-i", "--grep=^finding:", where, "--"
    )
    found = []
    for record in answer.decode("utf-8", "replace").split("\0"):
        sha, _, message = record.partition("\n")
        ids = {
            id_
            for key, value in Commit(sha, "", (), message).trailers
            if key == "finding"
            for id_ in _ID.findall(value)
        }
        if ids:
            found.append(Mention(sha, frozenset(ids)))
    return found


def folders(repository: Repository, where: str = HERE) -> set[str]:
    """The ids of every finding folder that a commit ever touched, also of those that are gone again."""
    path = f":(top,literal){repository.prefix}{FOLDER}"
    answer = repository.ask("log", "-z", "--format=", "--name-only", "--no-renames", "-m", where, "--", path)
    depth = len(f"{repository.prefix}{FOLDER}/")
    found = set()
    for name in answer.split(b"\0"):
        id_ = id_of_folder(os.fsdecode(name.strip(b"\n"))[depth:].partition("/")[0])
        if id_ is not None:
            found.add(id_)
    return found


def id_of_folder(name: str) -> str | None:
    """F-0007 of F-0007-some-slug; None for any other folder."""
    match = _FOLDER_ID.match(name)
    return match[1] if match else None


def number(id_: str) -> int:
    """The number of an id: 7 of F-0007."""
    return int(id_.removeprefix("F-"))
