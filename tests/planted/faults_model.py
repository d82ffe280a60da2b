"""Faults of device buffers, of arithmetic, of weights and of the record."""

from __future__ import annotations

from tests.planted.fault import Fault

ARGMAX = "metrale_lab/ops/argmax.py"
DECODE_STEP = "metrale_lab/engine/decode_step.py"
PICK_STEP = "metrale_lab/engine/pick_step.py"
ATTENTION = "metrale_lab/ops/attention.py"
COMPILED = ("tests/kernels/test_kernels.py::test_kernels_compile_for_gpus",)
PIPELINE = ("tests/scheduler/test_pipeline.py",)
FOLD = ("tests/trace/test_fold_engine.py", "tests/trace/test_fold_pool.py")

MODEL_FAULTS = (
    Fault(
        "padding rows write the blocks of an older batch",
        DECODE_STEP,
        '            staging["tables"][:] = self._network.pools.dummy_block\n',
        "",
        PIPELINE,
    ),
    Fault(
        "a shorter row keeps the table of a longer one",
        DECODE_STEP,
        '            staging["tables"][:] = self._network.pools.dummy_block\n',
        '            staging["tables"][rows:] = self._network.pools.dummy_block\n',
        ("tests/harness/test_device_laws.py",),
    ),
    Fault(
        "a prompt's table keeps entries of an older prompt",
        "metrale_lab/engine/prefill_step.py",
        '            staging["table"][len(table) :] = self._network.pools.dummy_block\n',
        "",
        ("tests/harness/test_device_laws.py",),
    ),
    Fault(
        "a staging buffer is filled again before its copy ran",
        "metrale_lab/engine/step_inputs.py",
        "if self._stagings and self._stagings[0].event.query():",
        "if self._stagings:",
        ("tests/engine/test_feed.py", "tests/harness/test_device_laws.py"),
    ),
    Fault(
        "scores are overwritten before their owner read them",
        "metrale_lab/engine/logits.py",
        "            current.move_out()\n",
        "            pass\n",
        ("tests/engine/test_feed.py", "tests/engine/test_same_result_every_way.py"),
    ),
    Fault(
        "masks do not reach the device",
        PICK_STEP,
        'staging["masks"][:rows], staging["masks"][rows:] = masks, NO_ID',
        'staging["masks"][:rows], staging["masks"][rows:] = NO_ID, NO_ID',
        PIPELINE,
    ),
    Fault(
        "a prompt's pick writes the cell of a row in flight",
        PICK_STEP,
        "first = self.rows if of_prompt else 0",
        "first = 0",
        ("tests/engine/test_feed.py",),
    ),
    Fault(
        "a capture goes while its step is in flight",
        "metrale_lab/engine/graphs.py",
        "victim = next((key for key in self._steps if key not in pinned), None)",
        "victim = next(iter(self._steps), None)",
        ("tests/engine/test_graphs.py",),
    ),
    Fault(
        "a fresh block still holds its old owner's values",
        "metrale_lab/engine/kv_pools.py",
        "                side[:, block] = value\n",
        "                side[:, [block]].fill(value)\n",
        ("tests/engine/test_same_result_every_way.py",),
    ),
    Fault(
        "a captured step reads the tables of its capture",
        "metrale_lab/engine/runner.py",
        "captured.append(self._device.capture(step.function, step.buffers, step.outputs))",
        "captured.append(self._device.capture(step.function, [one.clone() if one.dim() == 2 "
        "and not one.is_floating_point() else one for one in step.buffers], step.outputs))",
        ("tests/engine/test_same_result_every_way.py",),
    ),
    Fault(
        "a prompt that is cached whole shares all of its blocks",
        "metrale_lab/engine/forward.py",
        "limit = len(prompt) - 1 if needs_logits else len(prompt)",
        "limit = len(prompt)",
        ("tests/engine/test_whole_prompt_cached.py",),
    ),
    Fault(
        "a fresh block is emptied in one layer",
        "metrale_lab/engine/kv_pools.py",
        "                side[:, block] = value\n",
        "                side[0, block] = value\n",
        ("tests/harness/test_poison.py",),
    ),
    Fault(
        "a freed block keeps what its owner wrote",
        "metrale_lab/engine/core.py",
        "            self.steps.pools.enqueue_end(block, self._last_stream)\n",
        "            pass\n",
        ("tests/harness/test_poison.py",),
    ),
    Fault(
        "a freed block is poisoned before the step in flight read it",
        "metrale_lab/engine/kv_pools.py",
        "        if self._poison:\n            stream.enqueue(self._filling(block))\n",
        "        if self._poison:\n            self._filling(block)()\n",
        ("tests/harness/test_poison.py",),
    ),
    Fault(
        "two live sequences get one slot",
        "metrale_lab/cache/slots.py",
        "        claim = Claim(self, self._free.pop(), sequence)\n",
        "        claim = Claim(self, self._free[-1], sequence)\n",
        ("tests/engine/test_lifecycle.py",),
    ),
    Fault(
        "the last of equal scores wins",
        ARGMAX,
        "    best, ids = logits.max(1)\n",
        "    best, ids = logits.flip(1).max(1)\n    ids = logits.size(1) - 1 - ids\n",
        ("tests/ops/test_argmax.py",),
    ),
    Fault(
        "NaN wins",
        ARGMAX,
        "sound = torch.isfinite(best) & (",
        "sound = ~torch.isinf(best) & (",
        ("tests/ops/test_argmax.py",),
    ),
    Fault(
        "a masked id wins",
        ARGMAX,
        "sound = torch.isfinite(best) & (ids.unsqueeze(1) != masks).all(1)",
        "sound = torch.isfinite(best)",
        ("tests/ops/test_argmax.py",),
    ),
    Fault(
        "cells past the length are read and weighed with zero",
        ATTENTION,
        "read = torch.where(inside, positions, torch.zeros_like(positions))",
        "read = torch.where(inside, positions, positions)",
        ("tests/ops/test_attention.py",),
    ),
    Fault(
        "a query sees the token after it",
        ATTENTION,
        "hidden = positions > query_positions[seen_from:]",
        "hidden = positions > query_positions[seen_from:] + 1",
        ("tests/ops/test_attention.py",),
    ),
    Fault(
        "cell numbers of 32 bits",
        ATTENTION,
        "block_table.gather(1, positions // block_size).to(torch.int64)",
        "block_table.gather(1, positions // block_size).to(torch.int32)",
        ("tests/ops/test_attention.py",),
    ),
    Fault(
        "tables of 32 bits on the device",
        DECODE_STEP,
        '"tables": Part("int64", ',
        '"tables": Part("int32", ',
        ("tests/engine/test_wide_indices.py",),
    ),
    Fault(
        "cell x width in 32 bits",
        "kernels/metrale_kernels/write_kv.py",
        "tl.load(slots + token).to(tl.int64) * width",
        "tl.load(slots + token).to(tl.int32) * width",
        COMPILED,
    ),
    Fault(
        "block x block size in 32 bits",
        "kernels/metrale_kernels/paged_decode_attention.py",
        "tl.load(block_table + row * table_stride + index).to(tl.int64)",
        "tl.load(block_table + row * table_stride + index).to(tl.int32)",
        COMPILED,
    ),
    Fault(
        "row x vocabulary in 32 bits",
        "kernels/metrale_kernels/masked_argmax.py",
        "row = tl.program_id(0).to(tl.int64)",
        "row = tl.program_id(0)",
        COMPILED,
    ),
    Fault(
        "a record that cannot be folded reaches the engine",
        "metrale_lab/trace/fold.py",
        "        except Exception as error:",
        "        except ArithmeticError as error:",
        ("tests/test_watchers_fail.py",),
    ),
    Fault(
        "a failing panel ends the pump of all labs",
        "metrale_lab/views/pump.py",
        "            except BaseException as error:",
        "            except ArithmeticError as error:",
        ("tests/test_watchers_fail.py",),
    ),
    Fault(
        "rope scaling is read and not used",
        "metrale_lab/weights/rope.py",
        "        return _llama3(1.0 / periods, scaling), 1.0\n",
        "        return 1.0 / periods, 1.0\n",
        ("tests/weights/test_rope_frequencies.py",),
    ),
    Fault(
        "keys of a GGUF file are un-permuted by the number of query heads",
        "metrale_lab/weights/gguf_model.py",
        "return half_split(tensor, spec.num_kv_heads)",
        "return half_split(tensor, spec.num_q_heads)",
        ("tests/weights/test_canonical_tensors.py",),
    ),
    Fault(
        "the record drops a holder",
        "metrale_lab/trace/fold_blocks.py",
        "    one.holders.append(event.sequence)\n",
        "",
        FOLD,
    ),
    Fault(
        "a sequence is told closed before its blocks came back",
        "metrale_lab/engine/lifecycle.py",
        '                ("giving a slot back", seq.slot.release),\n',
        '                ("closing", partial(self._emit, SequenceClosed(seq.id))),\n'
        '                ("giving a slot back", seq.slot.release),\n',
        FOLD,
    ),
    Fault(
        "a block is told released before it was",
        "metrale_lab/cache/pool.py",
        '        freed = self._drop(block, holder, cause)\n        self._report("free" if freed',
        '        freed = self._ref_counts[block] == 1\n        self._report("free" if freed',
        ("tests/cache/test_pool.py",),
    ),
    Fault(
        "a recorder waits for the device",
        "metrale_lab/scheduler/router.py",
        "        plan = launched.plan\n        self._emit(\n",
        "        plan = launched.plan\n"
        '        if getattr(self._emit, "__name__", "") != "unobserved":\n'
        "            self._model.default_stream.synchronize()\n"
        "        self._emit(\n",
        ("tests/trace/test_watching_changes_nothing.py",),
    ),
    Fault(
        "pinned memory outlives its router",
        "metrale_lab/scheduler/ring.py",
        "partial(model.free_host_pinned, memory)",
        "partial(int)",
        ("tests/scheduler/test_routers.py",),
    ),
    Fault(
        "events outlive their router",
        "metrale_lab/scheduler/ring.py",
        "partial(model.destroy_event, event)",
        "partial(int)",
        ("tests/scheduler/test_routers.py",),
    ),
)
