"""The whole scheduler under anything in any order: laws after each tick, the oracle at the end."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from metrale_lab.errors import AdapterError, DeviceFault, KvCacheExhausted
from metrale_lab.trace import events as ev
from tests.harness import ScriptedDevice, World

happened: Counter[str] = Counter()
prompts = st.builds(
    lambda shared, own: (*range(shared), *own),
    st.sampled_from([0, 3, 8, 12]),
    st.lists(st.integers(20, 40), min_size=1, max_size=8),
)


class SchedulerMachine(RuleBasedStateMachine):
    hybrid = False

    @initialize(
        router=st.sampled_from(["sync", "async", "async"]),
        completion=st.sampled_from(["at_once", "lag", "newest_first"]),
        num_blocks=st.integers(6, 11),
        watermark=st.sampled_from([0, 0, 3, None]),
        chunk=st.sampled_from([0, 5]),
        cache=st.sampled_from([True, True, False]),
        states=st.fixed_dictionaries(
            {
                "ssm_slots": st.sampled_from([2, 3, 5]),
                "snapshot_slots": st.sampled_from([0, 1, 4, 16, 16]),
            }
        ),
    )
    def build(self, router, completion, num_blocks, watermark, chunk, cache, states):
        states["hybrid"] = self.hybrid
        self.world = World(
            router,
            device=ScriptedDevice(completion),
            eos=frozenset({7}),
            num_blocks=num_blocks,
            block_size=4,
            max_batch=3,
            admit_watermark=watermark,
            max_prefill_tokens=chunk,
            prefix_cache=cache,
            max_seq_len=64,
            adapters=("a",),
            **states,
        )

    @rule(
        prompt=prompts,
        max_tokens=st.integers(1, 14),
        temperature=st.sampled_from([0.0, 0.0, 0.8]),
        priority=st.sampled_from([0, 0, 0, 1, -1]),
        min_tokens=st.sampled_from([0, 0, 1]),
        stops=st.sampled_from([(), (), (11, 12, 13), tuple(range(0, 60, 6)), tuple(range(30))]),
        logprobs=st.sampled_from([0, 0, 0, 0, 2]),
        adapter=st.sampled_from([None, "a"]),
        change=st.sampled_from(["", "", "load", "unload"]),
    )
    def submit(self, prompt, max_tokens, change, **arguments):
        self.change_adapter(change, f"folder {len(self.world.requests) % 3}")
        arguments["stop_token_ids"] = arguments.pop("stops")
        self.submit_to_world(prompt, max_tokens=max_tokens, **arguments)

    @rule(start=st.integers(0, 60), ticks=st.integers(1, 9))
    def crowd(self, start, ticks):
        """Rows that outgrow the pool together, some that stop, and an adapter that changes."""
        self.change_adapter("load", "folder 0")
        for number in range(4):
            stops, adapter = range(number % 2, 64, 9) if number else (), (None, "a")[number % 2]
            prompt, ends = [(start + number) % 64] * 5, tuple(stops)
            self.submit_to_world(prompt, max_tokens=14, stop_token_ids=ends, adapter=adapter)
        self.world.tick(ticks)
        self.change_adapter("load", f"folder {ticks % 3}")

    def submit_to_world(self, prompt, **arguments):
        try:
            self.world.submit(*prompt, **arguments)
        except KvCacheExhausted:
            happened["refused"] += 1
        except AdapterError:
            assert arguments["adapter"] not in self.world.model.adapters.names
            happened["not loaded"] += 1

    def change_adapter(self, change, path):
        slots = self.world.model.adapters
        if change == "load":
            happened["replaced under users"] += any(one.users for one in slots.slots)
            try:
                self.world.load_adapter("a", path)
            except DeviceFault:
                happened["load failed"] += 1
        # A fault that hits the poison of a free slot is nobody's: the teardown would tell it.
        if change == "unload" and slots.names and self.world.device.fail_in is None:
            self.world.model.unload_adapter("a")
            self.world.check()

    @rule(folder=st.integers(0, 2))
    def load(self, folder):
        self.change_adapter("load", f"folder {folder}")

    @rule(data=st.data(), more=st.integers(1, 5))
    def go_on(self, data, more):
        """The next prompt is what a request was asked and answered, and some tokens more."""
        ended = [one for one in self.world.requests if one.done() and len(one.token_ids) > 1]
        if ended:
            one = data.draw(st.sampled_from(ended))
            history = (*one.spec.token_ids, *one.token_ids)[:40]
            prompt = (*history, *range(50, 50 + more))
            self.submit_to_world(prompt, max_tokens=4, adapter=one.spec.adapter)

    @rule(count=st.integers(1, 6))
    def tick(self, count):
        self.world.tick(count)

    @rule(data=st.data())
    def cancel(self, data):
        if self.world.requests:
            data.draw(st.sampled_from(self.world.requests)).cancel()

    @rule(data=st.data())
    def time_is_over(self, data):
        rows = self.world.scheduler.rows.live
        if rows:
            data.draw(st.sampled_from(rows)).deadline_s = 0.0

    @rule(blocks=st.integers(0, 4))
    def hold(self, blocks):
        try:
            self.world.scheduler.hold_blocks(blocks)
        except KvCacheExhausted:
            happened["hold refused"] += 1

    @rule(after=st.integers(1, 12))
    def fault(self, after):
        self.world.device.fail_in = after

    def teardown(self):
        world = self.world
        world.scheduler.hold_blocks(0)
        world.run()
        world.device.fail_in = None
        with suppress(DeviceFault):  # of work that nobody waits for
            world.model.default_stream.synchronize()
        world.finish()
        happened["ahead"] += world.counters.ahead_launches
        happened["discarded"] += len(world.discarded)
        happened["rolled back"] += world.counters.rolled_back_blocks
        happened["preempted"] += len(world.told(ev.Preempted))
        bound = world.told(ev.AdapterEvent)
        happened["adapted"] += sum(one.kind == "acquire" for one in bound)
        happened["drained"] += sum(one.kind == "drain" for one in bound)
        happened["slots moved"] += self.moves()
        kinds = Counter(one.kind for one in world.told(ev.SnapshotEvent))
        happened.update({f"snapshot {kind}": count for kind, count in kinds.items()})
        happened["faults"] += len(world.told(ev.EngineFault))
        happened["evicted"] += sum(tick.evicted_blocks for tick in world.told(ev.TickEnded))
        happened["reused"] += sum(one.reused_tokens for one in world.told(ev.PrefixLookup))

    def moves(self):
        return sum(one.kind == "compact" for one in self.world.told(ev.SlotEvent))


class HybridMachine(SchedulerMachine):
    hybrid = True


STRESSED = ("ahead", "discarded", "rolled back", "preempted", "faults", "evicted", "slots moved")
STRESSED += ("adapted", "drained", "replaced under users", "not loaded")
OF_DENSE = ("reused",)
OF_HYBRIDS = ("snapshot save", "snapshot restore", "snapshot evict")


@pytest.mark.parametrize(
    ("machine", "stressed"), [(SchedulerMachine, OF_DENSE), (HybridMachine, OF_HYBRIDS)]
)
def test_anything_in_any_order(machine, stressed):
    happened.clear()
    machine.TestCase.settings = settings(stateful_step_count=25)
    machine.TestCase().runTest()
    assert all(happened[one] for one in (*STRESSED, *stressed)), happened
