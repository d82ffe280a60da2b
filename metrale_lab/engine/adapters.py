"""LoRA adapters of a model: loaded into slots, bound to sequences, given back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from metrale_lab import arguments
from metrale_lab.engine.core import TransformerCore
from metrale_lab.engine.ending import attempt_and_log
from metrale_lab.engine.sequence import SequenceState
from metrale_lab.errors import AdapterError
from metrale_lab.trace.events import NONE, MemoryPart
from metrale_lab.weights.peft_folder import LoraAdapter, read_adapter


class TransformerAdapters(TransformerCore):
    """Serves rows of different adapters in one batch.

    A sequence is bound to its adapter when it is first used, and keeps that one whatever is loaded
    under the name later.
    """

    def load_adapter(self, name: str, path: str | Path) -> int:
        """Read a LoRA folder that PEFT saved and offer it under a name; its slot.

        A name that is loaded already is replaced: who uses the old one keeps it. AdapterError says
        what is wrong with the folder, and nothing has changed then.
        """
        return self.install_adapter(name, self.read_adapter(path))

    def read_adapter(self, path: str | Path) -> LoraAdapter:
        """Read a LoRA folder for this model; any thread, changes nothing."""
        return read_adapter(arguments.path("path", path, AdapterError), self.spec)

    def install_adapter(self, name: str, adapter: LoraAdapter) -> int:
        """Offer what `read_adapter` returned under a name; its slot.

        AdapterError when it is none, or of another model. DeviceFault when the device fails; an
        adapter that lay there unused is gone then.
        """
        self._enter()
        if not arguments.text("name", name, AdapterError):
            raise arguments.refusal("name", name, "a text that is not empty", AdapterError)
        self.steps.adapters.check(adapter)
        slot = self.adapters.choose(name)
        self._make_room_for(adapter, self.adapters.grown(slot))
        try:
            self._do(lambda: self.steps.adapters.write(slot, adapter))
        except BaseException:
            self.adapters.clear(slot)  # half of it may have been written
            raise
        self.adapters.load(slot, name, adapter.rank, adapter.nbytes)
        return slot

    def unload_adapter(self, name: str) -> None:
        """Offer the adapter to nobody any more; its slot is free once its last user ended.

        Once no slot holds an adapter the pools go, and steps are captured without them again.
        """
        self._enter()
        self._tidy(self.adapters.unload(name))

    def activate_adapter(self, name: str | None) -> None:
        """Let `adapter_slot` -1 stand for an adapter, None: for the base model."""
        self._enter()
        self.adapters.activate(name)

    def acquire_adapter(self, name: str) -> int:
        """Hold the adapter that a name stands for now; its slot, for `release_adapter`."""
        self._enter()
        return self.adapters.acquire(self.adapters.find(name).slot)

    def release_adapter(self, slot: int) -> None:
        """Give back what `acquire_adapter` returned."""
        self._enter()
        slot = arguments.integer("slot", slot, NONE, len(self.adapters.slots) - 1)
        if self.adapters.release(slot):
            self._tidy(slot)

    @property
    def adapter_writes(self) -> Mapping[int, int]:
        """How often each adapter slot's memory was written; nothing after `teardown`."""
        return {} if self._steps is None else self._steps.adapters.writes

    def _bind_adapter(self, seq: SequenceState) -> None:
        """Resolve the sequence's adapter, once."""
        if not seq.adapter_bound:
            slot = self._checked_slot(seq.adapter_slot)
            identity = self.adapters.identity(slot)
            seq.acquired_adapter_slot = self.adapters.acquire(slot, seq.id)
            seq.adapter_id, seq.adapter_bound = identity, True

    def _unbind_adapter(self, seq: SequenceState) -> None:
        slot = seq.acquired_adapter_slot
        is_free = self.adapters.release(slot, seq.id)
        seq.acquired_adapter_slot, seq.adapter_id, seq.adapter_bound = NONE, 0, False
        if is_free:
            self._tidy(slot)

    def _checked_slot(self, slot: int) -> int:
        """The slot, if it is -1 or holds an adapter. InvalidRequest or AdapterError otherwise."""
        slot = arguments.integer("adapter_slot", slot, NONE, len(self.adapters.slots) - 1)
        if slot != NONE and self.adapters.resolve(slot) == NONE:
            raise AdapterError(
                f"adapter_slot={slot}: this slot holds no adapter. "
                "Use the slot that load_adapter() returned, or -1."
            )
        return slot

    def _make_room_for(self, adapter: LoraAdapter, slots: int) -> None:
        """Let the pools hold the adapter."""
        if not self.steps.adapters.fits(adapter, slots):
            self._replace_pools(self.steps.adapters.grow(adapter, slots))

    def _replace_pools(self, replace: Callable[[], None], takes_fault: bool = True) -> None:
        """Change the tensors that captured steps read, so the captures go."""
        try:
            self._do(replace, takes_fault)
        finally:  # a failure does not say whether they were changed
            self.steps.graphs.drop_captures()
            self._emit(MemoryPart("adapters", self.steps.adapters.nbytes))

    def _tidy(self, slot: int) -> None:
        """The slot may have become free: the pools go with the last adapter.

        What asked for it has succeeded already, so a failure is only logged: the pools stay until
        the next time. A failure of work before is told to whom it belongs.
        """
        if not self.adapters.any_held:
            clear = partial(self._replace_pools, self.steps.adapters.clear, takes_fault=False)
            attempt_and_log([("giving the memory of adapters back", clear)])
        elif self.settings.poison and self.adapters.resolve(slot) == NONE:
            poison = partial(self.steps.adapters.poison, slot)
            enqueue = partial(self._last_stream.enqueue, poison)
            attempt_and_log([("poisoning an adapter's slot", enqueue)])

    def _do(self, work: Callable[[], None], takes_fault: bool = True) -> None:
        """Run work behind everything that was launched, and wait for it."""
        event = self.device.create_event()
        try:
            self._last_stream.enqueue(work)
            self._last_stream.record(event, takes_fault=takes_fault)
            event.synchronize()
        finally:
            event.destroy()
