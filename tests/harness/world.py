"""One scheduler over a made-up model, driven a tick at a time, with the laws after each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from metrale_lab.scheduler.core import Scheduler
from metrale_lab.scheduler.requests import Request, RequestResult, RequestSpec
from metrale_lab.scheduler.settings import SchedulerSettings
from metrale_lab.testing import LetterTokenizer, Oracle, ScriptedDevice, scripted_model
from metrale_lab.testing.adapters import by_name
from metrale_lab.trace import events as ev
from metrale_lab.trace.checker import Memory, check
from tests.harness.contents import Contents
from tests.harness.live_states import LiveStates

E = TypeVar("E")
STALLED_TICKS = 3


class World:
    """A model, its scheduler, everything they said, and the oracle that knows better.

    Keyword arguments are divided between the scheduler's settings, the model and the tokenizer.
    """

    def __init__(
        self,
        router: str = "async",
        device: ScriptedDevice | None = None,
        eos: frozenset[int] = frozenset(),
        tokenizer: bool = True,
        biased: dict[int, float] | None = None,
        admit_watermark: int | None = None,
        max_prefill_tokens: int = 0,
        seed: int = 0,
        deterministic: bool = False,
        adapters: tuple[str, ...] | dict[str, str] = (),
        **model: Any,
    ) -> None:
        self.events: list[ev.Event] = []
        self.served: dict[int, set[tuple[str, int]]] = {}  # adapters and generations by request
        self._request_of: dict[int, int] = {}  # by sequence
        self.overheard: list[str] = []  # violations seen inside a tick, where none may raise
        self.device = device or ScriptedDevice()
        self.model = scripted_model(
            self.device, self._hear, eos_ids=eos, biased=biased, adapters=adapters, **model
        )
        settings = SchedulerSettings(
            router=router,  # type: ignore[arg-type]
            max_batch=self.model.settings.max_batch,
            max_seq_len=self.model.max_seq_len,
            admit_watermark=admit_watermark,
            max_prefill_tokens=max_prefill_tokens,
            seed=seed,
            deterministic=deterministic,
        )
        self.tokenizer = LetterTokenizer(eos) if tokenizer else None
        self.scheduler = Scheduler(self.model, settings, self._hear, self.tokenizer)
        self._oracle_options: dict[str, Any] = {
            "vocab_size": self.model.vocab_size,
            "max_seq_len": self.model.max_seq_len,
            "eos_ids": eos if tokenizer else (),
            "biased": biased,
            "lab_seed": seed,
            "hybrid": self.model.holds_state,
        }
        self.oracle = Oracle(**self._oracle_options)
        self.requests: list[Request] = []
        self.folders = {(name, 1): path for name, path in by_name(adapters).items()}
        self.checked = Memory()
        self.contents = Contents(self.model, self.folders)
        self.states = LiveStates(self.model, self.scheduler.router)

    # --- doing

    def submit(self, *token_ids: int, **arguments: Any) -> Request:
        arguments.setdefault("max_tokens", 8)
        request = self.scheduler.submit(RequestSpec(token_ids=token_ids, **arguments))
        self.requests.append(request)
        return request

    def load_adapter(self, name: str, path: str) -> None:
        """Load or replace an adapter, whatever runs."""
        slot = self.model.load_adapter(name, path)
        self.folders[name, self.model.adapters.slots[slot].generation] = path
        self.check()

    def tick(self, count: int = 1) -> bool:
        """Run ticks, with the laws after each; False once idle."""
        ran = True
        for _ in range(count):
            ran = self.scheduler.tick()
            self.check()
        return ran

    def run(self, max_ticks: int = 2000, before: Callable[[int], None] | None = None) -> None:
        """Tick until idle; a scheduler that stalls or does not end is an error."""
        stalled = 0
        for number in range(max_ticks):
            if before is not None:
                before(number)
            if not self.tick():
                return
            stalled = stalled + 1 if self.scheduler.stalled else 0
            assert stalled < STALLED_TICKS, f"nothing moves: {self.scheduler.rows.live}"
        raise AssertionError(f"not idle after {max_ticks} ticks: {self.scheduler.rows.live}")

    def finish(self) -> list[RequestResult]:
        """Run to the end; every output is the oracle's and nothing is left; the results."""
        self.run()
        results = [request.result(0) for request in self.requests]
        for result in results:
            self.compare(result)
        self.check_promises()
        self.check_empty()
        return results

    # --- looking

    def told(self, kind: type[E]) -> list[E]:
        """The events of a kind, in order."""
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def counters(self) -> Any:
        return self.scheduler.router.counters

    @property
    def discarded(self) -> list[ev.TokenEvent]:
        return [one for one in self.told(ev.TokenEvent) if one.outcome == "discarded"]

    # --- laws

    def compare(self, result: RequestResult) -> None:
        """Delivered tokens are a prefix of the oracle's, and all of them unless cut short."""
        spec = self.scheduler_spec(result)
        oracle = self.oracle if spec.adapter is None else self._oracle_of(result.request_id)
        tokens, reason = oracle.generate(spec, result.request_id)
        got = result.token_ids
        assert got == tokens[: len(got)], (result, tokens)
        if result.finish_reason in ("stop", "length") and not spec.stop:
            assert (got, result.finish_reason) == (tokens, reason), (result, tokens, reason)

    def _oracle_of(self, request_id: int) -> Oracle:
        """The oracle with the adapter that the request was bound to, the same at each attempt."""
        bound = self.served.get(request_id, set())
        assert len(bound) < 2, f"request {request_id} ran with {bound}"
        name, generation = next(iter(bound), ("", 0))
        loaded = {name: self.folders[name, generation]} if bound else dict.fromkeys("abc", "")
        return Oracle(**self._oracle_options, adapters=loaded)

    def scheduler_spec(self, result: RequestResult) -> RequestSpec:
        return next(one.spec for one in self.requests if one.id == result.request_id)

    def check(self) -> None:
        """Blocks, references, tables and lists agree."""
        model, rows = self.model, self.scheduler.rows
        owners = Counter(b for seq in model.sequences.values() for b in seq.block_table)
        owners.update(node.block for node in model.tree.nodes.values()) if model.tree else None
        owners.update(model.allocator.held)
        free = model.pool.free_list()
        assert len(set(free)) == len(free) == model.pool.free
        for block in range(model.pool.total):
            assert model.pool.ref_count(block) == owners[block], f"block {block}"
            assert (block in free) == (owners[block] == 0), f"block {block}"
        for seq in model.sequences.values():
            assert len(seq.tokens) == seq.seq_len
            assert -(-seq.seq_len // model.block_size) <= len(seq.block_table)
        placed = [row.sequence.id for row in rows.placed]
        assert sorted(placed) == sorted(model.sequences)
        assert len(placed) <= self.scheduler.settings.max_batch
        in_lists = rows.active + rows.prefilling + rows.parked + rows.waiting
        assert len(set(map(id, in_lists))) == len(in_lists)
        broken = [law for law in check(self.model, self.scheduler, self.checked) if not law.holds]
        assert not broken, broken
        assert not self.overheard, self.overheard
        self.contents.check()
        self.states.check()

    def _hear(self, event: ev.Event) -> None:
        self.events.append(event)
        if isinstance(event, ev.SequenceBound):
            self._request_of[event.sequence] = event.request_id
        if isinstance(event, ev.AdapterEvent) and event.sequence in self._request_of:
            bound = self.served.setdefault(self._request_of[event.sequence], set())
            bound.add((event.name, event.generation))
        if isinstance(event, ev.TokenEvent) and event.outcome == "discarded":
            self._check_rolled_back(event.request_id)

    def _check_rolled_back(self, request_id: int) -> None:
        """A row whose step was discarded keeps no block for a position that it did not reach."""
        for row in self.scheduler.rows.live:
            if row.id == request_id and row.seq is not None:
                needed = -(-row.seq.seq_len // self.model.block_size)
                if len(row.seq.block_table) != needed:
                    self.overheard.append(f"request {row.id} keeps a reserved block")

    def check_promises(self) -> None:
        """What a reclaim did not make room for because it was cached, was then reused."""
        pinned: dict[int, int] = {}  # blocks by request, of its latest reclaim
        matched = {one.sequence: one.matched_tokens for one in self.told(ev.PrefixLookup)}
        asking = ev.NONE
        for event in self.events:
            if isinstance(event, ev.ReclaimStarted):
                asking = event.request_id
            elif isinstance(event, ev.ReclaimFinished) and asking != ev.NONE:
                pinned[asking], asking = event.pinned_blocks, ev.NONE
            elif isinstance(event, ev.RequestAdmitted):
                promised = pinned.get(event.request_id, 0) * self.model.block_size
                assert matched[event.sequence] >= promised, (
                    f"{event}: {promised} tokens were counted on"
                )

    def check_empty(self) -> None:
        """Idle and with the cache dropped nothing is held; closed, nothing lives on the device."""
        assert self.scheduler.idle
        assert not self.model.sequences
        assert all(not one.users and one.state != "draining" for one in self.model.adapters.slots)
        self.model.default_stream.synchronize()
        self.contents.check()
        self.scheduler.drop_cache()
        assert self.model.num_free_blocks() == self.model.num_total_blocks()
        assert self.model.slots.free == self.model.slots.total
        assert self.model.snapshots.free == self.model.snapshots.total
        self.scheduler.close()
        self.model.teardown()
        assert self.device.live_events == 0
        assert self.device.live_pinned_bytes == 0
        ends = Counter(one.request_id for one in self.told(ev.RequestFinished))
        assert ends == Counter(request.id for request in self.requests)
        launched = [one.ticket for one in self.told(ev.StepLaunched)]
        assert launched == [one.ticket for one in self.told(ev.StepSettled)]
