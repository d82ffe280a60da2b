"""The browser's side as text, read once.

`static/` holds small modules that import each other, so that Node can test them one by one; the
browser gets them as one ES module: the same text without the lines that import from a sibling.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

# In the order of their imports; names are unique over all of them.
MODULES = (
    "wire.js",
    "reducer.js",
    "layout.js",
    "paint.js",
    "store.js",
    "block_map.js",
    "prefix_tree.js",
    "feed_timeline.js",
    "requests.js",
    "memory.js",
    "reclaims.js",
    "invariants.js",
    "controls.js",
    "lab.js",
)
_SIBLING_IMPORT = re.compile(r'^import\s[^;]*?from\s"\./[a-z_]+\.js";\n', re.MULTILINE)


@cache
def module_text() -> str:
    """The ES module of all panels; its default export has `render`, `mount` is exported too."""
    return "\n".join(_SIBLING_IMPORT.sub("", _read(name)) for name in MODULES)


@cache
def style_text() -> str:
    """The style sheet of all panels."""
    return _read("lab.css")


def _read(name: str) -> str:
    return (files("metrale_lab.views") / "static" / name).read_text(encoding="utf-8")
