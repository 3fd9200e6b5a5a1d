"""Formulas as text: which parts they have, and what is refused."""

import sys

import pytest

from taskloom.formula import RandomPart, parse_formula


@pytest.mark.parametrize(
    ("formula", "fixed", "random"),
    [
        ("y ~ x1 + x2 + (1 + x1 | shop) + (1 | region)", "x1 + x2", ["(1 + x1 | shop)", "(1 | region)"]),
        ("y ~ (1|shop)", "1", ["(1 | shop)"]),
        ("y ~ (1 | shop) - 1", "1 - 1", ["(1 | shop)"]),
        ("y ~ (1 | shop) + 0 + x", "0 + x", ["(1 | shop)"]),
        ("y ~ x + -1", "x - 1", []),
        ("y ~ x*z + (x || shop)", "x*z", ["(x || shop)"]),
        ("y ~ x + (1 | a/b/c)", "x", ["(1 | a)", "(1 | a:b)", "(1 | a:b:c)"]),
        ("y ~ x + (1 | a:b/c)", "x", ["(1 | a:b)", "(1 | a:b:c)"]),
        ("y ~ x + (1 | a) + (1 | b)", "x", ["(1 | a)", "(1 | b)"]),
        ("y ~ x + ((1 | a))", "x", ["(1 | a)"]),
        ("y ~ (x + z)^2 + (log(x) + I(z - 1) | a)", "(x + z)^2", ["(log(x) + I(z - 1) | a)"]),
        ("y ~ I(x | z) + {x | z} + (1 | a)", "I(x | z) + {x | z}", ["(1 | a)"]),  # operators of Python
        ("y ~ C(a, levels=['(', '+', '|']) + (1 | g)", "C(a, levels=['(', '+', '|'])", ["(1 | g)"]),
        ("y ~ `a (b + c` + (`x | y` | `my group`)", "`a (b + c`", ["(`x | y` | my group)"]),
    ],
)
def test_parts(formula, fixed, random):
    parsed = parse_formula(formula)
    assert (parsed.target, parsed.fixed, [str(part) for part in parsed.random]) == ("y", fixed, random)


def test_a_part_names_its_columns():
    assert parse_formula("log(y) ~ (x || `the town`/shop)").random == (
        RandomPart("x", ("the town",), correlated=False),
        RandomPart("x", ("the town", "shop"), correlated=False),
    )
    assert parse_formula("log(y) ~ x").target == "log(y)"


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("y = x", "needs one ~"),
        ("~ x", "needs one ~"),
        ("y ~ x ~ z", "needs one ~"),
        ("y ~ x + (1 | shop", r"no '\)' at its end"),
        ("y ~ x + 1 | shop)", r"'\)' too many.*character 17"),
        ("y ~ (x]", r"'\]' too many"),
        ("y ~ `x", "no '`' at its end"),
        ("y ~", r"missing after '\+'"),
        ("y ~ x +", r"missing after '\+'"),
        ("y ~ x + ( | shop)", r"empty left of its bar: write \(1 \| shop\)"),
        ("y ~ x + (1 | )", r"names no grouping: write \(1 \| group\)"),
        ("y ~ x | shop", "stands in parentheses"),
        ("y ~ x:(1 | shop)", "added with"),
        ("y ~ (x + (1 | shop))", "one bar"),
        ("y ~ (1 | a | b)", "one bar"),
        ("y ~ (1 | a*b)", r"a grouping is a column, a:b or a/b, got 'a\*b'"),
        ("y ~ (1 | 1)", "a grouping is a column"),
        ("y ~ x - (1 | shop)", "cannot be taken away"),
        ("y ~ (1 | a) + (1 | a/b)", r"\(1 \| a\) stands twice"),
    ],
)
def test_what_is_refused(formula, message):
    with pytest.raises(ValueError, match=message):
        parse_formula(formula)
    with pytest.raises(TypeError, match="a formula is a text"):
        parse_formula([formula])


def test_parsing_needs_no_other_package(monkeypatch):
    for name in ("formulaic", "pandas"):
        monkeypatch.setitem(sys.modules, name, None)
    assert parse_formula("y ~ x").fixed == "x"
