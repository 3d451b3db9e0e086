"""F-0027: nothing was judged, and nothing says so louder than an error; a range that is really empty still passes."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from gate.tests.commit_toys import Toy
from holdtrue_gate.cli import gate


def test_a_range_that_runs_backwards_is_no_pass(tmp_path: Path) -> None:
    toy = Toy(tmp_path / "repo")
    first = toy.commit("base", {"shop.py": "PRICE = 1\n"})
    second = toy.commit("feature: another price", {"shop.py": "PRICE = 2\n"})
    codes = {
        name: CliRunner().invoke(gate, ["check", f"{low}..{high}", "-C", str(toy.root)]).exit_code
        for name, low, high in (("backwards", second, first), ("empty", second, second))
    }
    assert codes == {"backwards": 2, "empty": 0}
