"""Constraints: features joined by & and |, counts, brackets and parentheses, as the controller reads them.

Follows src/slurmctld/job_scheduler.c (build_feature_list, _valid_feature_list) and src/slurmctld/node_scheduler.c
(valid_feature_counts).
"""

from __future__ import annotations

from msgspec import Struct

from preflight.slurm.controller.job import FEATURE, PREFER, RequestRefused

SETTING = "request.constraint"


class Term(Struct):
    """job_feature_t: a feature, the operator after it (and, or, xor, xand, end), and how many nodes need it."""

    name: str
    joins: str = "end"
    count: int = 0
    depth: int = 0


def terms(constraint: str, known: frozenset[str] | None) -> list[Term]:
    """The terms of a constraint (build_feature_list and _valid_feature_list, src/slurmctld/job_scheduler.c).

    `known`: the features of the nodes; None: not known. Raises Refused.
    """
    found = _split(constraint.replace(",", "&"))
    bracketed, has_count = False, False
    for term in found:
        if known is not None and term.name not in known:
            raise _refused(f"no node has the feature {term.name} (--constraint={constraint})")
        if (term.joins == "xand") > bool(term.count) or (term.joins == "xor" and term.count):
            raise _refused(f"in --constraint={constraint}, each feature of [a&b] needs a count and [a|b] takes none")
        inside = term.joins in ("xor", "xand")
        if bracketed and not inside and has_count != bool(term.count):
            raise _refused(f"in --constraint={constraint}, only some parts between brackets have counts")
        bracketed, has_count = inside, term.joins == "xand"
    return found


def check_preferred(constraint: str, known: frozenset[str]) -> None:
    """--prefer: a job is refused only if no node at all has such a feature. Raises Refused."""
    try:
        terms(constraint, known)
    except RequestRefused as refused:
        words = str(refused).replace("--constraint=", "--prefer=")
        malformed = "cannot be read" in words
        raise RequestRefused(FEATURE if malformed else PREFER, words, "request.prefer") from None


def _refused(words: str) -> RequestRefused:
    return RequestRefused(FEATURE, words, SETTING)


def _split(text: str) -> list[Term]:
    """One pass over the characters; a name ends at an operator, a bracket or the end of the text."""
    found: list[Term] = []
    name, count, bracket, brackets, paren = "", 0, 0, 0, 0
    ended = False  # a closing bracket or a count has ended the name
    wrong = _refused(f"--constraint={text} cannot be read")
    index = 0
    while index < len(text):
        char = text[index]
        index += 1
        if char == "*":
            digits = index
            while digits < len(text) and text[digits].isdecimal():
                digits += 1
            if not name or paren or digits == index or int(text[index:digits]) <= 0:
                raise wrong
            count, index, ended = int(text[index:digits]), digits, True
        elif char in "&|":
            if not name:
                raise wrong
            inner = ("and", "or") if paren or not bracket else ("xand", "xor")
            found.append(Term(name, inner[char == "|"], count, paren))
            name, count, ended = "", 0, False
        elif char == "[":
            brackets += 1
            if name or bracket or brackets > 1:
                raise wrong
            bracket, ended = 1, False
        elif char == "(":
            if name or paren:
                raise wrong
            paren = 1
        elif char in "])":
            if not name or not (bracket if char == "]" else paren):
                raise wrong
            bracket, paren = (0, paren) if char == "]" else (bracket, 0)
            ended = True
        elif not ended:
            name += char
    if name:
        found.append(Term(name, "end", count, paren))
    if bracket or paren:
        raise wrong
    return found


def meets(found: list[Term], features: frozenset[str]) -> bool:
    """Whether a node may serve (valid_feature_counts, src/slurmctld/node_scheduler.c, one node at a time).

    With counts no node is left out here, and of a choice in brackets any feature will do.
    """
    if any(term.count for term in found):
        return True
    outer, outer_joins, value = True, "and", True
    joins, depth = "and", 0
    inside = False
    for term in found:
        if depth < term.depth:
            outer, outer_joins, joins, value, inside = value, joins, "and", True, True
        has = term.name in features
        if term.joins not in ("xor", "xand"):
            if joins == "and":
                value = value and has
            elif joins == "or":
                value = value or has
        if depth > term.depth and inside:
            value, inside = _joined(outer_joins, outer, value), False
        joins, depth = term.joins, term.depth
    return _joined(outer_joins, outer, value) if inside else value


def _joined(how: str, outer: bool, inner: bool) -> bool:
    return outer and inner if how == "and" else outer or inner
