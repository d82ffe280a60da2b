"""The two widget models: one hub per lab that carries frames, and one model per panel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import anywidget
import traitlets

from metrale_lab.views.assets import module_text, style_text
from metrale_lab.views.palette import THEMES


class Closing(anywidget.AnyWidget):
    """A widget that takes its layout along when it closes."""

    def close(self) -> None:
        """Let go of the browser's side, of the layout's too."""
        self.layout.close()
        super().close()


class Hub(Closing):
    """Where frames arrive in the browser and button messages leave it; it is never shown.

    `recorded` holds frames that are known when the model is made: the state of that moment, or a
    whole recorded run. `still` is one frame that all views are held at (`goto`). Everything else
    travels as custom messages.
    """

    _esm = "export default { render() {} };"
    mode = traitlets.Unicode("live").tag(sync=True)  # live, recorded
    palette = traitlets.Dict().tag(sync=True)
    recorded = traitlets.Bytes(b"").tag(sync=True)
    still = traitlets.Bytes(b"").tag(sync=True)

    def __init__(
        self,
        mode: str,
        recorded: bytes,
        still: bytes,
        receive: Callable[[Mapping[str, Any]], None],
    ) -> None:
        super().__init__(mode=mode, recorded=recorded, still=still, palette=palette())
        self._receive = receive
        self.on_msg(self._on_browser)

    def end(self) -> None:
        """Let the browser say no goodbyes: this hub is about to close.

        JupyterLab deletes a kernel's subshell with its last widget, and ipykernel writes of a
        destroyed task, or of an unknown subshell, where a message is still on its way there.
        """
        self.send({"ending": True})

    def _on_browser(self, _: Any, content: Any, buffers: Any) -> None:
        if isinstance(content, Mapping):
            self._receive(content)


class PanelModel(Closing):
    """One panel or dashboard; all its displays are views of this model."""

    _esm = module_text()
    _css = style_text()
    hub = traitlets.Unicode().tag(sync=True)
    panels = traitlets.List(traitlets.Unicode()).tag(sync=True)
    folded = traitlets.List(traitlets.Unicode()).tag(sync=True)
    size = traitlets.Unicode("normal").tag(sync=True)
    page = traitlets.Unicode().tag(sync=True)  # the page load that showed the panel first


def palette() -> dict[str, Any]:
    """Both themes as plain dictionaries: the browser's only source of colours."""
    return {name: theme.as_dict() for name, theme in THEMES.items()}
