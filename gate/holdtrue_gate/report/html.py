"""The HTML report: one page that needs nothing else, runs nothing, and shows why.

There is no script and no address in it. Its content security policy allows exactly its own style sheet, by hash: even a
mistake in escaping could neither run nor load anything. Everything that opens is native: a keyboard reaches it.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources

from holdtrue_gate.report import rules
from holdtrue_gate.report.document import Data, span
from holdtrue_gate.report.markup import Markup, element, joined, page, style
from holdtrue_gate.report.remarks import change_of, hunk_name
from holdtrue_gate.report.text import first_line, shortened

ID_CHARS = 400
# Of names that are short unless somebody means harm.
CHIP_CHARS = 40
HUNK_ID_CHARS = 8
# A row of the table is one of many; its test is a link away.
ROW_CHARS = 120
TEXT_CHARS = 4000
OPEN_AT_FIRST = 3
# From here on a list of tests gets a choice of what to show.
FILTER_FROM = 8
DISTINCT_RUNS = 3

_RESULTS = {"pass": ("PASS", "✔"), "fail": ("NO", "✘"), "cannot-judge": ("CANNOT JUDGE", "?")}
_SIDES = {"parent": "Without the change", "head": "With the change"}
_HUNKS = {
    "pinned": ("good", "a new test fails when it is taken back"),
    "unpinned": ("doubt", "no new test notices when it is taken back"),
    "inseparable": ("plain", "the code does not run with it taken back"),
    "noticed": ("doubt", "a new test is red without it, and not by its own assertion"),
    "hang": ("doubt", "a new test does not end without it"),
    "crash": ("doubt", "the process of a new test dies without it"),
    "unknown": ("doubt", "the tests could not be run as meant"),
    "skipped": ("plain", "nothing to judge"),
}
# Colours of a terminal mean nothing here; other control characters are shown as escapes.
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@cache
def _css() -> str:
    text = resources.files("holdtrue_gate.report").joinpath("html.css").read_text(encoding="utf-8")
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL).strip()


def _policy(css: str) -> str:
    digest = base64.b64encode(hashlib.sha256(css.encode("utf-8")).digest()).decode("ascii")
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def _plural(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


# --- small parts


def _chip(kind: str, text: str, mark: str = "") -> Markup:
    sign = element("span", mark, class_="mark", aria_hidden="true") if mark else None
    return element("span", sign, shortened(text, CHIP_CHARS), class_=f"chip {kind}")


def _result(result: str, extra: str = "") -> Markup:
    word, mark = _RESULTS[result]
    return _chip(f"{result} {extra}".strip(), word, mark)


def _kind(test: Data) -> str:
    if test["proof"]:
        return "good"
    if test.get("blocks"):
        return "bad"
    return "doubt" if test["verdict"] == "environment" else "plain"


_MARKS = {"good": "✔", "bad": "✘", "doubt": "?", "plain": "·"}


def _node(id_: str, characters: int = ID_CHARS) -> Markup:
    file, colons, rest = shortened(id_, characters).partition("::")
    return element("code", element("span", file + colons, class_="file"), element("span", rest), class_="node")


def _pre(text: str, label: str) -> Markup:
    shown = _COLOURS.sub("", text)
    cut = len(shown) > TEXT_CHARS
    shown = shown[-TEXT_CHARS:] if cut else shown
    return element(
        "figure",
        element("figcaption", label + (" (its end)" if cut else "")),
        element("pre", element("code", shown), tabindex="0", aria_label=label),
    )


def _source(run: Data) -> Markup | None:
    lines = run.get("source") or []
    if not lines:
        return None
    width = len(str(lines[-1]["line"]))
    rows = []
    for line in lines:
        number = element("span", str(line["line"]).rjust(width), class_="number")
        text = line["text"].expandtabs(4) or " "
        failed = element("span", "failed here: ", class_="unseen") if line["marked"] else None
        rows.append(element("mark" if line["marked"] else "span", number, failed, text, class_="line"))
    caption = element("code", run.get("location") or "")
    return element(
        "figure",
        element("figcaption", caption),
        element(
            "pre", element("code", joined(*rows)), class_="source", tabindex="0", aria_label="Source of the failure"
        ),
    )


# --- a test


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '!', '?')) else '.'}" if text else ""


def _colour(outcome: str, side: str, kind: str) -> str:
    """Green is what a proof looks like: red without the change, green with it."""
    if side == "head":
        return "good" if outcome == "passed" else "bad"
    if outcome == "passed":
        return "bad" if kind == "bad" else "plain"
    return "good" if kind == "good" else "ran"


def _side(test: Data, side: str) -> Markup:
    runs = [run for run in test["runs"] if run["side"] == side]
    counts: dict[str, int] = {}
    for run in runs:
        counts[run["outcome"]] = counts.get(run["outcome"], 0) + 1
    told = [
        _chip(_colour(outcome, side, _kind(test)), f"{outcome} {count}/{len(runs)}")
        for outcome, count in sorted(counts.items())
    ]
    body: list[Markup | None] = [element("p", joined(*told), class_="outcomes")]
    if not runs:
        body = [element("p", "Not run here.", class_="muted")]
    seen: list[tuple[object, ...]] = []
    for run in runs:
        # A second run that says the same is no news; its output may differ in a time of day.
        key = (run["outcome"], run.get("exception"), run.get("message"), run.get("location"))
        if run["outcome"] == "passed" or key in seen or len(seen) == DISTINCT_RUNS:
            continue
        seen.append(key)
        body.append(_failure(run, test["reason"]))
    return element("section", element("h5", _SIDES[side]), *body, class_=f"side {side}")


def _sides(test: Data) -> Markup:
    red = {run["side"] for run in test["runs"] if run["outcome"] != "passed"}
    # The side with something to show gets the room.
    shape = "even" if len(red) != 1 else "wide-parent" if "parent" in red else "wide-head"
    return element("div", _side(test, "parent"), _side(test, "head"), class_=f"sides {shape}")


def _failure(run: Data, known: str) -> Markup:
    said = ": ".join(part for part in (run.get("exception"), run.get("message")) if part)
    reason = run.get("reason") or ""
    return joined(
        element("p", f"{reason}.") if reason and reason != known else None,
        _pre(said, "Exception") if said else None,
        _source(run),
        _pre(run["output"], "Output") if run.get("output") else None,
    )


def _test(test: Data, commit: Data, anchor: str, opened: bool) -> Markup:
    kind = _kind(test)
    said = first_line(": ".join(part for part in (test["exception"], first_line(test.get("message"))) if part))
    advice, title, reason = rules.advice(test, commit), rules.VERDICTS[test["verdict"]].title, test["reason"]
    summary = element(
        "summary",
        _chip(kind, test["verdict"], _MARKS[kind]),
        element(
            "span",
            _node(test["id"]),
            element("span", shortened(said, 160), class_="said") if said else None,
            class_="what",
        ),
    )
    # The target lies inside: a link to it opens what it lies in.
    body = element(
        "div",
        # Not capitalised: a reason may begin with a name of the code.
        element("p", element("strong", title), f": {reason}." if reason.casefold() != title.casefold() else "."),
        element("p", advice, class_="advice") if advice and not test["proof"] else None,
        element("p", element("code", test["id"]), class_="whole") if len(test["id"]) > ID_CHARS else None,
        _sides(test),
        id=anchor,
        class_="body",
    )
    heading = element("h4", f"{test['verdict']}: {shortened(test['id'], ID_CHARS)}", class_="unseen")
    return element(
        "li",
        heading,
        element("details", summary, body, open=opened),
        class_=f"test {kind}" + ("" if test["proof"] else " open-question"),
    )


def _choice(number: int, tests: Sequence[Data]) -> Markup | None:
    proofs = sum(test["proof"] for test in tests)
    if len(tests) < FILTER_FROM or proofs in (0, len(tests)):
        return None
    options = []
    for name, text in (
        ("all", f"All {len(tests)}"),
        ("rest", f"No proof {len(tests) - proofs}"),
        ("proofs", f"Proof {proofs}"),
    ):
        radio = element("input", type="radio", name=f"show-{number}", class_=f"show-{name}", checked=name == "all")
        options.append(element("label", radio, element("span", text)))
    return element("fieldset", element("legend", "Show", class_="unseen"), *options, class_="choice")


def _tests(commit: Data, number: int) -> Markup | None:
    tests = commit["tests"]
    if not tests:
        return None
    order = {"bad": 0, "doubt": 1, "plain": 2, "good": 3}
    indexed = sorted(enumerate(tests), key=lambda pair: order[_kind(pair[1])])
    bad = [index for index, test in indexed if _kind(test) == "bad"]
    # A single test is what the reader came for.
    opened = set(bad[:OPEN_AT_FIRST]) if bad or len(tests) > 1 else {0}
    items = [_test(test, commit, f"c{number}t{index}", index in opened) for index, test in indexed]
    return element(
        "section",
        element(
            "header", element("h3", _plural(len(tests), "new test", "new tests")), _choice(number, tests), class_="bar"
        ),
        element("ol", *items, class_="tests"),
        class_="part tests-part",
    )


# --- the change


def _outcome(hunk: Data, id_: str) -> tuple[str, str, str]:
    """What a test does without a hunk, as a class, a sign and words."""
    for run in hunk.get("runs") or ():
        if isinstance(run, dict) and run.get("id") == id_:
            outcome = str(run.get("outcome"))
            if run.get("pins"):
                return "good", "●", f"fails without it ({outcome})"
            if outcome == "passed":
                return "plain", "○", "passes without it"
            return "doubt", "!", f"{outcome} without it"
    if id_ in (hunk.get("tests") or ()):
        return "good", "●", "fails without it"
    return "none", "", "not tried"


def _rows(commit: Data) -> list[str]:
    """The ids that are tests of the table: first those of the commit, in their order, then any other that was run."""
    tried: dict[str, None] = {}
    for hunk in commit["hunks"]:
        for run in hunk.get("runs") or ():
            if isinstance(run, dict) and isinstance(run.get("id"), str):
                tried[run["id"]] = None
        for id_ in hunk.get("tests") or ():
            if isinstance(id_, str):
                tried[id_] = None
    known = [test["id"] for test in commit["tests"] if test["id"] in tried]
    return [*known, *(id_ for id_ in tried if id_ not in set(known))]


def _hunk_id(hunk: Data, number: int) -> str:
    id_ = hunk.get("id")
    return shortened(id_, HUNK_ID_CHARS) if isinstance(id_, str) and id_ else f"H{number + 1}"


def _matrix(commit: Data, number: int) -> Markup | None:
    hunks = [(index, hunk) for index, hunk in enumerate(commit["hunks"]) if hunk["status"] != "skipped"]
    rows = _rows(commit)
    if not hunks or not rows:
        return None
    anchors = {test["id"]: f"#c{number}t{index}" for index, test in enumerate(commit["tests"])}
    head = element(
        "tr",
        element("th", "Test", scope="col"),
        *(
            element(
                "th",
                element("a", _hunk_id(hunk, index), href=f"#c{number}h{index}", title=hunk_name(hunk)),
                scope="col",
                class_=_HUNKS.get(hunk["status"], ("plain", ""))[0],
            )
            for index, hunk in hunks
        ),
    )
    body = []
    for id_ in rows:
        cells = []
        for _, hunk in hunks:
            kind, sign, words = _outcome(hunk, id_)
            mark = element("span", sign, aria_hidden="true")
            cells.append(element("td", mark, element("span", words, class_="unseen"), class_=kind, title=words))
        name = _node(id_, ROW_CHARS)
        link = element("a", name, href=anchors[id_]) if id_ in anchors else name
        body.append(element("tr", element("th", link, scope="row"), *cells))
    caption = "Each part of the change taken back alone: which new tests notice?"
    table = element(
        "table",
        element("caption", caption),
        element("thead", head),
        element("tbody", *body),
        class_="matrix",
    )
    legend = element(
        "p",
        *(
            element("span", element("span", sign, class_=kind, aria_hidden="true"), f" {words}")
            for kind, sign, words in (
                ("good", "●", "fails: the part is pinned"),
                ("plain", "○", "passes: it does not notice"),
                ("doubt", "!", "fails in another way"),
            )
        ),
        class_="legend",
    )
    return joined(element("div", table, class_="scroll", tabindex="0", role="region", aria_label=caption), legend)


def _hunks(commit: Data, number: int) -> Markup | None:
    hunks = commit["hunks"]
    if not hunks:
        return None
    items = []
    for index, hunk in enumerate(hunks):
        kind, means = _HUNKS.get(hunk["status"], ("doubt", ""))
        # The others by number: a group also names the hunk itself.
        group = [shortened(str(other), HUNK_ID_CHARS) for other in hunk.get("group") or () if other != hunk.get("id")]
        told = hunk.get("reason") or means
        lines = span(hunk.get("parent"))
        items.append(
            element(
                "li",
                element("span", _hunk_id(hunk, index), class_="hunk-id"),
                _chip(kind, hunk["status"], {"good": "●", "doubt": "!"}.get(kind, "·")),
                element(
                    "span",
                    element("code", hunk_name(hunk)),
                    element("span", f" replaces {_plural(lines[1], 'line', 'lines')}", class_="muted")
                    if lines and lines[1]
                    else None,
                    element("span", told, class_="said") if told else None,
                    element("span", f"taken back together with {', '.join(group)}", class_="said") if group else None,
                    class_="what",
                ),
                id=f"c{number}h{index}",
                tabindex="-1",
            )
        )
    judged = [hunk for hunk in hunks if hunk["status"] != "skipped"]
    pinned = sum(hunk["status"] == "pinned" for hunk in judged)
    return element(
        "section",
        element(
            "header",
            element("h3", f"{pinned} of {_plural(len(judged), 'part', 'parts')} of the change pinned"),
            class_="bar",
        ),
        _matrix(commit, number),
        element("ul", *items, class_="hunks"),
        class_="part",
    )


# --- a commit


def _weakened(commit: Data) -> Markup | None:
    entries = commit["weakened"]
    if not entries:
        return None
    items = [
        element(
            "li",
            _chip("bad" if entry.get("blocks") else "doubt", entry["kind"], "✘" if entry.get("blocks") else "↓"),
            element(
                "span",
                _node(entry["id"]),
                element("span", change_of(entry), class_="said change") if change_of(entry) else None,
                *(element("span", entry[key], class_="said") for key in ("note", "reason") if entry.get(key)),
                element("code", entry["location"], class_="muted") if entry.get("location") else None,
                class_="what",
            ),
        )
        for entry in entries
    ]
    heading = f"{_plural(len(entries), 'test', 'tests')} weakened"
    return element(
        "section",
        element("header", element("h3", heading), class_="bar"),
        element("ul", *items, class_="weakened"),
        class_="part",
    )


def _problems(commit: Data) -> Markup | None:
    boxes = [
        element(
            "div",
            element("p", element("strong", problem["code"]), f": {problem['message']}."),
            element("p", hint) if (hint := problem.get("hint") or rules.problem_rule(problem["code"]).advice) else None,
            class_="box doubt",
        )
        for problem in commit["problems"]
    ]
    boxes += [element("p", note, class_="box plain") for note in commit.get("notes", ())]
    return joined(*boxes) if boxes else None


def _commit(commit: Data, number: int, *, alone: bool) -> Markup:
    parent = commit["parent"]
    facts = element(
        "p",
        _result(commit["result"]),
        _chip("plain", commit["kind"]),
        element(
            "span",
            element("code", commit["sha"][:10]),
            joined(" on ", element("code", parent[:10])) if parent else " without a parent",
            class_="shas",
        ),
        class_="facts",
    )
    heading = element("h2", commit["subject"] or "(no subject)", id=f"c{number}", tabindex="-1")
    reason = commit["reason"]
    told = reason and not alone and not commit["problems"]
    return element(
        "article",
        element(
            "header",
            heading,
            facts,
            # Of a single commit it is the headline already.
            element("p", _sentence(reason), class_="reason") if told else None,
        ),
        _problems(commit),
        _tests(commit, number),
        _weakened(commit),
        _hunks(commit, number),
        class_=f"commit {commit['result']}",
        aria_labelledby=f"c{number}",
    )


# --- the page


def _figures(commits: Sequence[Data]) -> Markup:
    tests = [test for commit in commits for test in commit["tests"]]
    weakened = sum(len(commit["weakened"]) for commit in commits)
    hunks = [hunk for commit in commits for hunk in commit["hunks"] if hunk["status"] != "skipped"]
    pinned = sum(hunk["status"] == "pinned" for hunk in hunks)
    proofs = sum(test["proof"] for test in tests)
    accused = [*tests, *(entry for commit in commits for entry in commit["weakened"])]
    blocking = sum(bool(one.get("blocks")) for one in accused)
    told = [
        (str(len(commits)), "commit" if len(commits) == 1 else "commits"),
        (str(len(tests)), "new test" if len(tests) == 1 else "new tests"),
        (str(proofs), "proof" if proofs == 1 else "proofs"),
        (str(blocking), "blocking"),
        *([(str(weakened), "weakened")] if weakened else []),
        *([(f"{pinned}/{len(hunks)}", "parts pinned")] if hunks else []),
    ]
    return element(
        "dl", *(element("div", element("dt", label), element("dd", value)) for value, label in told), class_="figures"
    )


def _headline(document: Data) -> str:
    commits = document["commits"]
    if not commits:
        return "No commits in this range"
    if len(commits) == 1:
        reason = ", ".join(problem["message"] for problem in commits[0]["problems"]) or commits[0]["reason"]
        return f"{reason[:1].upper()}{reason[1:]}"
    short = sum(commit["result"] != "pass" for commit in commits)
    if not short:
        return f"All {len(commits)} commits pass"
    return f"{short} of {len(commits)} commits {'does' if short == 1 else 'do'} not pass"


def _contents(commits: Sequence[Data]) -> Markup | None:
    if len(commits) < 2:
        return None
    items = []
    for number, commit in enumerate(commits):
        proofs = sum(test["proof"] for test in commit["tests"])
        told = (
            f"{proofs}/{len(commit['tests'])} proofs"
            if commit["tests"]
            else ", ".join(problem["code"] for problem in commit["problems"])
        )
        items.append(
            element(
                "li",
                element(
                    "a",
                    _result(commit["result"]),
                    element("code", commit["sha"][:10]),
                    element("span", shortened(commit["subject"], 120), class_="subject"),
                    element("span", told, class_="muted"),
                    href=f"#c{number}",
                ),
            )
        )
    return element(
        "nav", element("h2", "Commits", class_="unseen"), element("ol", *items), aria_label="Commits", class_="contents"
    )


def _words(commits: Iterable[Data]) -> Markup | None:
    used = sorted({test["verdict"] for commit in commits for test in commit["tests"]})
    if not used:
        return None
    entries = [
        element("div", element("dt", element("code", verdict)), element("dd", f"{rule.means} {rule.advice}".strip()))
        for verdict in used
        for rule in [rules.VERDICTS[verdict]]
    ]
    return element(
        "section", element("h2", "What the verdicts mean"), element("dl", *entries, class_="words"), class_="glossary"
    )


def render(document: Data) -> str:
    """A document as one HTML page."""
    commits, css = document["commits"], _css()
    word, _ = _RESULTS[document["result"]]
    head = joined(
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy(css)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", f"gate: {word}, {shortened(document['range'], 100)}"),
        style(css),
    )
    body = joined(
        element("a", "Skip to the commits", href="#commits", class_="skip"),
        element(
            "header",
            element(
                "p",
                "gate ",
                element("span", "Does each new test fail without its fix, and for the right reason?"),
                class_="product",
            ),
            element("h1", _result(document["result"], "large"), element("span", _headline(document))),
            element("p", "Asked for ", element("code", shortened(document["range"], ID_CHARS)), class_="asked"),
            _figures(commits),
            class_="top",
        ),
        _contents(commits),
        element(
            "main",
            *(_commit(commit, number, alone=len(commits) == 1) for number, commit in enumerate(commits)),
            id="commits",
            tabindex="-1",
        ),
        element(
            "footer",
            _words(commits),
            element("p", f"Made from a {document['schema']} document.", class_="muted"),
        ),
    )
    return page(head, body, "en")
