"""Notebook files: reading one, and the values of its cell tagged parameters."""

from __future__ import annotations

import ast
import warnings
from pathlib import Path
from typing import Any

import nbformat

from metrale_lab.errors import InvalidRequest


def read_notebook(path: Path) -> Any:
    """The notebook in a file. InvalidRequest when there is none in it, or it cannot be read."""
    try:
        # nbformat.read would write what is wrong to the log, and go on
        notebook = nbformat.convert(nbformat.reader.reads(path.read_text(encoding="utf-8")), 4)
        with warnings.catch_warnings(action="ignore"):
            nbformat.validate(notebook)
    except Exception as error:
        raise InvalidRequest(
            f"{path}: no notebook ({' '.join(str(error).split())[:120]}). "
            "Give a file that Jupyter has saved."
        ) from error
    return notebook


def set_parameters(notebook: Any, parameters: dict[str, Any]) -> str:
    """Put the values behind the cell tagged parameters; what is wrong with them, or ""."""
    if not parameters:
        return ""
    tagged = [
        (index, cell)
        for index, cell in enumerate(notebook.cells)
        if "parameters" in cell.metadata.get("tags", [])
    ]
    known = {name for _, cell in tagged for name in _assigned(cell.source)}
    if unknown := sorted(set(parameters) - known):
        return f"no parameter {', '.join(unknown)}; it has: {', '.join(sorted(known)) or 'none'}"
    source = "\n".join(f"{name} = {value!r}" for name, value in parameters.items())
    notebook.cells.insert(tagged[-1][0] + 1, nbformat.v4.new_code_cell(source))
    return ""


def _assigned(source: str) -> set[str]:
    tree = ast.parse(source)
    return {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
