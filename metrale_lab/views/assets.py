"""The browser's side as text, read once.

`static/` holds small modules that import each other, so that Node can test them one by one. The
browser gets them as one ES module: each file becomes a function's body, its imports read from
the ones before it.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

# In the order of their imports.
MODULES = (
    "wire",
    "reducer",
    "ring",
    "layout",
    "names",
    "blocks",
    "paint",
    "store",
    "block_map",
    "prefix_tree",
    "feed_timeline",
    "requests",
    "memory",
    "reclaims",
    "slots",
    "adapters",
    "invariants",
    "controls",
    "time_bar",
    "notices",
    "page",
    "lab",
)
_IMPORT = re.compile(r'^import\s*({[^}]*})\s*from\s*"\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?(?:function|class|const) (\w+))", re.MULTILINE)


@cache
def module_text() -> str:
    """The ES module of all panels: its default export is the widget; `modules` has all parts."""
    parts = ["const modules = {};", *map(_wrapped, MODULES), "export default modules.lab.widget;"]
    return "\n".join(parts)


@cache
def style_text() -> str:
    """The style sheet of all panels."""
    return _read("lab.css")


def _wrapped(name: str) -> str:
    source = _read(f"{name}.js")
    names = ", ".join(found[1] for found in _EXPORT.findall(source))
    body = _EXPORT.sub(r"\1", _IMPORT.sub(r"const \1 = modules.\2;", source))
    return f"modules.{name} = (() => {{\n{body}return {{ {names} }};\n}})();"


def _read(name: str) -> str:
    return (files("metrale_lab.views") / "static" / name).read_text(encoding="utf-8")
