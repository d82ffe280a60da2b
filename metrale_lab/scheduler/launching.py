"""Enqueues a step's work: forward pass, pick, copy, and the events between them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter

from metrale_lab.engine import HostToken, Logits, Model, RowDraw, RowMask
from metrale_lab.scheduler.plans import Outcome, StepPlan, Ticket
from metrale_lab.scheduler.ring import RingSlot
from metrale_lab.trace.events import NONE


@dataclass(frozen=True, slots=True)
class Launched:
    """A step that was enqueued; `slot` is None where the model cannot pick on the device.

    `logits` is kept only where the host reads them: the next step would copy them out of its way.
    """

    ticket: Ticket
    plan: StepPlan
    slot: RingSlot | None
    logits: Logits | None
    captured: bool
    launch_s: float
    launched_s: float
    reserved_blocks: int

    def outcome(
        self,
        token_ids: Sequence[int],
        error: Exception | None,
        await_s: float,
        *,
        polls: int,
        blocked: bool,
        times: tuple[float, float, float] | None = None,
    ) -> Outcome:
        """The step's result; `times` are the device's start, end of forward, and ids ready."""
        start, end, ready = times or (self.launch_s, self.launched_s, self.launched_s)
        return Outcome(
            plan=self.plan,
            token_ids=token_ids,
            logits=self.logits if error is None else None,
            error=error,
            launch_s=self.launch_s,
            launched_s=self.launched_s,
            device_start_s=start,
            device_end_s=end,
            ready_s=ready,
            await_s=await_s,
            ring_slot=NONE if self.slot is None else self.slot.number,
            polls=polls,
            blocked=blocked,
            reserved_blocks=self.reserved_blocks,
            captured=self.captured,
        )


class Launcher:
    """Puts steps on the model's default stream."""

    def __init__(self, model: Model, has_feed: bool) -> None:
        self._model, self._has_feed = model, has_feed

    def launch(
        self, ticket: Ticket, plan: StepPlan, slot: RingSlot | None, reserved: int
    ) -> Launched:
        """Enqueue a step. After an error nothing of it is in flight."""
        launch_s = perf_counter()
        forwarded = False
        stream = self._model.default_stream
        try:
            if slot is not None:
                stream.record(slot.start, takes_fault=False)
            logits = self._forward(plan)
            forwarded = True
            if slot is not None:
                stream.record(slot.end, takes_fault=False)
                self.pick(logits, plan.masks, plan.draws, slot)
        except BaseException:
            self.quiesce(slot)
            if forwarded and plan.fed:
                self._model.fed_step_settled()
            raise
        kept = logits if slot is None or plan.host_logits else None
        captured = bool(getattr(logits, "captured", False))
        return Launched(ticket, plan, slot, kept, captured, launch_s, perf_counter(), reserved)

    def pick(
        self, logits: Logits, masks: Sequence[RowMask], draws: Sequence[RowDraw], slot: RingSlot
    ) -> None:
        """Enqueue the choice of each row's id, its copy to the slot, and the slot's `ready`."""
        model = self._model
        view, event, stream = slot.view, slot.ready, model.default_stream
        if all(draw.temperature == 0 for draw in draws):
            model.argmax_batch_to_feed(logits, masks, view, event, stream)
        else:
            model.sample_batch_to_feed(logits, masks, draws, view, event, stream)

    def quiesce(self, slot: RingSlot | None) -> None:
        """Wait until the device has passed every event of the slot, whatever it raises."""
        for event in () if slot is None else slot.events:
            with suppress(Exception):
                self._model.event_synchronize(event)

    def _forward(self, plan: StepPlan) -> Logits:
        model = self._model
        if plan.fed:
            return model.decode_batch_fed(plan.sources, plan.seqs, model.default_stream)
        tokens = [one.token_id for one in plan.sources if isinstance(one, HostToken)]
        if self._has_feed:
            return model.decode_batch(tokens, plan.seqs, model.default_stream)
        return model.decode_batch(tokens, plan.seqs)
