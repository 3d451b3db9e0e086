"""What makes a test weaker and what only moves it: pure rules on two versions of a file."""

from __future__ import annotations

import textwrap

import pytest

from holdtrue_gate import weaken
from holdtrue_gate.decision import CANNOT_JUDGE, FAIL, PASS, Decision, with_weakened
from holdtrue_gate.expectations import Old, concluded
from holdtrue_gate.testcode import Collection, parse
from holdtrue_gate.verdict import Reading, Verdict
from holdtrue_gate.weaken import Gone, Pair, Weakening

FILE = "tests/test_shop.py"
Files = dict[str, str]


def found(old: str | Files, new: str | Files, gone: Gone | None = None, **more: object) -> list[Weakening]:
    sides = [
        {
            path: parse(textwrap.dedent(text).encode(), Collection())
            for path, text in ({FILE: side} if isinstance(side, str) else side).items()
        }
        for side in (old, new)
    ]
    return list(weaken.compare(sides[0], sides[1], gone=gone, **more).weakened)  # type: ignore[arg-type]


def told(old: str | Files, new: str | Files, **more: object) -> list[tuple[str, bool]]:
    """Kind and certainty of every finding."""
    return [(item.kind, item.certain) for item in found(old, new, **more)]  # type: ignore[arg-type]


def body(*lines: str) -> str:
    return "def test_price():\n" + "".join(f"    {line}\n" for line in lines)


# --- the ladder: each pair is one assertion before and after

WEAKER = {
    "equality to truthiness": ("assert f() == 4", "assert f()"),
    "equality to is not None": ("assert f() == 4", "assert f() is not None"),
    "equality to membership": ("assert f() == 4", "assert f() in (4, 5)"),
    "equality to order": ("assert f() == 4", "assert f() > 0"),
    "equality to inequality": ("assert f() == 4", "assert f() != 5"),
    "equality to type": ("assert f() == 4", "assert isinstance(f(), int)"),
    "equality to one of two": ("assert f() == 4", "assert f() == 4 or f() == 5"),
    "identity to truthiness": ("assert f() is SENTINEL", "assert f()"),
    "order to truthiness": ("assert f() > 3", "assert f()"),
    "membership to truthiness": ("assert 'a' in f()", "assert f()"),
    "a length to a positive length": ("assert len(f()) == 3", "assert len(f()) > 0"),
    "each element to some of them": ("assert all(x == 1 for x in f())", "assert any(x == 1 for x in f())"),
    "to what is always true": ("assert f() > 3", "assert f() or True"),
    "to a tuple, which is true": ("assert f() == 4", "assert (f() == 4, 'message')"),
    "to any": ("assert f() == 4", "assert f() == ANY"),
    "to a length of at least nothing": ("assert len(f()) == 3", "assert len(f()) >= 0"),
    "unittest to truthiness": ("self.assertEqual(f(), 4)", "self.assertTrue(f())"),
    "unittest to not None": ("self.assertEqual(f(), 4)", "self.assertIsNotNone(f())"),
    "more members": ("assert f() in (1, 2)", "assert f() in (1, 2, 3)"),
    "a call with arguments to any call": ("m.f.assert_called_once_with(4)", "m.f.assert_called()"),
}


@pytest.mark.parametrize(("before", "after"), WEAKER.values(), ids=WEAKER)
def test_a_step_down_the_ladder_is_certain(before: str, after: str) -> None:
    assert told(body(before), body(after)) == [("less-strict", True)]


@pytest.mark.parametrize(("after", "before"), WEAKER.values(), ids=WEAKER)
def test_a_step_up_the_ladder_is_no_weakening(before: str, after: str) -> None:
    assert told(body(before), body(after)) == []


def test_a_step_down_behind_a_variable_is_certain_where_the_variable_is_the_same() -> None:
    assert told(body("r = f()", "assert r == 4"), body("r = f()", "assert r")) == [("less-strict", True)]
    assert told(body("r = f()", "assert r == 4"), body("r = g()", "assert r")) == [("less-strict", False)]


def test_a_variable_compared_with_itself_says_nothing() -> None:
    assert told(body("r = f()", "assert r == 4"), body("r = f()", "assert r == r")) == [("less-strict", True)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("assert f() is True", "assert f()"),
        ("assert f() == []", "assert not f()"),
        ("assert f() == ''", "assert not f()"),
        ("self.assertEqual(f(), False)", "assert not f()"),
    ],
)
def test_what_style_alone_changes_is_doubtful(before: str, after: str) -> None:
    assert told(body(before), body(after)) == [("less-strict", False)]


SAME = {
    "another layout": ("assert f(1,2)==4", "assert f(\n        1, 2\n    ) == 4"),
    "sides swapped": ("assert f() == 4", "assert 4 == f()"),
    "unittest to plain": ("self.assertEqual(f(), 4)", "assert f() == 4"),
    "unittest's membership": ("self.assertIn(1, f())", "assert 1 in f()"),
    "unittest's False": ("self.assertFalse(f())", "assert not f()"),
    "unittest's type": ("self.assertIsInstance(f(), int)", "assert isinstance(f(), int)"),
    "one made two": ("assert f() == 4 and g() == 5", "assert f() == 4\n    assert g() == 5"),
    "a message": ("assert f() == 4", "assert f() == 4, 'four'"),
    "another value": ("assert f() == 4", "assert f() == 5"),
    "a literal made a name": ("assert f() == 4", "wanted = 4\n    assert f() == wanted"),
    "membership of each made one equality": (
        "xs = f()\n    assert 1 in xs\n    assert 2 in xs",
        "xs = f()\n    assert xs == [1, 2]",
    ),
    "truth before a stricter demand": ("r = f()\n    assert r\n    assert r.x == 1", "r = f()\n    assert r.x == 1"),
}


@pytest.mark.parametrize(("before", "after"), SAME.values(), ids=SAME)
def test_what_says_the_same_or_more_is_no_certain_weakening(before: str, after: str) -> None:
    assert [kind for kind, certain in told(body(before), body(after)) if certain] == []


def test_renamed_variables_and_reordered_lines_are_nothing() -> None:
    old = body("a = f()", "b = g()", "assert a == 1", "assert b == 2")
    assert told(old, body("y = g()", "x = f()", "assert y == 2", "assert x == 1")) == []


def test_a_removed_assertion_is_certain_where_nothing_took_its_place() -> None:
    old = body("assert f() == 4", "assert g() == 5")
    assert told(old, body("assert f() == 4")) == [("removed-assertion", True)]
    assert told(old, body("assert f() == 4", "assert h() == 5")) == []
    assert told(old, body("assert f() == 4", "assert h()")) == [("removed-assertion", False)]


def test_a_removed_raises_is_a_removed_assertion() -> None:
    old = body("with pytest.raises(ValueError):", "    f(4)", "assert g() == 5")
    assert told(old, body("f(4)", "assert g() == 5")) == [("removed-assertion", True)]


def test_an_assertion_that_moved_into_a_helper_or_another_test_is_not_lost() -> None:
    old = body("assert f() == 4", "assert g() == 5")
    helper = "def check():\n    assert g() == 5\n\n" + body("assert f() == 4", "check()")
    assert told(old, helper) == []
    assert told(old, body("assert f() == 4") + "\ndef test_g():\n    assert g() == 5\n") == []


def test_an_assertion_that_moved_to_where_nothing_runs_is_lost() -> None:
    old = body("assert f() == 4", "assert g() == 5")
    uncalled = "def check():\n    assert g() == 5\n\n" + body("assert f() == 4")
    assert told(old, uncalled) == [("removed-assertion", True)]
    skipped = body("assert f() == 4") + "\n@pytest.mark.skip\ndef test_g():\n    assert g() == 5\n"
    assert told(old, skipped) == [("removed-assertion", True)]


def test_an_assertion_that_moved_into_a_helper_of_another_file_is_not_lost() -> None:
    old = {FILE: body("assert f() == 4", "assert g() == 5")}
    helper = "def check():\n    assert g() == 5\n"
    assert told(old, {FILE: body("assert f() == 4", "check()"), "tests/helpers.py": helper}) == []


def test_a_helper_that_demands_less_weakens_all_who_call_it() -> None:
    old = "def check(x):\n    assert f(x) == 4\n\n" + body("check(1)")
    (item,) = found(old, old.replace("assert f(x) == 4", "assert f(x)"))
    assert (item.id, item.kind, item.certain) == (f"{FILE}::check", "less-strict", True)


# --- numbers

NUMBERS = {
    "a bound": ("assert f() < 5", "assert f() < 50"),
    "a bound from below": ("assert f() >= 5", "assert f() >= 4"),
    "a distance": ("assert abs(f() - 1) < 0.1", "assert abs(f() - 1) < 0.5"),
    "approx rel": ("assert f() == approx(1, rel=1e-6)", "assert f() == approx(1, rel=1e-2)"),
    "approx abs": ("assert f() == pytest.approx(1, abs=1e-6)", "assert f() == pytest.approx(1, abs=0.1)"),
    "places": ("self.assertAlmostEqual(f(), 1, places=7)", "self.assertAlmostEqual(f(), 1, places=2)"),
    "delta": ("self.assertAlmostEqual(f(), 1, delta=0.1)", "self.assertAlmostEqual(f(), 1, delta=1)"),
    "rtol": ("np.testing.assert_allclose(f(), 1, rtol=1e-7)", "np.testing.assert_allclose(f(), 1, rtol=1e-2)"),
    "isclose": ("assert math.isclose(f(), 1)", "assert math.isclose(f(), 1, abs_tol=0.5)"),
}


@pytest.mark.parametrize(("before", "after"), NUMBERS.values(), ids=NUMBERS)
def test_a_wider_tolerance_or_bound_is_certain_and_a_narrower_one_is_nothing(before: str, after: str) -> None:
    assert told(body(before), body(after)) == [("widened-tolerance", True)]
    assert told(body(after), body(before)) == []


def test_exact_to_approximate_is_doubtful() -> None:
    assert told(body("assert f() == 0.3"), body("assert f() == approx(0.3)")) == [("widened-tolerance", False)]


# --- exceptions


def raising(head: str) -> str:
    return body(f"with {head}:", "    f(4)")


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ("pytest.raises(KeyError)", "pytest.raises(Exception)", "wider-exception"),
        ("pytest.raises(KeyError)", "pytest.raises(LookupError)", "wider-exception"),
        ("pytest.raises(KeyError)", "pytest.raises((KeyError, TypeError))", "wider-exception"),
        ("pytest.raises(shop.NoMoney)", "pytest.raises(shop.ShopError)", "wider-exception"),
        ("self.assertRaises(KeyError)", "self.assertRaises(Exception)", "wider-exception"),
        ("pytest.warns(DeprecationWarning)", "pytest.warns(Warning)", "wider-exception"),
        ("pytest.raises(KeyError, match='no key')", "pytest.raises(KeyError)", "dropped-match"),
        ("pytest.raises(KeyError, match='no key')", "pytest.raises(KeyError, match='.*')", "dropped-match"),
        ("self.assertRaisesRegex(KeyError, 'no key')", "self.assertRaises(KeyError)", "dropped-match"),
    ],
)
def test_a_wider_exception_or_a_dropped_match_is_certain(before: str, after: str, kind: str) -> None:
    classes = {"NoMoney": ("ShopError",), "ShopError": ("Exception",)}
    assert told(raising(before), raising(after), bases=classes) == [(kind, True)]
    assert told(raising(after), raising(before), bases=classes) == []


def test_another_exception_that_is_no_ancestor_is_left_to_the_replay() -> None:
    assert told(raising("pytest.raises(KeyError)"), raising("pytest.raises(ValueError)")) == []


def test_match_replaced_by_an_assertion_on_the_text_is_nothing() -> None:
    new = body("with pytest.raises(KeyError) as caught:", "    f(4)", "assert 'no key' in str(caught.value)")
    assert told(raising("pytest.raises(KeyError, match='no key')"), new) == []


def test_raises_as_a_call_and_as_a_context_are_the_same() -> None:
    assert told(body("pytest.raises(KeyError, f, 4)"), raising("pytest.raises(KeyError)")) == []


# --- what never reaches anybody


@pytest.mark.parametrize(
    "new",
    [
        body("try:", "    assert f() == 4", "except AssertionError:", "    pass"),
        body("try:", "    assert f() == 4", "except Exception:", "    print('oh')"),
        body("try:", "    assert f() == 4", "except:", "    pass"),
        body("with contextlib.suppress(AssertionError):", "    assert f() == 4"),
    ],
)
def test_a_swallowed_assertion_is_certain(new: str) -> None:
    assert told(body("assert f() == 4"), new) == [("swallowed", True)]


def test_a_handler_that_fails_or_looks_at_the_error_swallows_nothing() -> None:
    handlers = ("    raise", "    pytest.fail('no')", "    told = str(error)")
    for handler in handlers:
        new = body("try:", "    assert f() == 4", "except Exception as error:", handler)
        assert ("swallowed", True) not in told(body("assert f() == 4"), new)


@pytest.mark.parametrize(
    "new",
    [
        body("return", "assert f() == 4"),
        body("if True:", "    return", "assert f() == 4"),
        body("if False:", "    assert f() == 4"),
        body("for x in []:", "    assert f() == 4"),
        body("while False:", "    assert f() == 4"),
    ],
)
def test_an_assertion_that_is_never_reached_is_certain(new: str) -> None:
    assert told(body("assert f() == 4"), new) == [("unreachable", True)]


def test_a_condition_before_an_assertion_is_doubtful() -> None:
    assert told(body("assert f() == 4"), body("if WIN:", "    return", "assert f() == 4")) == [("conditional", False)]
    assert told(body("assert f() == 4"), body("if not WIN:", "    assert f() == 4")) == [("conditional", False)]


# --- skips

PLAIN = body("assert f() == 4")


@pytest.mark.parametrize(
    ("new", "kind", "certain"),
    [
        ("@pytest.mark.skip\n" + PLAIN, "skipped", True),
        ("@pytest.mark.skip(reason='slow')\n" + PLAIN, "skipped", True),
        ("@pytest.mark.xfail\n" + PLAIN, "xfail", True),
        ("@pytest.mark.xfail(strict=True)\n" + PLAIN, "xfail", True),
        ("@pytest.mark.skipif(True, reason='')\n" + PLAIN, "skipped", True),
        ("@pytest.mark.skipif('CI' in os.environ, reason='')\n" + PLAIN, "skipped", True),
        ("@pytest.mark.skipif(sys.platform == 'win32', reason='')\n" + PLAIN, "skipped", False),
        ("@unittest.skip('later')\n" + PLAIN, "skipped", True),
        ("@unittest.expectedFailure\n" + PLAIN, "xfail", True),
        ("later = pytest.mark.skip(reason='')\n\n@later\n" + PLAIN, "skipped", True),
        (body("pytest.skip('later')", "assert f() == 4"), "skipped", True),
        (body("pytest.xfail('later')", "assert f() == 4"), "xfail", True),
        (body("raise unittest.SkipTest('later')", "assert f() == 4"), "skipped", True),
        (body("if WIN:", "    pytest.skip('not here')", "assert f() == 4"), "skipped", False),
        (body("np = pytest.importorskip('numpy')", "assert f() == 4"), "skipped", False),
    ],
)
def test_a_skip_is_certain_unless_the_machine_decides(new: str, kind: str, certain: bool) -> None:
    assert (kind, certain) in told(PLAIN, new)
    assert told(new, PLAIN) == []


@pytest.mark.parametrize(
    ("new", "id_"),
    [
        ("pytestmark = pytest.mark.skip\n" + PLAIN + "\ndef test_b():\n    assert f() == 5\n", FILE),
        ("pytest.skip('later', allow_module_level=True)\n" + PLAIN + "\ndef test_b():\n    assert f() == 5\n", FILE),
        ("__test__ = False\n" + PLAIN + "\ndef test_b():\n    assert f() == 5\n", FILE),
    ],
)
def test_a_skip_of_a_whole_file_is_told_once(new: str, id_: str) -> None:
    old = PLAIN + "\ndef test_b():\n    assert f() == 5\n"
    assert [(item.id, item.kind, item.certain) for item in found(old, new)] == [(id_, "skipped", True)]


def test_a_condition_that_is_never_true_skips_nothing() -> None:
    assert told(PLAIN, "@pytest.mark.skipif(False, reason='')\n" + PLAIN) == []


def test_what_a_conftest_keeps_from_collection_is_skipped() -> None:
    conftest = "tests/conftest.py"
    (item,) = found({conftest: ""}, {conftest: "collect_ignore = ['test_shop.py']\n"})
    assert (item.id, item.kind, item.certain) == (FILE, "skipped", True)


# --- parameters and searches

ROWS = '@pytest.mark.parametrize("x", {rows})\n' + "def test_price(x):\n    assert f(x) == 4\n"


def test_fewer_parameters_are_lost_ids() -> None:
    (item,) = found(ROWS.format(rows="[1, 2, 3]"), ROWS.format(rows="[1, 3]"))
    assert (item.kind, item.certain, item.before) == ("lost-ids", True, "2")


@pytest.mark.parametrize(
    "rows", ["[1, 2, 3, 4]", "[3, 2, 1]", "[1, 2, 5]", "(1, 2, 3)", "[pytest.param(1, id='one'), 2, 3]", "many()"]
)
def test_more_reordered_changed_or_named_parameters_are_no_lost_ids(rows: str) -> None:
    assert told(ROWS.format(rows="[1, 2, 3]"), ROWS.format(rows=rows)) == []


def test_rows_that_stand_in_a_named_list_are_counted() -> None:
    old = "XS = [1, 2, 3]\n" + ROWS.format(rows="XS")
    assert told(old, old.replace("[1, 2, 3]", "[1]")) == [("lost-ids", True)]


def test_a_skipped_parameter_is_a_skip() -> None:
    new = ROWS.format(rows="[1, pytest.param(2, marks=pytest.mark.skip), 3]")
    assert told(ROWS.format(rows="[1, 2, 3]"), new) == [("skipped", True)]


def test_parameters_that_became_a_loop_are_doubtful_and_dropped_ones_are_certain() -> None:
    old = ROWS.format(rows="[1, 2, 3]")
    assert told(old, body("for x in [1, 2, 3]:", "    assert f(x) == 4")) == [("lost-ids", False)]
    assert told(old, body("x = 7", "assert f(x) == 4")) == [("lost-ids", True)]


def test_fewer_params_of_a_fixture_are_lost_ids_of_the_fixture() -> None:
    old = "@pytest.fixture(params=[1, 2])\ndef n(request):\n    return request.param\n"
    (item,) = found(old, old.replace("[1, 2]", "[1]"))
    assert (item.id, item.kind, item.certain) == (f"{FILE}::n", "lost-ids", True)


SEARCH = "@given(st.integers())\n@settings(max_examples={n})\ndef test_price(x):\n    assert f(x) == 4\n"


def test_fewer_examples_are_certain_and_more_are_nothing() -> None:
    assert told(SEARCH.format(n=200), SEARCH.format(n=20)) == [("fewer-examples", True)]
    assert told(SEARCH.format(n=20), SEARCH.format(n=200)) == []


def test_an_explicit_example_that_is_dropped_is_fewer_examples() -> None:
    assert told("@example(7)\n" + SEARCH.format(n=20), SEARCH.format(n=20)) == [("fewer-examples", True)]


def test_a_silenced_health_check_is_doubtful() -> None:
    new = SEARCH.format(n=20).replace("=20", "=20, suppress_health_check=[HealthCheck.too_slow]")
    assert told(SEARCH.format(n=20), new) == [("suppressed-health-check", False)]


def test_an_invariant_of_a_state_machine_that_goes_is_a_deleted_test() -> None:
    old = "class Shop(RuleBasedStateMachine):\n    @invariant()\n    def balanced(self):\n        assert self.a == self.b\n"
    assert told(old, "class Shop(RuleBasedStateMachine):\n    pass\n") == [("deleted", True)]


# --- deleted or moved

OTHER = "\ndef test_other():\n    assert invoice('tax') == 19\n"


def test_a_deleted_test_is_certain() -> None:
    assert told(PLAIN + OTHER, PLAIN) == [("deleted", True)]
    # Another test in its place is no excuse, one about the same thing is a doubt.
    assert told(PLAIN + OTHER, PLAIN + "\ndef test_new():\n    assert parse('x').ok == 1\n") == [("deleted", True)]
    assert told(PLAIN + OTHER, PLAIN + "\ndef test_new():\n    assert invoice('duty') == 1\n") == [("deleted", False)]


def test_a_test_under_a_name_that_is_not_collected_is_deleted() -> None:
    assert told(PLAIN, PLAIN.replace("test_price", "_test_price")) == [("deleted", True)]
    assert told({FILE: PLAIN}, {"tests/shop_tests.py": PLAIN}) == [("deleted", True)]
    assert told(
        "class TestA:\n    def test_x(self):\n        assert f() == 4\n",
        "class A:\n    def test_x(self):\n        assert f() == 4\n",
    ) == [("deleted", True)]


@pytest.mark.parametrize(
    "new",
    [
        {FILE: PLAIN.replace("test_price", "test_the_price")},
        {"tests/test_new_home.py": PLAIN},
        {FILE: "class TestShop:\n    def test_price(self):\n        assert f() == 4\n"},
        {"tests/test_new_home.py": "def test_cost():\n    # moved\n    assert f() == 4\n"},
    ],
)
def test_a_renamed_or_moved_test_is_not_deleted(new: Files) -> None:
    assert told({FILE: PLAIN}, new) == []


def test_a_test_that_moved_and_became_weaker_is_told() -> None:
    new = {"tests/test_new_home.py": body("assert invoice('tax')", "assert f() == 4")}
    assert told({FILE: body("assert invoice('tax') == 19", "assert f() == 4")}, new) == [("less-strict", True)]
    assert told({FILE: PLAIN}, {"tests/test_new.py": "@pytest.mark.skip\n" + PLAIN}) == [("skipped", True)]


def test_tests_that_became_parameters_of_one_are_not_deleted() -> None:
    old = """
        def test_small():
            assert price("apple", 1) == 10

        def test_large():
            assert price("melon", 2) == 50
    """
    new = """
        @pytest.mark.parametrize("what, count, wanted", [("apple", 1, 10), ("melon", 2, 50)])
        def test_price(what, count, wanted):
            assert price(what, count) == wanted
    """
    assert told(old, new) == []


def test_a_test_that_was_split_in_two_is_not_deleted() -> None:
    old = body("assert price('apple') == 10", "assert price('melon') == 50", "assert tax('apple') == 2")
    new = """
        def test_prices():
            assert price("apple") == 10
            assert price("melon") == 50

        def test_tax():
            assert tax("apple") == 2
    """
    assert told(old, new) == []


def test_what_went_away_with_its_product_is_doubtful() -> None:
    (item,) = found(PLAIN + OTHER, PLAIN, gone=Gone(names=frozenset({"invoice"})))
    assert (item.kind, item.certain, item.note) == ("deleted", False, "invoice went away with it")
    lonely = {"tests/test_tax.py": "from shop.tax import rate\n\ndef test_rate():\n    assert rate() == 19\n"}
    assert told(lonely, {}, gone=Gone(modules=frozenset({"shop.tax"}))) == [("deleted", False)]
    assert told(lonely, {}) == [("deleted", True)]


def test_a_skipped_test_and_a_twin_that_are_deleted_are_doubtful() -> None:
    assert told("@pytest.mark.skip\n" + PLAIN, "") == [("deleted", False)]
    twin = PLAIN.replace("test_price", "test_twin")
    assert told(PLAIN + "\n" + twin, PLAIN) == [("deleted", False)]


def test_an_override_that_goes_leaves_the_inherited_test() -> None:
    base = "class TestA:\n    def test_x(self):\n        assert f() == 4\n\n"
    old = base + "class TestB(TestA):\n    def test_x(self):\n        assert f() == 5\n"
    assert told(old, base + "class TestB(TestA):\n    pass\n") == [("deleted", False)]


def test_a_file_that_cannot_be_read_is_told() -> None:
    sides = [{FILE: parse(text, Collection())} for text in (PLAIN.encode(), b"def test_price(:\n")]
    assert weaken.compare(sides[0], sides[1]).unread == (FILE,)


@pytest.mark.parametrize(
    ("before", "name"),
    [
        (b"from bank.rates import daily\n", "daily"),
        (b"from bank.rates import daily\n", "rates"),
        (b"import pkg_resources\n", "pkg_resources"),
        (b"def invoice():\n    pass\n", "invoice"),
        (b"FLAG = '--loud'\n", "--loud"),
    ],
)
def test_what_the_product_imported_or_defined_and_no_longer_does_is_gone(before: bytes, name: str) -> None:
    assert name in weaken.lost_names([(before, b"X = 1\n")])
    assert name not in weaken.lost_names([(before, b"X = 1\n"), (None, before)])


# --- reasons

ITEM = Weakening(f"{FILE}::TestA::test_x", "deleted", "def test_x()", "", f"{FILE}:3")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("the price is asked elsewhere", "the price is asked elsewhere"),
        ("the API changed: see the notes", "the API changed: see the notes"),
        (f"{FILE}::TestA::test_x: asked elsewhere", "asked elsewhere"),
        (f"{FILE}::TestA: asked elsewhere", "asked elsewhere"),
        ("test_x: asked elsewhere", "asked elsewhere"),
        (f"{FILE}: asked elsewhere", "asked elsewhere"),
        ("test_y: asked elsewhere", None),
        (f"{FILE}::TestB::test_x: asked elsewhere", None),
        ("", None),
        ("   ", None),
        (f"{FILE}::TestA::test_x", None),
        (f"{FILE}::TestA::test_x:", None),
    ],
)
def test_a_reason_covers_what_it_names(value: str, reason: str | None) -> None:
    (item,) = weaken.explained([ITEM], weaken.reasons([("test-change", value)]))
    assert item.reason_given == reason
    assert item.blocks == (reason is None)


def test_a_reason_for_the_test_goes_before_one_for_all() -> None:
    given = weaken.reasons([("test-change", "all of it"), ("signed-off-by", "T"), ("test-change", "test_x: just this")])
    assert weaken.explained([ITEM], given)[0].reason_given == "just this"


# --- the decision

DOUBT = Weakening(f"{FILE}::test_y", "deleted", "def test_y()", "", f"{FILE}:9", certain=False)
GIVEN = Weakening(f"{FILE}::test_z", "skipped", "", "", f"{FILE}:9", "flaky host")


@pytest.mark.parametrize("result", [PASS, FAIL, CANNOT_JUDGE])
def test_a_certain_weakening_without_a_reason_is_a_no_whatever_else_is_said(result: str) -> None:
    made = with_weakened(Decision(result, ("a",), "told"), [ITEM, DOUBT])
    assert (made.result, made.blocking) == (FAIL, ("a",))
    assert "deleted" in made.reason


@pytest.mark.parametrize("result", [PASS, FAIL, CANNOT_JUDGE])
def test_doubts_and_reasons_leave_the_decision_as_it_was(result: str) -> None:
    made = Decision(result, (), "told")
    assert with_weakened(made, [DOUBT, GIVEN]) == with_weakened(made, []) == made


# --- what the old version did on the new product


def asked(verdict: Verdict, old: str, new: str, *, red_at_head: bool = False) -> list[tuple[str, bool, str, str]]:
    before, after = (parse(text.encode(), Collection()).tests.get("test_price") for text in (old, new))
    assert before is not None
    pair = Pair(FILE, before, FILE, after)
    name = f"{FILE}::test_price"
    one = Reading(verdict, location=f"{FILE}:2")
    runs = Old({name: one}, {} if one.green else {name: one})
    made = concluded([], {name: pair}, {name: runs}, {name: "line 2"}, {name} if red_at_head else set())
    return [(item.kind, item.certain, item.before, item.after) for item in made]


FIVE = body("assert f() == 5")


def test_an_old_version_that_fails_by_its_own_assertion_is_a_changed_expectation() -> None:
    assert asked(Verdict.OWN_ASSERTION, PLAIN, FIVE) == [
        ("changed-expectation", True, "assert f() == 4", "assert f() == 5")
    ]


@pytest.mark.parametrize(
    ("verdict", "kind"),
    [
        (Verdict.MISSING_API, "changed-interface"),
        (Verdict.UNDECLARED_EXCEPTION, "changed-expectation"),
        (Verdict.PRODUCT_ASSERTION, "changed-expectation"),
        (Verdict.FIXTURE_ERROR, "changed-expectation"),
        (Verdict.HANG, "changed-expectation"),
    ],
)
def test_any_other_end_of_the_old_version_is_doubtful(verdict: Verdict, kind: str) -> None:
    assert [item[:2] for item in asked(verdict, PLAIN, FIVE)] == [(kind, False)]


@pytest.mark.parametrize("verdict", [Verdict.VACUOUS, Verdict.ENVIRONMENT, Verdict.NOT_RUN, Verdict.FLAKY])
def test_an_old_version_that_passes_or_could_not_run_says_nothing(verdict: Verdict) -> None:
    assert asked(verdict, PLAIN, FIVE) == []


def test_a_new_version_that_is_red_itself_has_no_expectation() -> None:
    assert asked(Verdict.OWN_ASSERTION, PLAIN, FIVE, red_at_head=True) == []


def test_a_deleted_test_is_doubtful_when_what_it_needs_is_missing_and_certain_when_it_would_still_pass() -> None:
    code = parse(PLAIN.encode(), Collection()).tests["test_price"]
    name = f"{FILE}::test_price"
    sure = Weakening(name, "deleted", "", "", f"{FILE}:1", None, True, "no test like it is left")
    doubt = Weakening(name, "deleted", "", "", f"{FILE}:1", None, False, "f went away with it")
    gone = Old(
        {name: Reading(Verdict.MISSING_API, symbol="shop.f")}, {name: Reading(Verdict.MISSING_API, symbol="shop.f")}
    )
    fine = Old({name: Reading(Verdict.VACUOUS)}, {})
    pairs = {name: Pair(FILE, code)}
    assert [(w.certain, w.note) for w in concluded([sure], pairs, {name: gone}, {}, set())] == [
        (False, "shop.f went away with it")
    ]
    assert [(w.certain, w.note) for w in concluded([doubt], pairs, {name: fine}, {}, set())] == [
        (True, "it would still pass")
    ]
