"""Everything that drives a lab's engine: pause and step, pace, held blocks, cache, adapters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Self

from metrale_lab.assembly import adapting
from metrale_lab.engine import Model
from metrale_lab.errors import EngineRunning, EngineStopped
from metrale_lab.held import HeldBlocks
from metrale_lab.scheduler.core import Scheduler
from metrale_lab.scheduler.thread import EngineThread
from metrale_lab.trace.recorder import Recorder


class Driven:
    """The driving half of a `Lab`: it acts between two ticks, on the engine's thread.

    Whoever inherits sets `recorder`, the scheduler, the model, and the thread that runs them.
    """

    recorder: Recorder
    _model: Model
    _scheduler: Scheduler
    _thread: EngineThread
    _closed: bool
    _submitted: bool
    _ticks_per_s: float | None

    def pause(self, *, by: Literal["code", "panel"] = "code") -> None:
        """Pause after the current tick; a launched step stays in flight and visible.

        Waiting for requests raises `LabPaused` when it was code that paused.
        """
        self._require_open("pause")
        self._thread.pause(by)

    def resume(self) -> None:
        """Let a paused engine go on."""
        self._require_open("resume")
        self._thread.resume()

    def step(self, n: int = 1) -> int:
        """Run at most `n` ticks of a paused engine; the number run (fewer: nothing was left to do).

        Raises
        ------
        EngineRunning
            When the lab is not paused.
        """
        self._require_open("step")
        return self._thread.step(n)

    @contextmanager
    def paused(self) -> Iterator[Self]:
        """A `with` block during which the engine is paused; before, it may have been paused too."""
        was_paused = self._thread.paused
        self.pause()
        try:
            yield self
        finally:
            if not was_paused and not self._closed:
                self.resume()

    def run_until_idle(self, timeout: float | None = None) -> None:
        """Wait until no request is left; TimeoutError after `timeout` s, LabPaused if paused."""
        self._require_open("run_until_idle")
        self._thread.run_until_idle(timeout)

    def pace(self, ticks_per_s: float | None = None) -> None:
        """Slow motion: at most `ticks_per_s` ticks a second; None is full speed."""
        self._require_open("pace")
        self._ticks_per_s = self._thread.pace(ticks_per_s)

    def hold_blocks(self, k: int) -> HeldBlocks:
        """Keep exactly `k` blocks away from requests (0 gives all back), evicting if needed.

        As a context manager it restores the number that was held before.
        """
        self._require_open("hold_blocks")
        before = self._thread.call(lambda: self._scheduler.hold_blocks(k))
        return HeldBlocks(self.held_blocks, before, self._give_back)

    def drop_cache(self) -> None:
        """Empty the prefix cache. EngineBusy while requests run."""
        self._require_open("drop_cache")
        self._thread.call(self._scheduler.drop_cache)

    def load_adapter(self, name: str, path: str | Path) -> None:
        """Load a LoRA folder that PEFT saved, for `submit(adapter=name)`, while requests run.

        A name that is loaded already is replaced: requests that were admitted keep the old one,
        and nothing that it left in the prefix cache is found by the new one.

        Parameters
        ----------
        name : str
            What requests call it; not the folder's name.
        path : str or Path
            The folder with `adapter_config.json` and `adapter_model.safetensors`. Those that come
            with "tiny" are `metrale_lab.weights.tiny.ADAPTERS / "sea"`, "castle" and "space".

        Raises
        ------
        AdapterError
            Says what is missing, damaged or not offered; nothing has changed.
        """
        self._require_open("load_adapter")
        model = adapting(self._model)
        adapter = model.read_adapter(path)  # on this thread, while the engine goes on
        self._thread.call(lambda: model.install_adapter(name, adapter))

    def unload_adapter(self, name: str) -> None:
        """Offer an adapter to nobody any more; requests that were admitted keep it to their end.

        Raises
        ------
        AdapterError
            No such adapter is loaded.
        """
        self._require_open("unload_adapter")
        model = adapting(self._model)
        self._thread.call(lambda: model.unload_adapter(name))

    def reset(self) -> None:
        """Cancel everything, drop the cache, clear the record, count ids from 0.

        Weights and adapters stay.
        """
        self._require_open("reset")

        def work() -> None:
            self._scheduler.reset()
            self.recorder.clear()

        self._thread.call(work)
        self._submitted = False

    @property
    def paused_by(self) -> str:
        """Who paused the engine: "code", "panel", or ""."""
        return self._thread.paused_by

    @property
    def ticks_per_s(self) -> float | None:
        """The pace that was set, None at full speed."""
        return self._ticks_per_s

    @property
    def held_blocks(self) -> int:
        """Blocks kept away from requests by `hold_blocks`."""
        return self._scheduler.pool.held

    @property
    def model(self) -> Model:
        """The model itself; reading it binds the calling thread.

        Raises
        ------
        EngineRunning
            Requests were submitted and the lab is not paused.
        """
        self._require_open("model")
        if self._submitted and not self._thread.paused:
            raise EngineRunning("lab.model: the engine is running. Call lab.pause() first.")
        self._model.bind_gpu_to_thread()
        return self._model

    def _give_back(self, blocks: int) -> None:
        if not self._closed:
            self.hold_blocks(blocks)

    def _require_open(self, call: str) -> None:
        if self._closed:
            raise EngineStopped(f"lab.{call}: this lab was closed. Make a new Lab.")
