"""One panel: live in a notebook, frozen for the file, or a recorded run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from metrale_lab.arguments import path as checked_path
from metrale_lab.files import check_file, replacing
from metrale_lab.views.moment import Moment
from metrale_lab.views.notebook import (
    PNG,
    WIDGET,
    Display,
    in_notebook,
    interactive,
)
from metrale_lab.views.page import page
from metrale_lab.views.stills import still_png
from metrale_lab.views.widget import PanelModel
from metrale_lab.views.words import panel_words
from metrale_lab.views.worker import WORKER

if TYPE_CHECKING:
    from metrale_lab.views.dashboard import Widgets

Mode = Literal["live", "recorded"]


class Panel:
    """One picture of a lab that can be live, frozen, or a recorded run.

    Showing it twice makes two views of one model. It is made by `lab.widgets`.
    """

    def __init__(
        self,
        widgets: Widgets,
        panels: tuple[str, ...],
        folded: tuple[str, ...] = (),
        size: str = "normal",
        mode: Mode = "live",
    ) -> None:
        self.panels, self.folded, self.size, self.mode = panels, folded, size, mode
        self._widgets = widgets
        self._model: PanelModel | None = None
        self._displays: list[Display] = []

    def freeze(self) -> None:
        """Turn every display of this panel into a picture and its text, for saving.

        A page that was reloaded after the panel's cell ran no longer finds its outputs: run the
        cell again before you freeze there.
        """
        self._widgets.freezes(self)
        self.refresh()
        self._displays = []
        self.close()

    def refresh(self) -> None:
        """Put the picture and text of this moment where the panel is shown."""
        if self._displays:
            bundle, words = self._still()
            for one in self._displays:
                one.replace(bundle, words)

    def thaw(self) -> Panel:
        """The recorded run of this panel with its slider, also after `lab.close()`.

        Pictures that were frozen before stay in the file; show the returned panel to look at it.
        """
        return Panel(self._widgets, self.panels, self.folded, self.size, "recorded")

    def snapshot(self) -> None:
        """Add a still picture of this moment, with its text, to the running cell."""
        Display().show(*self._still())

    def to_html(self, path: str | Path) -> Path:
        """Write one offline page with the recorded run; returns its path."""
        path = checked_path("path", path)
        check_file(path)
        run = self._widgets.recorded()
        title = f"{self._widgets.name}: {', '.join(self.panels)}"
        source = page(run, self.panels, self.folded, self.size, title, self.text())
        with replacing(path) as scratch:
            scratch.write_text(source, encoding="utf-8")
        return path

    def goto(self, *, seq_no: int | None = None, step: int | None = None) -> None:
        """Show the moment after an event or a tick; the view is held there.

        All panels of a lab show the same moment.
        """
        self._widgets.goto(seq_no=seq_no, step=step)

    def text(self) -> str:
        """The panel in words: five lines of Markdown or fewer."""
        return self._words(self._widgets.moment())

    def close(self) -> None:
        """Let go of the browser's side; displays stay as they are."""
        model, self._model = self._model, None
        if model is not None:
            model.close()
            self._widgets.closed(self)

    def __repr__(self) -> str:
        return f"Panel({', '.join(self.panels)}; {self.mode}, {len(self._displays)} displays)"

    def show(self) -> None:
        """Show the panel in the running cell."""
        self._ipython_display_()

    def _ipython_display_(self) -> None:
        one = Display()
        if interactive() and not (self.mode == "live" and self._widgets.lab.closed):
            one.show(self._live_bundle())
            self._displays.append(one)
        elif in_notebook():
            one.show({"text/plain": self.text()})
            self._displays.append(one)
            self._widgets.show_unseen(self)
        else:
            raise NotImplementedError  # IPython shows __repr__ then

    def _live_bundle(self) -> dict[str, Any]:
        if self._model is None:
            self._model = PanelModel(
                hub=self._widgets.open_hub(self),
                panels=list(self.panels),
                folded=list(self.folded),
                size=self.size,
            )
            self._model.on_msg(self._on_browser)
        view = {"model_id": self._model.model_id, "version_major": 2, "version_minor": 1}
        return {WIDGET: view, **self._still()[0]}

    def _still(self) -> tuple[dict[str, Any], str]:
        """Picture and text of one moment: the outputs' bundle, and its Markdown."""
        moment = self._widgets.moment()
        words = self._words(moment)
        plain = words.replace("**", "")
        bundle: dict[str, Any] = {"text/plain": plain}
        try:
            picture = still_png(moment, self.panels)
            if picture is not None:
                png, size = picture
                bundle[PNG] = png, {**size, "alt": plain}
        except Exception as error:
            self._widgets.fail(error, "picture")
        return bundle, words

    def _words(self, moment: Moment) -> str:
        try:
            return panel_words(moment, self.panels)
        except Exception as error:
            self._widgets.fail(error, "text")
            return f"{', '.join(self.panels)}: {error}"

    def _on_browser(self, _: Any, content: Any, buffers: Any) -> None:
        if isinstance(content, dict) and content.get("command") == "freeze":
            WORKER.put(self.freeze_quietly)

    def freeze_quietly(self) -> None:
        """Freeze; what goes wrong is kept for `errors()`."""
        try:
            self.freeze()
        except Exception as error:
            self._widgets.fail(error, "freeze")
