"""Faults of slots and snapshots: who owns which, and whose state it is."""

from __future__ import annotations

from tests.planted.fault import Fault

SLOTS = "metrale_lab/cache/slots.py"
INDEX = "metrale_lab/cache/snapshots.py"
STATES = "metrale_lab/engine/states.py"
FORWARD = "metrale_lab/engine/forward.py"
FOLD = "metrale_lab/trace/fold_slots.py"
OF_SLOTS = ("tests/cache/test_slots.py", "tests/cache/test_slots_machine.py")
OF_INDEX = ("tests/cache/test_snapshots.py", "tests/cache/test_snapshots_machine.py")
RUNS = ("tests/scheduler/test_hybrid_states.py",)
PREFIX = ("tests/engine/test_hybrid_prefix.py",)
TABLES = ("tests/trace/test_slot_tables.py",)

SLOT_FAULTS = (
    Fault(
        "a slot is released twice",
        SLOTS,
        "        if not self.holds(claim):\n            raise AssertionError(\n"
        '                f"slot {claim.slot} is not owned',
        "        if claim.sequence < -1:\n            raise AssertionError(\n"
        '                f"slot {claim.slot} is not owned',
        OF_SLOTS,
    ),
    Fault(
        "a guard that is dropped keeps its slot",
        SLOTS,
        "    def __del__(self) -> None:\n        self.release()\n",
        "    def __del__(self) -> None:\n        self.take()\n",
        OF_SLOTS,
    ),
    Fault(
        "a slot of a live sequence is moved onto",
        SLOTS,
        "if owner is not None and not is_retired(owner.sequence):",
        "if owner is not None and is_retired(owner.sequence) is None:",
        OF_SLOTS,
    ),
    Fault(
        "the old slot is free before the copy ran",
        SLOTS,
        "        try:\n            yield old.slot\n",
        "        self._free.append(old.slot)\n        try:\n            yield old.slot\n",
        OF_SLOTS,
    ),
    Fault(
        "a row that moved is still sent with its old slot",
        SLOTS,
        "        guard.take()\n        guard.migrate(target)\n        self._leave(old)\n",
        "        self._leave(target)\n",
        RUNS,
    ),
    Fault(
        "a copy that failed keeps its target",
        SLOTS,
        "            self._leave(target, retired)\n            raise\n",
        "            raise\n",
        OF_SLOTS,
    ),
    Fault(
        "a snapshot is found by its hash",
        INDEX,
        "if one.tokens == wanted)",
        "if hash(one.tokens) == hash(wanted))",
        OF_INDEX,
    ),
    Fault(
        "a snapshot of another adapter is found",
        INDEX,
        "shelf = self._shelves.get((adapter_id, depth))",
        "shelf = self._shelves.get((0, depth))",
        (*OF_INDEX, *RUNS),
    ),
    Fault(
        "a snapshot that a sequence holds gives its place away",
        INDEX,
        "if not one.holders), None)",
        "if one.holders >= 0), None)",
        OF_INDEX,
    ),
    Fault(
        "the snapshot used last is given up first",
        INDEX,
        "self._stored[snapshot.number] = self._stored.pop(snapshot.number)",
        "self._stored[snapshot.number] = snapshot",
        OF_INDEX,
    ),
    Fault(
        "a snapshot is found before its copy is enqueued",
        INDEX,
        "        self._reserved[place.number] = place\n        return place\n",
        "        self._reserved[place.number] = place\n"
        "        self._shelves.setdefault((adapter_id, len(tokens)), []).append(place)\n"
        "        return place\n",
        OF_INDEX,
    ),
    Fault(
        "the place of a copy that failed is lost",
        INDEX,
        "        self._end_reservation(place)\n        self._give_back(place)\n",
        "        self._end_reservation(place)\n",
        OF_INDEX,
    ),
    Fault(
        "the state of an over-run step is published",
        STATES,
        "        return ROLLING if depth == seq.rolling_tokens else None\n",
        "        return (seq.seq_len + 1) % 2\n",
        (*RUNS, *PREFIX),
    ),
    Fault(
        "the newest state is published for the boundary before it",
        STATES,
        "        return ROLLING if depth == seq.rolling_tokens else None\n",
        "        return seq.seq_len % 2\n",
        (*RUNS, *PREFIX),
    ),
    Fault(
        "a state is saved for a boundary that was not reached",
        FORWARD,
        "            if place is not None:\n                slot",
        "            if place is not None:\n"
        "                place.tokens = (*seq.tokens, *ids)[: depth + self.block_size]\n"
        "                slot",
        (*RUNS, *PREFIX),
    ),
    Fault(
        "a state is restored into the other buffer",
        STATES,
        "enqueue_restore(seq.snapshot, slot, depth % 2,",
        "enqueue_restore(seq.snapshot, slot, 1 - depth % 2,",
        (*RUNS, *PREFIX),
    ),
    Fault(
        "a hybrid goes on behind its snapshot",
        FORWARD,
        "            found = self._restore_state(seq, prompt[: match.tokens])\n",
        "            self._restore_state(seq, prompt[: match.tokens])\n",
        RUNS,
    ),
    Fault(
        "a copy that the device skipped is found",
        INDEX,
        "    written: bool = False",
        "    written: bool = True",
        PREFIX,
    ),
    Fault(
        "a prefill that failed leaves half of its state",
        STATES,
        'self._withdrawals(cuts), ("putting a state back", put_back)])',
        "self._withdrawals(cuts)])",
        PREFIX,
    ),
    Fault(
        "a restore that the device skipped is taken for done",
        STATES,
        "if not seq.first_state.ran and",
        "if False and",
        PREFIX,
    ),
    Fault(
        "a hold on a snapshot is never given back",
        "metrale_lab/engine/lifecycle.py",
        "partial(self._release_snapshot, seq)",
        'partial(setattr, seq, "snapshot", None)',
        RUNS,
    ),
    Fault(
        "a prefix that is computed again is written again",
        "metrale_lab/engine/prefill_step.py",
        "blocks = blocks.masked_fill(positions < write_from, net.pools.dummy_block)",
        "blocks = blocks.masked_fill(positions < 0, net.pools.dummy_block)",
        PREFIX,
    ),
    Fault(
        "a prefix that is computed again token by token is written again",
        "metrale_lab/engine/decode_step.py",
        "blocks = blocks.masked_fill(positions < write_from, net.pools.dummy_block)",
        "blocks = blocks.masked_fill(positions < 0, net.pools.dummy_block)",
        PREFIX,
    ),
    Fault(
        "a hybrid without a snapshot gives no reason",
        FORWARD,
        '        reason = "no_snapshot"\n',
        '        reason = ""\n',
        (*RUNS, *PREFIX),
    ),
    Fault(
        "the record forgets that a sequence moved",
        FOLD,
        "        owners[slot], owners[event.to_slot] = ev.NONE, whose\n",
        "        owners[slot] = ev.NONE\n",
        TABLES,
    ),
    Fault(
        "the record shows a snapshot at a node that is gone",
        FOLD,
        "one._replace(node=ev.NONE)",
        "one._replace(node=node)",
        TABLES,
    ),
    Fault(
        "the parity of a slot is that of the next step",
        "metrale_lab/trace/tables/slots.py",
        "view.seq_len % 2 if",
        "(view.seq_len + 1) % 2 if",
        (*TABLES, *RUNS),
    ),
)
