"""Where requests come in, from any thread, until the next tick takes them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from time import perf_counter

from metrale_lab.engine import Model
from metrale_lab.errors import EngineStopped
from metrale_lab.scheduler.commit import Tokenizer
from metrale_lab.scheduler.leases import AdapterLeases
from metrale_lab.scheduler.requests import Request, RequestSpec
from metrale_lab.scheduler.rows import Row
from metrale_lab.scheduler.sampling import derive_seed
from metrale_lab.scheduler.settings import SchedulerSettings
from metrale_lab.scheduler.text import TextStream
from metrale_lab.trace.events import Observer, RequestSubmitted


class Inbox:
    """Checks requests, numbers them from 0, and keeps them in order.

    Attributes
    ----------
    rows : list of Row
        What no tick has taken yet.
    """

    def __init__(
        self,
        model: Model,
        settings: SchedulerSettings,
        tokenizer: Tokenizer | None,
        leases: AdapterLeases,
        emit: Observer,
    ) -> None:
        self._leases = leases
        self._model, self._tokenizer, self._emit = model, tokenizer, emit
        self._seed = settings.seed
        self._max_seq_len = min(settings.max_seq_len, model.max_seq_len)
        self._eos_ids = frozenset() if tokenizer is None else frozenset(tokenizer.eos_ids)
        self._lock = threading.Lock()
        self._next_id = 0
        self._closed = False
        self.rows: list[Row] = []

    def put(
        self,
        specs: Sequence[RequestSpec],
        wake_engine: Callable[[], None],
        check_wait: Callable[[], None],
    ) -> list[Request]:
        """Queue requests so that no tick sees only some of them; all or none.

        Raises
        ------
        InvalidRequest, PromptTooLong, KvCacheExhausted, AdapterError, EngineStopped
        """
        for spec in specs:
            self._check(spec)
        with self._lock:
            if self._closed:
                raise EngineStopped("this engine was closed. Open another lab.")
            requests = [
                Request(number, spec, wake_engine, check_wait)
                for number, spec in enumerate(specs, self._next_id)
            ]
            rows = [self._row(request) for request in requests]
            self._next_id += len(rows)  # of what can no longer be refused
            for row in rows:
                self._announce(row)
            self.rows.extend(rows)
        wake_engine()
        return requests

    def take(self) -> list[Row]:
        """What came since the last time."""
        with self._lock:
            fresh, self.rows = self.rows, []
        return fresh

    def close(self) -> None:
        """From now on `put` raises `EngineStopped`."""
        with self._lock:
            self._closed = True

    def reset(self) -> None:
        """Number requests from 0 again."""
        with self._lock:
            self._next_id = 0

    def _check(self, spec: RequestSpec) -> None:
        model = self._model
        self._leases.check(spec.adapter)
        blocks = model.num_total_blocks()
        spec.check_fits(model.vocab_size, self._max_seq_len, model.block_size, blocks)

    def _row(self, request: Request) -> Row:
        now, spec = perf_counter(), request.spec
        detokenizer = None if self._tokenizer is None else self._tokenizer.detokenizer()
        eos = frozenset() if spec.ignore_eos else self._eos_ids
        return Row(
            request=request,
            spec=spec,
            limit=min(spec.max_tokens, self._max_seq_len - len(spec.token_ids)),
            stop_ids=eos | frozenset(spec.stop_token_ids),
            seed=derive_seed(self._seed, request.id) if spec.seed is None else spec.seed,
            text=TextStream(detokenizer, spec.stop),
            arrived_s=now,
            deadline_s=None if spec.timeout is None else now + spec.timeout,
            history=list(spec.token_ids),
        )

    def _announce(self, row: Row) -> None:
        spec = row.spec
        self._emit(
            RequestSubmitted(
                row.id,
                spec.name or "",
                spec.priority,
                len(spec.token_ids),
                spec.max_tokens,
                spec.adapter or "",
                row.arrived_s,
            )
        )
