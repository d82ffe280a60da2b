"""The face of the package: one engine, its requests, its tables and its pictures."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metrale_lab import registry
from metrale_lab.arguments import flag, instance, refusal, wait_s
from metrale_lab.assembly import Assembly, adapting, assemble, scheduler_settings
from metrale_lab.config import LabConfig
from metrale_lab.counting import counted
from metrale_lab.driving import Driven
from metrale_lab.engine import Model
from metrale_lab.engine.ending import Step, attempt_and_log
from metrale_lab.errors import EngineBusy, EngineStopped, InvalidConfig
from metrale_lab.progress import ProgressLine
from metrale_lab.prompts import prompt_ids
from metrale_lab.scheduler.core import Scheduler
from metrale_lab.scheduler.faults import Fault
from metrale_lab.scheduler.requests import Request, RequestResult, RequestSpec
from metrale_lab.scheduler.thread import EngineThread
from metrale_lab.trace.checker import Memory, check
from metrale_lab.trace.events import Observer, unobserved
from metrale_lab.trace.recorder import HISTORY_KEPT, Recorder
from metrale_lab.trace.state import ENDED_KEPT
from metrale_lab.watching import Watched

if TYPE_CHECKING:
    from metrale_lab.views.dashboard import Widgets

EVENTS_OF_A_REQUEST = 10  # or more: what a short record forgets, the state need not remember


class Lab(Driven, Watched):
    """A running inference engine and everything to see of it.

    Parameters
    ----------
    model : str, Path or Model
        "tiny" (a hybrid that tells short stories, shipped with the package), "smollm2" (downloaded
        once), a `.gguf` path, a Hugging Face folder, or a model that you built.
    config : LabConfig, optional
        Configuration; `overrides` replace single fields of it.

    Raises
    ------
    InvalidConfig, ModelNotFound, ModelFormatError, FetchFailed
        Nothing is left open.
    """

    def __init__(
        self,
        model: str | Path | Model = "tiny",
        config: LabConfig | None = None,
        **overrides: Any,
    ) -> None:
        given = LabConfig() if config is None else config
        settings = instance("config", given, LabConfig, InvalidConfig).with_overrides(overrides)
        self._refuse_shared(model)
        if os.environ.get("METRALE_DETERMINISTIC") == "1":
            settings = settings.with_overrides({"deterministic": True})
        cell, before = registry.take_over_cell()
        if before is not None:
            before.close(drain=False)
            print(f"closed {before!r}, which this cell had made before")
        self._settings = settings
        self._closed = self._submitted = False
        self._ticks_per_s: float | None = None
        self._laws: list[tuple[str, bool, str]] = []
        self._checked = Memory()
        self._started_utc = datetime.now(UTC).isoformat()
        parts = assemble(model, settings, self._observe)
        self.config = parts.config
        self.name = parts.config.name or parts.model_name
        self._model, self._tokenizer = parts.model, parts.tokenizer
        self._thread = self._start_engine(parts)
        registry.opened(self)
        registry.made_by_cell(cell, self)

    def _start_engine(self, parts: Assembly) -> EngineThread:
        emit = self._observer
        ends: list[Step] = [("tearing the model down", parts.model.teardown)]
        try:
            parts.model.bind_gpu_to_thread()
            for name, path in parts.config.adapters:
                adapting(parts.model).load_adapter(name, path)
            self._scheduler = Scheduler(
                parts.model,
                scheduler_settings(parts.config, parts.model_name),
                emit,
                parts.tokenizer,
            )
            ends.insert(0, ("closing the scheduler", self._scheduler.close))
            thread = EngineThread(self._scheduler)
            thread.start()
        except BaseException:
            attempt_and_log([("binding a thread", parts.model.bind_gpu_to_thread), *ends])
            raise
        return thread

    # --- requests

    def submit(
        self,
        prompt: str | Sequence[dict[str, str]] | None = None,
        *,
        token_ids: Sequence[int] | None = None,
        max_tokens: int = 64,
        min_tokens: int = 0,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int | None = None,
        stop: str | Sequence[str] = (),
        stop_token_ids: Sequence[int] = (),
        ignore_eos: bool = False,
        timeout: float | None = None,
        logprobs: int = 0,
        processors: Sequence[Callable[..., Any]] = (),
        adapter: str | None = None,
        priority: int = 0,
        chat: bool = False,
        name: str | None = None,
    ) -> Request:
        """Queue a request and return at once.

        Parameters
        ----------
        prompt : str or list of {"role", "content"}
            Text, or with `chat=True` messages (a string is one user message).
        token_ids : sequence of int
            The prompt as ids, instead of `prompt`.
        max_tokens, min_tokens : int
            Output tokens at most; and before which no stop ends the text.
        temperature, top_k, top_p, seed
            Sampling in this order, then one draw; temperature 0 takes the likeliest token. The
            same seed gives the same text whatever else is in the batch. None: from the lab's seed
            and the request's number.
        stop, stop_token_ids, ignore_eos
            What ends the text besides `max_tokens`; a stop string is never delivered.
        timeout : float
            Seconds from now.
        logprobs : int
            Alternatives whose log-probability is kept per token.
        processors : sequence of callables
            Each takes the output ids so far and the logits `[vocab]`, and returns logits.
        adapter : str
            Name of a loaded LoRA adapter; None: the base model.
        priority : int
            Larger is served first.
        name : str
            How pictures and tables call the request; None: by its number.

        Raises
        ------
        InvalidRequest, PromptTooLong, KvCacheExhausted, AdapterError, EngineStopped
            What can be refused at once is refused here, and nothing is queued.
        """
        self._require_open("submit")
        spec = self._spec(
            prompt,
            token_ids,
            chat,
            max_tokens=max_tokens,
            min_tokens=min_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            stop=stop,
            stop_token_ids=stop_token_ids,
            ignore_eos=ignore_eos,
            timeout=timeout,
            logprobs=logprobs,
            processors=processors,
            adapter=adapter,
            priority=priority,
            name=name,
        )
        self._submitted = True
        return self._thread.submit(spec)

    def generate(
        self,
        prompts: str | Iterable[str | Sequence[dict[str, str]]],
        *,
        progress: bool = True,
        chat: bool = False,
        **same: Any,
    ) -> list[RequestResult]:
        """Submit all prompts at once, each with the `same` arguments, and wait; results in order.

        An interrupt cancels this call's requests.
        """
        self._require_open("generate")
        flag("progress", progress)
        several = [prompts] if isinstance(prompts, str) else _several(prompts)
        specs = [self._spec(one, None, chat, **same) for one in several]
        self._submitted = True
        requests = self._thread.submit_all(specs)
        try:
            with ProgressLine(progress) as line:
                for number, request in enumerate(requests):
                    line.show(f"{self.name}: {number} of {counted(len(requests), 'request')} done")
                    request.result()
        except BaseException:
            for request in requests:
                request.cancel()
            raise
        return [request.result() for request in requests]

    def _spec(self, prompt: Any, token_ids: Any, chat: bool, **rest: Any) -> RequestSpec:
        return RequestSpec(token_ids=prompt_ids(self._tokenizer, prompt, token_ids, chat), **rest)

    def close(self, drain: bool = True, timeout: float | None = 30) -> None:
        """End the engine; tables, pictures, trace and check answer on. Idempotent.

        Parameters
        ----------
        drain : bool
            Let running requests finish (at most `timeout` seconds); else cancel them.
        """
        drain, timeout = flag("drain", drain), wait_s("timeout", timeout)
        if self._closed:
            return
        self._thread.refuse_inside_tick()
        self._closed = True
        try:
            self._thread.close(drain=drain, timeout=timeout, at_end=self._last_look)
        finally:
            registry.closed(self)
            if self._has_widgets:
                self.widgets.close()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        self.close(drain=kind is None)

    @cached_property
    def widgets(self) -> Widgets:
        """Live panels: `lab.widgets.block_map()`, `lab.widgets.dashboard()`, …"""
        from metrale_lab.views.dashboard import Widgets

        return Widgets(self)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "paused" if self._thread.paused else "running"
        parts = self.state().memory
        blocks = parts.get("kv_block", 0) * (self.config.num_blocks or 0)
        memory = (sum(parts.values()) - parts.get("kv_block", 0) + blocks) / 2**20
        return (
            f"<Lab {self.name!r} {state}, "
            f"{counted(self.config.num_blocks or 0, 'block')}, {memory:.0f} MiB>"
        )

    # --- inside

    def _refuse_shared(self, model: Any) -> None:
        """One engine per model: two would take each other's blocks."""
        for other in registry.open_labs():
            if isinstance(model, Model) and other._model is model:
                raise EngineBusy(f"this model runs in {other!r}. Close that lab, or build another.")

    def abandon(self) -> None:
        """Count as closed without waiting: in a forked process the engine's thread is gone."""
        self._closed = True
        self._thread.abandon()

    def _observe(self, num_blocks: int, block_size: int) -> Observer:
        kept = self._settings.record_events
        self.recorder = Recorder(
            num_blocks,
            block_size,
            kept,
            ended_kept=min(ENDED_KEPT, kept // EVENTS_OF_A_REQUEST),
            history_kept=min(HISTORY_KEPT, kept),
        )
        return self._observer

    @property
    def _observer(self) -> Observer:
        return self.recorder if self._settings.record else unobserved

    def _check_laws(self) -> list[tuple[str, bool, str]]:
        if not self._closed:
            with suppress(EngineStopped, EngineBusy):  # then the last look counts
                self._laws = self._thread.call(self._check_now)
        return self._laws

    def _made(self, request: Request) -> bool:
        return self._scheduler.made(request)

    def _engine_faults(self) -> list[Fault]:
        return self._thread.errors

    def _check_now(self) -> list[tuple[str, bool, str]]:
        laws = check(self._model, self._scheduler, self._checked)
        return [(one.law, one.holds, one.detail) for one in laws]

    def _last_look(self) -> None:
        self._laws = self._check_now()
        self.recorder.stop()  # what is torn down now is to be seen as it was


def _several(prompts: Any) -> list[Any]:
    if not isinstance(prompts, Iterable) or isinstance(prompts, bytes):
        raise refusal("prompts", prompts, "a prompt or several")
    return list(prompts)


def labs() -> list[Lab]:
    """The open labs, oldest first; each one's repr shows its memory."""
    return registry.open_labs()


def close_all() -> None:
    """Close every open lab without waiting for its requests."""
    registry.close_all()
