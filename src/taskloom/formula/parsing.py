"""Formulas as text: the target, the fixed part and the random parts. No data, and no other package, is needed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_CLOSED_BY = {"(": ")", "f": ")", "[": "]", "{": "}"}  # "f" opens the arguments of a function
_NAME = re.compile(r"[^\W\d][\w.]*|`[^`]+`")


@dataclass(frozen=True)
class RandomPart:
    """One random part, ``(inputs | by)``: a function of the inputs for each level of a grouping.

    Parameters
    ----------
    inputs : str
        What stands left of the bar: a formula of its own.
    by : tuple of str
        The columns whose combination names the level of a row.
    correlated : bool, default=True
        Whether the covariance of the coefficients is learned; ``False`` after two bars, ``(inputs || by)``.
    """

    inputs: str
    by: tuple[str, ...]
    correlated: bool = True

    @property
    def grouping(self) -> str:
        """The name of the grouping: ``"shop"``, or ``"town:shop"`` for a combination."""
        return ":".join(self.by)

    def __str__(self) -> str:
        return f"({self.inputs} {'|' if self.correlated else '||'} {self.grouping})"


@dataclass(frozen=True)
class ParsedFormula:
    """A formula, split into its parts.

    Parameters
    ----------
    target : str
        What stands left of ``~``.
    fixed : str
        The part for all rows; ``"1"`` where it is the intercept alone.
    random : tuple of RandomPart
        The parts by groupings; nested groupings are expanded.
    """

    target: str
    fixed: str
    random: tuple[RandomPart, ...]


def parse_formula(formula: str) -> ParsedFormula:
    """Split a formula into target, fixed part and random parts.

    Parameters
    ----------
    formula : str
        As in lme4: ``"y ~ x + (1 + x | shop) + (1 | town/street)"``. ``a/b`` is ``a`` and ``a:b``, one grouping each.

    Returns
    -------
    ParsedFormula

    Examples
    --------
    >>> from taskloom.formula import parse_formula
    >>> parsed = parse_formula("y ~ x + (1 | town/street)")
    >>> parsed.fixed, [str(part) for part in parsed.random]
    ('x', ['(1 | town)', '(1 | town:street)'])
    """
    if not isinstance(formula, str):
        raise TypeError(f"a formula is a text such as 'y ~ x + (1 | group)', got {formula!r}")
    sides = _split(formula, "~")
    if len(sides) != 2 or not sides[0]:
        raise ValueError(f"a formula needs one ~ between target and inputs, as in 'y ~ x + (1 | group)', got {formula!r}")
    fixed, random = "", []
    for sign, piece in _signed_pieces(sides[1]):
        if not piece:
            raise ValueError(f"the formula {formula!r} ends too early: an input is missing after {sign!r}")
        if not _has_bar(piece):
            fixed += f" {sign} {piece}"
        elif sign == "-":
            raise ValueError(f"a random part cannot be taken away: leave out '- {piece}' in {formula!r}")
        else:
            random += _random_parts(piece)
    twice = [part for k, part in enumerate(random) if part in random[:k]]
    if twice:
        raise ValueError(f"the random part {twice[0]} stands twice in {formula!r}")
    fixed = f"1{fixed}" if fixed.startswith(" -") else fixed.removeprefix(" + ")
    return ParsedFormula(sides[0], fixed or "1", tuple(random))


def column_name(text: str) -> str | None:
    """The name of a column, without its backticks; ``None`` if the text is more than a name."""
    return text.strip("`") if _NAME.fullmatch(text) else None


def _random_parts(piece: str) -> list[RandomPart]:
    """``(inputs | by)`` as one part for each grouping that ``by`` names."""
    inner = _inside_of_parentheses(piece)
    halves = _split(inner or "", "|")
    if len(halves) != 2 and not (len(halves) == 3 and not halves[1]):  # two bars are three parts, the second empty
        raise ValueError(
            f"a random part has one bar, stands in parentheses and is added with +: (1 + x | group); got {piece!r}"
        )
    inputs, by = halves[0], halves[-1]
    if not inputs:
        raise ValueError(f"the random part {piece!r} is empty left of its bar: write (1 | {by or 'group'}) for intercepts")
    if not by:
        raise ValueError(f"the random part {piece!r} names no grouping: write ({inputs} | group)")
    nested: tuple[str, ...] = ()
    parts = []
    for step in _split(by, "/"):
        names = [column_name(name) for name in _split(step, ":")]
        if None in names:
            raise ValueError(f"a grouping is a column, a:b or a/b, got {by!r} in {piece!r}")
        nested += tuple(name for name in names if name is not None)
        parts.append(RandomPart(inputs, nested, correlated=len(halves) == 2))
    return parts


def _inside_of_parentheses(piece: str) -> str | None:
    """What one pair of parentheses around all of the piece holds; ``None`` without such a pair."""
    outside = [k for k, _, inside in _scan(piece) if not inside]
    if not (piece.startswith("(") and outside == [0, len(piece) - 1]):
        return None
    inner = piece[1:-1].strip()
    return _inside_of_parentheses(inner) or inner


def _has_bar(piece: str) -> bool:
    """Whether a bar stands outside the arguments of functions, where it is an operator of Python."""
    return any(character == "|" and set(inside) <= {"("} for _, character, inside in _scan(piece))


def _signed_pieces(text: str) -> list[tuple[str, str]]:
    """What is added and taken away, each with its sign."""
    cuts = [k for k, character, inside in _scan(text) if character in "+-" and not inside]
    starts, signs = [0, *(k + 1 for k in cuts)], ["+", *(text[k] for k in cuts)]
    pieces = [text[start:end].strip() for start, end in zip(starts, [*cuts, len(text)], strict=True)]
    last = len(pieces) - 1  # of two signs in a row, as in "x + -1", the second counts
    return [(sign, piece) for k, (sign, piece) in enumerate(zip(signs, pieces, strict=True)) if piece or k == last]


def _split(text: str, separator: str) -> list[str]:
    """The text between separators outside brackets and quotes, stripped."""
    cuts = [k for k, character, inside in _scan(text) if character == separator and not inside]
    starts = [0, *(k + 1 for k in cuts)]
    return [text[start:end].strip() for start, end in zip(starts, [*cuts, len(text)], strict=True)]


def _scan(text: str) -> Iterator[tuple[int, str, str]]:
    """Position and character of what stands outside quotes, with the brackets around it."""
    inside = quote = last = ""
    for k, character in enumerate(text):
        if quote or character in "`'\"":
            quote = "" if character == quote else quote or character
        else:
            if character in ")]}":
                if not inside or _CLOSED_BY[inside[-1]] != character:
                    raise ValueError(f"the formula has a {character!r} too many: {text!r}, character {k + 1}")
                inside = inside[:-1]
            yield k, character, inside
            if character in "([{":
                inside += "f" if character == "(" and (last.isalnum() or last in ("_", ")", "]", "`")) else character
        last = last if character.isspace() else character
    if inside or quote:
        raise ValueError(f"the formula has no {_CLOSED_BY[inside[-1]] if inside else quote!r} at its end: {text!r}")
