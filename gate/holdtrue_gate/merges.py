"""What a merge brings of its own: what neither parent has and no clean merge of them gives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdtrue_gate.errors import CannotJudgeError
from holdtrue_gate.repo import Commit, Listing, Repository


def _is_clean(repository: Repository, path: str, sides: Sequence[Listing], bases: Sequence[Listing | None]) -> bool:
    """Whether git, merging the parents one after the other, gives the file that the merge has; `sides` ends with it."""
    text = repository.text(sides[0], path)
    for side, base in zip(sides[1:-1], bases, strict=True):
        theirs = repository.text(side, path)
        ground = repository.text(base, path) if base is not None else None
        if theirs == ground:
            continue
        if text == ground:
            text = theirs
        elif text is None or theirs is None:
            return False
        else:
            text = repository.merged(ground or b"", text, theirs)
            if text is None:
                return False
    return text == repository.text(sides[-1], path)


def own(repository: Repository, commit: Commit, head: Listing, paths: Iterable[str]) -> list[str]:
    """Those of `paths` (relative to the project) that the merge changes against every parent, beyond what git merges by
    itself. Raises CannotJudgeError when a parent is not in this clone."""
    prefix = repository.prefix

    def listing(sha: str) -> Listing:
        whole = repository.listing(sha)
        return {p.removeprefix(prefix): entry for p, entry in whole.items() if p.startswith(prefix)}

    parents = [listing(sha) for sha in commit.parents]
    different = [path for path in paths if all(parent.get(path) != head.get(path) for parent in parents)]
    if not different:
        return []
    bases: list[Listing | None] = []
    for sha in commit.parents[1:]:
        found = repository.merge_base(commit.parents[0], sha)
        bases.append(listing(found) if found is not None else None)
    try:
        return [path for path in different if not _is_clean(repository, path, [*parents, head], bases)]
    except CannotJudgeError as error:
        if error.code != "git-failed":
            raise
        return different
