"""F-0012: a rule that would fire as something else, or never, is refused."""

from __future__ import annotations

import pytest

from holdtrue import failpoints
from holdtrue.errors import FailpointError


@pytest.mark.parametrize(
    "rules",
    [
        *("here=delay(soon)", "here=delay(nan)", "here=delay(-1)", "here=rendezvous(two,1)", "here=rendezvous(2,soon)"),
        *("here=raise(ENOSUCH)", "here=kill@0", "here=kill;here=delay(1)"),
    ],
)
def test_a_rule_that_would_fire_as_something_else_or_never_is_refused(
    monkeypatch: pytest.MonkeyPatch, rules: str
) -> None:
    monkeypatch.setenv(failpoints.ENVIRONMENT, rules)
    with pytest.raises(FailpointError):
        failpoints._armed_from_environment()
