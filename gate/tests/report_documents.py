"""Documents of the schema `holdtrue.gate/1`, written by hand: what reports are made of, without a replay."""

from __future__ import annotations

import copy
from typing import Any

Data = dict[str, Any]

# One string with what each format must not obey: markup, commands, tables, escapes of a terminal, and what is no text.
HOSTILE = (
    '<script>document.title="pwned"</script><img src=x onerror=alert(1)>"\'&amp;]]>--> %0A::error file=x::y'
    " ##[add-mask]x | `code` **bold** [link](javascript:alert(1)) {{7*7}} ${{ x }} \x1b[31mred\x1b[0m \x07\x00"
    " \u202ertl\u202c \ud800 \ufffe"
    "\r\n::set-env name=A::b"
)

SOURCE = [
    {"line": 11, "text": "", "marked": False},
    {"line": 12, "text": "def test_a_discount_is_taken_once():", "marked": False},
    {"line": 13, "text": "    cart = Cart(items=[Item(60)], discounts=[5])", "marked": False},
    {"line": 14, "text": "    assert cart.total() == 55", "marked": True},
    {"line": 15, "text": "    assert cart.is_open", "marked": False},
]


def run(side: str, outcome: str = "passed", **more: Any) -> Data:
    empty = dict.fromkeys(("phase", "exception", "message", "location", "output"))
    return {"side": side, "outcome": outcome, "reason": "passes", "source": [], **empty, **more}


def judged(id_: str, verdict: str = "own-assertion", **more: Any) -> Data:
    red = verdict not in ("vacuous", "not-run")
    file = id_.partition("::")[0]
    entry: Data = {
        "id": id_,
        "line": 12,
        "verdict": verdict,
        "proof": verdict in ("own-assertion", "own-probabilistic", "declared-exception"),
        "blocks": False,
        "changed": False,
        "side": "parent",
        "exception": "AssertionError" if red else None,
        "message": "assert 50 == 55" if red else None,
        "location": f"{file}:14" if red else None,
        "symbol": None,
        "reason": "fails with its own assertion" if red else "passes at the parent too",
    }
    parent = run("parent", verdict if red else "passed")
    if red:
        told = {key: entry[key] for key in ("exception", "message", "location", "reason")}
        parent |= told | {"phase": "call", "source": copy.deepcopy(SOURCE)}
        parent["output"] = "[Captured stdout call]\ncart: 60.00\ndiscount: 5.00\ndiscount: 5.00\ntotal: 50.00"
    entry["runs"] = [run("head") for _ in range(3)] + [copy.deepcopy(parent) for _ in range(3)]
    return entry | more


def commit(*tests: Data, result: str = "pass", **more: Any) -> Data:
    return {
        "sha": "9c02d670fe3a41b2c86d1f0a7f7a5f6f0d1b2c3d",
        "parent": "17aa0be41dd2c3b4a5968778695a4b3c2d1e0f00",
        "subject": "fix: take a discount once",
        "kind": "fix",
        "result": result,
        "reason": "the fix is proved by 1 test" if result == "pass" else "1 new test is not acceptable here: vacuous",
        "tests": list(tests),
        "weakened": [],
        "hunks": [],
        "problems": [],
        "notes": [],
        **more,
    }


def document(*commits: Data, **more: Any) -> Data:
    results = {one["result"] for one in commits}
    result = "fail" if "fail" in results else "cannot-judge" if "cannot-judge" in results else "pass"
    return {"schema": "holdtrue.gate/1", "range": "main..HEAD", "result": result, "commits": list(commits)} | more


def hunk(number: int, status: str = "pinned", *, file: str = "shop/cart.py", **more: Any) -> Data:
    return {
        "id": f"H{number}",
        "file": file,
        "old_file": file,
        "kind": "lines",
        "head": [10 * number, 3],
        "parent": [10 * number, 2],
        "status": status,
        "reason": {"pinned": "", "unpinned": "every new test passes without it"}.get(status, "only a comment changed"),
        "tests": [],
        "group": [],
        "runs": [],
        "digest": f"{number:016x}",
        **more,
    }


def weakened(**more: Any) -> Data:
    return {
        "id": "tests/test_cart.py::test_an_empty_cart_costs_nothing",
        "kind": "expectation-changed",
        "before": "== 0",
        "after": "== 5",
        "location": "tests/test_cart.py:31",
        "reason": None,
        "blocks": True,
        "certain": True,
        "note": "from one value to another",
        **more,
    }


PROBLEM = {
    "code": "no-tests",
    "message": "the product changed (shop/tax.py) and no test is new or changed",
    "hint": "Add a test in the same commit that fails without the change.",
}


def full() -> Data:
    """Every part that a document can have: proofs, a pretence, doubts, weakened tests, hunks, a problem, a note."""
    proof = "tests/test_cart.py::test_a_discount_is_taken_once"
    other = "tests/test_cart.py::TestTotals::test_totals_are_rounded[EUR-2]"
    hunks = [
        hunk(1, tests=[proof], runs=[_cell(proof, "own-assertion", pins=True), _cell(other, "passed")]),
        hunk(2, "unpinned", runs=[_cell(proof, "passed"), _cell(other, "passed")]),
        hunk(3, "inseparable", file="shop/money.py", group=["H3", "H4"], reason="NameError without it"),
        hunk(4, "skipped", file="shop/money.py"),
    ]
    hunks[2]["runs"] = [_cell(other, "missing-api")]
    return document(
        commit(judged(proof), judged(other, "missing-api"), hunks=hunks, notes=["addopts -x was ignored"]),
        commit(
            judged("tests/test_words.py::test_only_the_first_word_is_capitalised", "vacuous", blocks=True),
            judged("tests/test_words.py::test_words", "environment", reason="the module 'yaml' is not installed"),
            judged("tests/test_words.py::test_skipped", "not-run", reason="is skipped (later)"),
            result="fail",
            sha="8317943a0f" + "0" * 30,
            subject="fix: capitalise the first word only",
            weakened=[
                weakened(),
                weakened(kind="deleted", id="tests/test_cart.py::test_old", blocks=False, after=None),
            ],
        ),
        commit(
            result="cannot-judge",
            sha="5d6e7f8091" + "0" * 30,
            subject="fix: tax is rounded",
            reason=PROBLEM["message"],
            problems=[dict(PROBLEM)],
        ),
    )


def _cell(id_: str, outcome: str, *, pins: bool = False) -> Data:
    return {"id": id_, "outcome": outcome, "pins": pins, "exception": None, "location": None}


def hostile() -> Data:
    """Untrusted text wherever the schema lets text be."""
    bad = judged(f"tests/{HOSTILE}.py::test_{HOSTILE}[{HOSTILE}]", "vacuous", blocks=True)
    bad |= {
        "exception": HOSTILE,
        "message": HOSTILE,
        "location": f"tests/{HOSTILE}.py:3",
        "symbol": HOSTILE,
        "reason": HOSTILE,
    }
    red = run(
        "parent", "crash", exception=HOSTILE, message=HOSTILE, location=f"{HOSTILE}:1", reason=HOSTILE, output=HOSTILE * 3,
        source=[{"line": 1, "text": HOSTILE, "marked": True}],
    )  # fmt: skip
    bad["runs"] = [run("head"), red]
    problem = {"code": HOSTILE, "message": HOSTILE, "hint": HOSTILE}
    part = hunk(1, HOSTILE, file=HOSTILE, id=HOSTILE, tests=[HOSTILE], group=[HOSTILE], reason=HOSTILE, digest=HOSTILE)
    return document(
        commit(
            bad,
            result="fail",
            subject=HOSTILE,
            reason=HOSTILE,
            notes=[HOSTILE],
            problems=[problem],
            weakened=[
                weakened(
                    id=HOSTILE,
                    kind=HOSTILE,
                    before=HOSTILE,
                    after=HOSTILE,
                    location=HOSTILE,
                    reason=HOSTILE,
                    note=HOSTILE,
                )
            ],
            hunks=[part, hunk(2, "unpinned", file=HOSTILE)],
        ),
        range=HOSTILE,
    )


def long(tests: int = 50, hunks: int = 14) -> Data:
    """A large commit: many tests of all verdicts with hostile names and output, and a wide table."""
    kinds = ["own-assertion"] * 6 + ["missing-api", "declared-exception", "own-assertion", "fixture-error"]
    entries = []
    for number in range(tests):
        verdict = kinds[number % len(kinds)]
        name = f"tests/unit/test_orders_{number // 10}.py::TestOrders::test_order_{number}_keeps_its_lines"
        values = ["", "[EUR-2]", f"[{'x' * 300}]", "[<b>&\"' \\ ü 漢字 🎈]", "[a::b c]"][number % 5]
        entries.append(judged(name + values, verdict, blocks=verdict == "fixture-error"))
        if number % 7 == 0:
            entries[-1]["runs"][-1]["output"] = "[Captured stderr call]\n" + "\n".join(
                f"line {n}: {HOSTILE}" for n in range(9)
            )
    ids = [entry["id"] for entry in entries]
    parts = []
    for number in range(1, hunks + 1):
        status = "unpinned" if number % 5 == 0 else "pinned"
        cells = [
            _cell(id_, "own-assertion", pins=True)
            if status == "pinned" and (place + number) % 6 == 0
            else _cell(id_, "passed")
            for place, id_ in enumerate(ids)
        ]
        parts.append(hunk(number, status, file=f"src/shop/part_{number % 4}.py", runs=cells))
    first = commit(*entries, result="fail", reason="5 new tests are not acceptable here: fixture-error", hunks=parts)
    return document(first, *full()["commits"])
