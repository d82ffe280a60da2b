"""One offline page with a recorded run and the same module that the notebook uses."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Sequence

from metrale_lab.views.assets import module_text, style_text
from metrale_lab.views.widget import palette

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ margin: 0 auto; max-width: 1100px; padding: 16px; background: {light}; }}
@media (prefers-color-scheme: dark) {{ body {{ background: {dark}; }} }}
{style}
</style>
<main id="lab"></main>
<noscript><pre>{text}</pre></noscript>
<script type="application/json" id="options">{options}</script>
<script type="text/plain" id="run">{run}</script>
<script type="module">
{module}
const bytes = Uint8Array.from(atob(document.getElementById("run").textContent), (one) =>
  one.charCodeAt(0),
);
const options = JSON.parse(document.getElementById("options").textContent);
modules.lab.mountRecorded(document.getElementById("lab"), new DataView(bytes.buffer), options);
</script>
</html>
"""


def page(
    recorded: bytes, panels: Sequence[str], folded: Sequence[str], size: str, title: str, text: str
) -> str:
    """The page's source; `recorded` is a blob of frames, `text` is for readers without scripts."""
    options = {
        "panels": list(panels),
        "folded": list(folded),
        "size": size,
        "palette": palette(),
    }
    themes = options["palette"]
    assert isinstance(themes, dict)
    return _PAGE.format(
        title=html.escape(title),
        style=style_text(),
        text=html.escape(text),
        options=json.dumps(options).replace("<", "\\u003c"),
        run=base64.b64encode(recorded).decode("ascii"),
        module=module_text().replace("</script", "<\\/script"),
        light=themes["light"]["background"],
        dark=themes["dark"]["background"],
    )
