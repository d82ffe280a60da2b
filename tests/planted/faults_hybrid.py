"""Faults of linear layers and of the slots that hold their state."""

from __future__ import annotations

from tests.planted.fault import Fault

MEMORY = "metrale_lab/layers/memory.py"
POOLS = "metrale_lab/engine/state_pools.py"
NAMES = "metrale_lab/weights/folder_names.py"
SLOTS = ("tests/engine/test_hybrid_slots.py",)
ORACLE = ("tests/engine/test_hybrid_oracle.py",)
LINEAR = ("tests/ops/test_linear.py",)

HYBRID_FAULTS = (
    Fault(
        "a step writes the state that it reads",
        MEMORY,
        "self._read, self._write = first + parity, first + (1 - parity)",
        "self._read, self._write = first + parity, first + parity",
        (*SLOTS, *ORACLE),
    ),
    Fault(
        "a prompt goes on from the state of an even length",
        MEMORY,
        "read = first + start % 2",
        "read = first + start % 1",
        ORACLE,
    ),
    Fault(
        "a new tenant starts from the old slot's state",
        POOLS,
        "                side[:, slot, 0] = 0\n",
        "                side[:, slot, 1] = 0\n",
        SLOTS,
    ),
    Fault(
        "a move leaves the state of odd lengths behind",
        POOLS,
        "                side[:, new_slot] = side[:, slot]\n",
        "                side[:, new_slot, 0] = side[:, slot, 0]\n",
        SLOTS,
    ),
    Fault(
        "a snapshot keeps the state of one layer",
        "metrale_lab/engine/snapshots.py",
        "                kept[:, number] = pool[:, slot, buffer]\n",
        "                kept[0, number] = pool[0, slot, buffer]\n",
        ("tests/scheduler/test_hybrid_states.py",),
    ),
    Fault(
        "a place that left the cache keeps its state",
        "metrale_lab/engine/core.py",
        "            self.steps.snapshots.enqueue_end(place, self._last_stream)\n",
        "            pass\n",
        ("tests/harness/test_poison.py",),
    ),
    Fault(
        "a restored state gets its layers in the wrong order",
        "metrale_lab/engine/snapshots.py",
        "                pool[:, slot, buffer] = kept[:, number]\n",
        "                pool[:, slot, buffer] = kept[:, number].flip(0)\n",
        ("tests/scheduler/test_hybrid_states.py",),
    ),
    Fault(
        "padding rows write the slots of an older batch",
        "metrale_lab/engine/decode_step.py",
        '            staging["slots"][rows:] = self._network.states.dummy_slot\n',
        "",
        ("tests/scheduler/test_hybrids.py",),
    ),
    Fault(
        "a capture leaves a state in the slot of padding rows",
        "metrale_lab/engine/prefill_step.py",
        'self.inputs.tensor("count").fill_(3)',
        'self.inputs.tensor("count").fill_(2)',
        SLOTS,
    ),
    Fault(
        "the window keeps the oldest input and not the newest",
        "metrale_lab/ops/conv.py",
        "inputs[:, :, 1:].to(pool.dtype)",
        "inputs[:, :, : pool.size(2)].to(pool.dtype)",
        LINEAR,
    ),
    Fault(
        "a chunk does not forget what stood before it",
        "metrale_lab/ops/delta.py",
        "state = state * last.exp().unsqueeze(-1) + ",
        "state = state + ",
        LINEAR,
    ),
    Fault(
        "norms around zero are taken for norms around one",
        NAMES,
        "lambda tensor: 1.0 + tensor.float()",
        "lambda tensor: tensor.float()",
        ORACLE,
    ),
    Fault(
        "queries and their gates change places",
        NAMES,
        'int(part == "q_gate")',
        'int(part == "q")',
        ORACLE,
    ),
    Fault(
        "room is made for a request that no slot is free for",
        "metrale_lab/scheduler/admission.py",
        "        if self._model.num_free_slots() == 0:\n",
        "        if self._model.num_free_slots() == -1:\n",
        ("tests/scheduler/test_hybrids.py",),
    ),
    Fault(
        "a chunk of a state space does not forget what stood before it",
        "metrale_lab/ops/state_space.py",
        "state = state * last.exp().unsqueeze(-1) + ",
        "state = state + ",
        LINEAR,
    ),
    Fault(
        "the multipliers of a file are not folded into its weights",
        NAMES,
        "stored(tensor).float() * factor",
        "stored(tensor).float() * 1.0",
        ORACLE,
    ),
    Fault(
        "a tied head keeps the factor of the embedding",
        "metrale_lab/weights/folder_granite.py",
        "(embedding if tied else 1.0)",
        "(1.0 if tied else 1.0)",
        ORACLE,
    ),
    Fault(
        "gates of a model are taken for what they gate",
        NAMES,
        'half = slice(shape[0]) if part == "gate"',
        'half = slice(shape[0]) if part == "up"',
        ORACLE,
    ),
)
