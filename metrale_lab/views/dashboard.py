"""`lab.widgets`: the live panels of one lab."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from metrale_lab.arguments import choice, integer, refusal
from metrale_lab.errors import InvalidRequest
from metrale_lab.views.feed import Feed, law_rows
from metrale_lab.views.moment import Moment
from metrale_lab.views.notebook import AfterEachCell, CellParent, after_this_cell
from metrale_lab.views.panel import Mode, Panel
from metrale_lab.views.protocol import LabLike
from metrale_lab.views.pump import PUMP
from metrale_lab.views.replay import recorded_run, still
from metrale_lab.views.status import Status
from metrale_lab.views.widget import Hub
from metrale_lab.views.wire import join
from metrale_lab.views.worker import WORKER

PANELS = (
    "block_map",
    "requests",
    "feed_timeline",
    "prefix_tree",
    "memory",
    "reclaims",
    "slots",
    "adapters",
    "invariants",
)
UNFOLDED = ("block_map", "requests", "feed_timeline", "prefix_tree")
SIZES = ("normal", "projector")


class Widgets:
    """The panels of a lab; each display is one more view of one model.

    `mode` "recorded" makes panels that show the run so far with its slider.
    """

    def __init__(self, lab: LabLike, mode: Mode = "live") -> None:
        self.lab = lab
        self._mode = mode
        self._feed = Feed(lab, self._send)
        self._hubs: dict[str, Hub] = {}
        self._shown: list[Panel] = []
        self._unseen: list[Panel] = []  # shown where no front end looks
        self._unseen_seq_no = -2  # last event that their pictures show
        self._each_cell: AfterEachCell | None = None
        self._still = b""
        self._step: int | None = None  # that `goto` holds
        self._board: Panel | None = None
        self._parent = CellParent()

    @property
    def name(self) -> str:
        """The lab's name."""
        return self.lab.name

    def block_map(self) -> Panel:
        """Where each block is, whose it is, and whether it is shared."""
        return self._panel("block_map")

    def memory(self) -> Panel:
        """What fills the memory, adding up to the total."""
        return self._panel("memory")

    def prefix_tree(self) -> Panel:
        """What is reusable, and who reuses it."""
        return self._panel("prefix_tree")

    def reclaims(self) -> Panel:
        """What admission had to evict."""
        return self._panel("reclaims")

    def feed_timeline(self) -> Panel:
        """What overlaps with what on host and device."""
        return self._panel("feed_timeline")

    def requests(self) -> Panel:
        """Who waits, runs or is parked, and how fast."""
        return self._panel("requests")

    def slots(self) -> Panel:
        """Which sequence sits in which slot, and which snapshots are kept."""
        return self._panel("slots")

    def adapters(self) -> Panel:
        """Which adapters are loaded, who uses them, and what each has cached."""
        return self._panel("adapters")

    def invariants(self) -> Panel:
        """Whether the engine is in order."""
        return self._panel("invariants")

    def controls(self) -> Panel:
        """Pause, tick, slow motion, a prompt to submit, pool pressure."""
        return self._panel("controls")

    def dashboard(self, panels: Sequence[str] | None = None, size: str = "normal") -> Panel:
        """All panels on one page; those of `panels` are open, the rest folded.

        `size` is "normal" or "projector" (larger type).
        """
        given = UNFOLDED if panels is None else panels
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise refusal("panels", given, f"a list of {', '.join(PANELS)}")
        chosen = tuple(choice("panels", name, PANELS) for name in given)
        choice("size", size, SIZES)
        folded = tuple(name for name in PANELS if name not in chosen)
        return Panel(self, ("controls", *chosen), folded, size, self._mode)

    def show(self) -> None:
        """Show the dashboard in the running cell: one more view of the same model each time."""
        if self._board is None:
            self._board = self.dashboard()
        self._board.show()

    def goto(self, *, seq_no: int | None = None, step: int | None = None) -> None:
        """Show the moment after an event or a tick in all panels of this lab.

        Stills show it too, until somebody presses "Live".

        Raises
        ------
        TraceIncomplete
            If the events of that tick were overwritten.
        """
        if (seq_no is None) == (step is None):
            raise InvalidRequest("goto takes either seq_no or step.")
        seq_no = None if seq_no is None else integer("seq_no", seq_no)
        step = None if step is None else integer("step", step, -1)
        frame = still(
            self.lab.recorder, self.lab.text_of, self._feed.status, seq_no=seq_no, step=step
        )
        self._hold(join([frame]), frame.header["step"])

    def moment(self) -> Moment:
        """What stills show: the tick that `goto` holds, else the latest."""
        return Moment(self.lab, self._step)

    def errors(self) -> list[str]:
        """What went wrong in the pump, in buttons and in pictures."""
        return self._feed.errors

    def close(self) -> None:
        """Freeze all displays and let the pump go; panels can still be thawed."""
        if self._each_cell is not None:
            self._each_cell.stop()
        for hub in self._hubs.values():
            hub.end()
        for panel in [*self._shown, *self._unseen]:
            panel.freeze()
        self._unseen.clear()
        self._close_hub("live")
        self._close_hub("recorded")
        PUMP.remove(self._feed)

    def recorded(self) -> bytes:
        """The run so far as a blob of frames."""
        status = Status(name=self.lab.name, closed=self.lab.closed)
        try:
            status.laws = law_rows(self.lab.check())
            status.laws_step = self.lab.recorder.view().state.step
        except Exception as error:
            self.fail(error, "check")
        return join(recorded_run(self.lab.recorder, self.lab.text_of, status))

    def open_hub(self, panel: Panel) -> str:
        """The model id of the hub for a panel that is about to be shown."""
        self._shown.append(panel)
        self._parent = CellParent()
        hub = self._hub(panel.mode)
        if panel.mode == "live":
            self._feed.wants_laws |= "invariants" in (*panel.panels, *panel.folded)
            PUMP.add(self._feed)
            after_this_cell(self._expect_answer)
        return str(hub.model_id)

    def show_unseen(self, panel: Panel) -> None:
        """Keep the pictures of a panel up to date, cell by cell, since no front end does."""
        if self.lab.closed:
            after_this_cell(panel.freeze_quietly)
            return
        self._unseen.append(panel)
        self._unseen_seq_no = -2
        if self._each_cell is None:
            self._each_cell = AfterEachCell(self._refresh_unseen)

    def _refresh_unseen(self) -> None:
        seq_no = self.lab.recorder.state().seq_no
        if seq_no == self._unseen_seq_no:
            return
        self._unseen_seq_no = seq_no
        try:
            for panel in self._unseen:
                panel.refresh()
        except Exception as error:
            self.fail(error, "freeze")

    def freezes(self, panel: Panel) -> None:
        """A panel's displays are about to be replaced; with the last one the hub ends."""
        if panel.mode in self._hubs and not self._shown_beside(panel):
            self._hubs[panel.mode].end()

    def closed(self, panel: Panel) -> None:
        """A panel let go of its browser side; the last one takes the hub along."""
        if panel in self._shown:
            self._shown.remove(panel)
        if not self._shown_beside(panel):
            self._close_hub(panel.mode)

    def _shown_beside(self, panel: Panel) -> list[Panel]:
        """Other panels that the panel's hub serves."""
        return [one for one in self._shown if one.mode == panel.mode and one is not panel]

    def fail(self, error: BaseException, where: str) -> None:
        """Keep an error for `errors()` and the panels' strip."""
        self._feed.fail(error, where)

    def _hold(self, still: bytes, step: int | None) -> None:
        self._still, self._step = still, step
        for hub in self._hubs.values():
            hub.still = still

    def _panel(self, name: str) -> Panel:
        return Panel(self, (name,), mode=self._mode)

    def _hub(self, mode: str) -> Hub:
        if mode not in self._hubs:
            recorded = self._feed.first_key() if mode == "live" else self.recorded()
            self._hubs[mode] = Hub(mode, recorded, self._still, self._receive)
        return self._hubs[mode]

    def _close_hub(self, mode: str) -> None:
        hub = self._hubs.pop(mode, None)
        if hub is not None:
            hub.close()
        if mode == "live":
            self._feed.views.clear()  # they may have gone without a goodbye
            PUMP.remove(self._feed)

    def _send(self, header: dict[str, Any], buffers: list[bytes]) -> None:
        hub = self._hubs.get("live")
        if hub is not None:
            self._parent.adopt()
            hub.send(header, buffers)

    def _receive(self, message: Mapping[str, Any]) -> None:
        self._feed.receive(message)
        if message.get("ask") == "live":
            self._hold(b"", None)
        if "hello" in message and "live" in self._hubs and not self.lab.closed:
            PUMP.add(self._feed)

    def _expect_answer(self) -> None:
        self._feed.expect_answer(lambda: WORKER.put(self._freeze_unseen))

    def _freeze_unseen(self) -> None:
        try:
            for panel in list(self._shown):
                panel.freeze()
        except Exception as error:
            self.fail(error, "freeze")
