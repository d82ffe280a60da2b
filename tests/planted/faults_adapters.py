"""Faults of adapters: keys, generations, slots, leases, and what is added to whose row."""

from __future__ import annotations

from tests.planted.fault import Fault

SLOTS = "metrale_lab/cache/adapters.py"
MODEL, POOLS = "metrale_lab/engine/adapters.py", "metrale_lab/engine/lora_pools.py"
LIFECYCLE, FORWARD = "metrale_lab/engine/lifecycle.py", "metrale_lab/engine/forward.py"
DECODE, PREFILL = "metrale_lab/engine/decode_step.py", "metrale_lab/engine/prefill_step.py"
LOW_RANK = "metrale_lab/ops/low_rank.py"
LAYER, ADMISSION = "metrale_lab/layers/lora.py", "metrale_lab/scheduler/admission.py"
LEASES, RETIRE = "metrale_lab/scheduler/leases.py", "metrale_lab/scheduler/retire.py"
CONFIG, FOLDER = "metrale_lab/weights/peft_config.py", "metrale_lab/weights/peft_folder.py"
CHECK = "metrale_lab/trace/checker/adapters.py"

CACHED = ("tests/cache/test_adapter_slots.py", "tests/cache/test_adapter_slots_machine.py")
SERVED = ("tests/scheduler/test_adapters.py",)
ORACLE = ("tests/engine/test_adapters.py",)
FORMS = ("tests/ops/test_low_rank.py",)
READ = ("tests/weights/test_peft_folder.py",)

ADAPTER_FAULTS = (
    Fault(
        "a reload keeps its generation's identity",
        SLOTS,
        "        self._loads += 1\n",
        "        self._loads += name not in self._generations\n",
        CACHED,
    ),
    Fault(
        "an adapter's generation is not counted up",
        SLOTS,
        "self._generations.get(name, 0) + 1",
        "1",
        CACHED,
    ),
    Fault(
        "the identity of an adapter is its slot",
        SLOTS,
        "return 0 if resolved == NONE else self.slots[resolved].identity",
        "return resolved + 1",
        ORACLE,
    ),
    Fault(
        "a name is reloaded into its slot under its users",
        SLOTS,
        "if one.name == name and not one.users]",
        'if one.name == name and one.state == "loaded"]',
        SERVED,
    ),
    Fault(
        "a replaced adapter stays loaded beside the new one",
        SLOTS,
        "            if other.name == name and other is not one"
        ' and other.state == "loaded":\n                self._leave(other)\n',
        "            del other\n",
        CACHED,
    ),
    Fault(
        "a drained slot is never free again",
        SLOTS,
        '        if one.state == "draining" and not one.users:\n',
        '        if one.state == "drained" and not one.users:\n',
        CACHED,
    ),
    Fault(
        "an unloaded adapter is emptied under its users",
        SLOTS,
        "        if one.users:\n            one.state",
        "        if one.users < 0:\n            one.state",
        CACHED,
    ),
    Fault(
        "the active adapter stays where it was when its name is reloaded",
        SLOTS,
        "        if was_active:\n            self.active = slot\n",
        "",
        CACHED,
    ),
    Fault(
        "an unloaded adapter is still found by name",
        SLOTS,
        '            if one.state == "loaded" and one.name == name:',
        "            if one.name == name:",
        CACHED,
    ),
    Fault(
        "a sequence releases the slot that it asked for, not the one that it got",
        MODEL,
        "        slot = seq.acquired_adapter_slot\n",
        "        slot = seq.adapter_slot\n",
        ORACLE,
    ),
    Fault(
        "a sequence resolves its adapter at each use",
        MODEL,
        "        if not seq.adapter_bound:\n",
        "        if True:\n",
        ORACLE,
    ),
    Fault(
        "a sequence's adapter is not in its key",
        MODEL,
        "seq.adapter_id, seq.adapter_bound = identity, True",
        "seq.adapter_bound = True",
        SERVED,
    ),
    Fault(
        "a freed sequence keeps its adapter",
        LIFECYCLE,
        "partial(self._unbind_adapter, seq)",
        'partial(setattr, seq, "acquired_adapter_slot", -1)',
        SERVED,
    ),
    Fault(
        "a failed first use keeps its adapter",
        FORWARD,
        "if before.adapter_bound != seq.adapter_bound:",
        "if False:",
        ORACLE,
    ),
    Fault(
        "a grown pool is read by the old captures",
        MODEL,
        "        self.steps.graphs.drop_captures()\n",
        "",
        ORACLE,
    ),
    Fault(
        "a grown pool forgets what was loaded",
        POOLS,
        "                    _copy(old, new_layer[product])\n",
        "                    assert new_layer[product] is not old\n",
        ORACLE,
    ),
    Fault(
        "a larger rank leaves the parts of a joined product where they were",
        POOLS,
        "    low[:entries, :, :, : old.rank] = old.a.view(entries, width_in, -1, old.rank)\n",
        "    assert low is not None\n    new.a[:entries, :, : old.a.shape[2]] = old.a\n",
        ORACLE,
    ),
    Fault(
        "a smaller adapter leaves the rest of a larger one in its slot",
        POOLS,
        "[torch.zeros(one.shape[1:]) for one in pool.b]\n",
        "[one[entry].clone() for one in pool.b]\n",
        ORACLE,
    ),
    Fault(
        "an adapter is written one entry too low",
        POOLS,
        "        entry = entry_of(slot)\n",
        "        entry = slot\n",
        ORACLE,
    ),
    Fault(
        "the first row of a step gets the last one's adapter",
        DECODE,
        '            staging["adapters"][rows:] = NO_ADAPTER\n',
        '            staging["adapters"][rows:] = NO_ADAPTER\n'
        '            staging["adapters"][0] = entry_of(seqs[-1].acquired_adapter_slot)\n',
        SERVED,
    ),
    Fault(
        "all rows of a step get the first one's adapter",
        DECODE,
        "[entry_of(seq.acquired_adapter_slot) for seq in seqs]",
        "entry_of(seqs[0].acquired_adapter_slot)",
        SERVED,
    ),
    Fault(
        "a step's adapters are named by what was asked for",
        DECODE,
        "[entry_of(seq.acquired_adapter_slot) for seq in seqs]",
        "[entry_of(seq.adapter_slot) for seq in seqs]",
        ORACLE,
    ),
    Fault(
        "a prompt is computed without its adapter",
        PREFILL,
        "entry_of(seq.acquired_adapter_slot)",
        "NO_ADAPTER",
        SERVED,
    ),
    Fault(
        "one row of the base model takes the adapters from all rows",
        LOW_RANK,
        "entries.max()",
        "entries.min()",
        FORMS,
    ),
    Fault(
        "each row reads the second factors of the first row's adapter",
        LOW_RANK,
        "    cells = (first * rank +",
        "    cells = (first[0] * rank + 0 * first +",
        FORMS,
    ),
    Fault(
        "each part of a joined product gets the change of its first one",
        LOW_RANK,
        "        _weighted_sums(low[:, part * rank : (part + 1) * rank], one,",
        "        _weighted_sums(low[:, 0 * part : rank], one,",
        FORMS,
    ),
    Fault(
        "a gathered row reads the entry after its own",
        LOW_RANK,
        "@ a[entries]  #",
        "@ a[entries - 1]  #",
        FORMS,
    ),
    Fault(
        "the last adapter of a joined product is left out",
        LAYER,
        '    "qkv": ("q", "k", "v", "q_gate"),\n',
        '    "qkv": ("q", "k", "q_gate"),\n',
        ORACLE,
    ),
    Fault(
        "an adapter's scale is alpha over rank whatever it asks for",
        CONFIG,
        "return alpha / math.sqrt(rank) if self.use_rslora else alpha / rank",
        "return alpha / rank",
        READ,
    ),
    Fault(
        "ranks by pattern are read and not used",
        CONFIG,
        "self.rank_pattern.get(_pattern_for(self.rank_pattern, module), self.rank)",
        "self.rank",
        READ,
    ),
    Fault(
        "the layers to transform are read and not used",
        CONFIG,
        "return _fits(self.targets, module) and self._in_layers(module)",
        "return _fits(self.targets, module)",
        READ,
    ),
    Fault(
        "an adapter with values that are not finite is taken",
        FOLDER,
        "        if not bool(tensor.isfinite().all()):\n",
        "        if bool(tensor.isnan().all()):\n",
        READ,
    ),
    Fault(
        "an adapter's superfluous tensors are not looked at",
        FOLDER,
        "    tensors.refuse_others(wanted)\n",
        "",
        READ,
    ),
    Fault(
        "admission makes room as for the base model",
        ADMISSION,
        "reclaim_prefix_blocks_for(prompt, slot, needed + owed)",
        "reclaim_prefix_blocks_for(prompt, -1, needed + owed)",
        SERVED,
    ),
    Fault(
        "a request whose adapter went waits for ever",
        ADMISSION,
        "                self._fail(row, error)\n                continue\n",
        "                assert error\n                return None\n",
        SERVED,
    ),
    Fault(
        "a resumed request takes what its adapter's name stands for then",
        LEASES,
        "        if row.spec.adapter is not None and row.adapter_slot == NONE:\n",
        "        if row.spec.adapter is not None:\n",
        SERVED,
    ),
    Fault(
        "a request has no lease while it is parked",
        LEASES,
        "            row.adapter_slot = self._model.acquire_adapter(row.spec.adapter)\n",
        "            row.adapter_slot = self._find(row.spec.adapter).slot\n",
        SERVED,
    ),
    Fault(
        "an ended request keeps its lease",
        RETIRE,
        "            self._giving_back.lease(row)\n",
        "",
        SERVED,
    ),
    Fault(
        "a failed request keeps its lease",
        RETIRE,
        "            self._giving_back.lease(row)\n",
        "            if row.error is None:\n                self._giving_back.lease(row)\n",
        SERVED,
    ),
    Fault(
        "a cancelled request gives its lease back twice",
        LEASES,
        "            self._model.release_adapter(row.adapter_slot)\n",
        "            self._model.release_adapter(row.adapter_slot)\n"
        '            if row.finish_reason == "cancelled":\n'
        "                self._model.release_adapter(row.adapter_slot)\n",
        SERVED,
    ),
    Fault(
        "the law of adapter slots forgets the leases",
        CHECK,
        "    users.update(lease.slot for lease in world.leases.values())\n",
        "",
        SERVED,
    ),
    Fault(
        "an adapter of another model is written as far as it fits",
        POOLS,
        "            if changed != there:\n",
        "            if there is None:\n",
        ORACLE,
    ),
)
