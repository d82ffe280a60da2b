"""The small changes that cosmic-ray knows to make to a file."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from typing import Any, NamedTuple

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names


class Mutant(NamedTuple):
    """One change: the first line that differs, what the new lines are, and the whole file."""

    line: int
    changed: str
    source: str


def mutants_of(source: str) -> Iterator[Mutant]:
    """Each mutant once; those that change annotations alone are left out: nothing reads them."""
    seen = {_evaluated(source)}
    for name in operator_names():
        kind = get_operator(name)
        if kind.arguments():
            continue
        for number in range(_places(source, kind())):
            mutated = mutate_code(source, kind(), number)
            if mutated is not None and (meaning := _evaluated(mutated)) not in seen:
                seen.add(meaning)
                yield _mutant(source, mutated)


def _places(source: str, operator: Any) -> int:
    return sum(len(list(operator.mutation_positions(one))) for one in ast_nodes(get_ast(source)))


def _mutant(source: str, mutated: str) -> Mutant:
    old, new = source.splitlines(), mutated.splitlines()
    line = next(i for i, pair in enumerate(zip(old, new, strict=False), 1) if len({*pair}) > 1)
    lines = [(one[0], one[2:].strip()) for one in difflib.ndiff(old, new)]
    added = " ".join(text for sign, text in lines if sign == "+")
    gone = " ".join(text for sign, text in lines if sign == "-")
    return Mutant(line, added or f"without {gone}", mutated)


def _evaluated(source: str) -> str:
    """What of a file is run, as text; the source itself when it is no Python."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return source
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign):
            node.annotation = ast.Constant(None)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
    return ast.dump(tree)
