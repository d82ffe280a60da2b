"""Faults that harm nobody yet, and that the laws see; and laws that no longer look."""

from __future__ import annotations

from tests.planted.fault import Fault

DECODE = "metrale_lab/engine/decode_step.py"
PREFILL = "metrale_lab/engine/prefill_step.py"
COMPARE = "metrale_lab/trace/checker/compare.py"
MEMORY = "metrale_lab/trace/checker/memory.py"
SENT = ("tests/trace/test_checker_sent.py",)
HISTORY = ("tests/trace/test_checker_history.py",)

LAW_FAULTS = (
    Fault(
        "padding rows of a dense model sit in a real slot",
        DECODE,
        '            staging["slots"][rows:] = self._network.states.dummy_slot\n',
        '            staging["slots"][rows:] = 0\n',
        SENT,
    ),
    Fault(
        "a step is told that nothing of its rows is shared",
        DECODE,
        '[seq.cached_prefix_tokens for seq in seqs]\n            staging["write_from"][rows:]',
        '[0 for seq in seqs]\n            staging["write_from"][rows:]',
        ("tests/scheduler/test_exact_cases.py",),
    ),
    Fault(
        "a prompt of a dense model is told another slot",
        PREFILL,
        "seq.cached_prefix_tokens, seq.slot_idx\n",
        "seq.cached_prefix_tokens, 1\n",
        SENT,
    ),
    Fault(
        "an adapter is poisoned when it is unloaded, whoever uses it",
        "metrale_lab/engine/adapters.py",
        "elif self.settings.poison and self.adapters.resolve(slot) == NONE:",
        "elif self.settings.poison:",
        ("tests/scheduler/test_adapters.py",),
    ),
    Fault(
        "a history that is found again is a hit too",
        "metrale_lab/cache/tree.py",
        "            self.resumes += 1\n        elif path:\n",
        "            self.resumes += 1\n        if path:\n",
        ("tests/scheduler/test_preemption.py",),
    ),
    Fault(
        "a sequence does not say for which request it was made",
        "metrale_lab/scheduler/admission.py",
        "        row.seq.request_id = row.id\n",
        "",
        HISTORY,
    ),
    Fault(
        "a token without a text is output",
        "metrale_lab/scheduler/commit.py",
        '        piece = "" if stops else row.text.push(token_id, may_stop)\n',
        "        row.outputs.append(token_id)\n"
        '        piece = "" if stops else row.text.push(token_id, may_stop)\n'
        "        row.outputs.pop()\n",
        ("tests/scheduler/test_ending.py",),
    ),
    Fault(
        "the laws read the table that was meant instead of the one that was sent",
        COMPARE,
        "        own = row.seq.block_table[: len(sent)]\n",
        "        own = sent\n",
        SENT,
    ),
    Fault(
        "the laws skip a row that was sent another position",
        COMPARE,
        "if flying and row.start != row.position:\n",
        "if flying and row.start != row.position:\n            continue\n",
        SENT,
    ),
    Fault(
        "a check forgets the tables that it saw",
        MEMORY,
        "self.counters, self.tables = world.counters, world.tables",
        "self.counters, self.tables = world.counters, {}",
        HISTORY,
    ),
)
