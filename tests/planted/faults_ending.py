"""Faults of calls that fail half-way, and of giving things back."""

from __future__ import annotations

from tests.planted.fault import Fault

ENDING = "metrale_lab/engine/ending.py"
FORWARD = "metrale_lab/engine/forward.py"
STATES = "metrale_lab/engine/states.py"
ADMISSION = "metrale_lab/scheduler/admission.py"
ALONE = ("tests/scheduler/test_alone.py",)
LIFECYCLE = "metrale_lab/engine/lifecycle.py"
ENDS = ("tests/engine/test_ending.py",)
CALLS = ("tests/engine/test_calls_that_fail.py",)

ENDING_FAULTS = (
    Fault(
        "giving back stops at the first failure",
        ENDING,
        "            failures.append((name, error))\n",
        "            failures.append((name, error))\n            break\n",
        CALLS,
    ),
    Fault(
        "what could not be given back is forgotten",
        ENDING,
        "        give_back(item)\n        held.remove(item)\n",
        "        held.remove(item)\n        give_back(item)\n",
        CALLS,
    ),
    Fault(
        "a prompt that fails after its launch keeps the places of its snapshots",
        STATES,
        "attempt_and_log([*self._withdrawals(cuts), (",
        "attempt_and_log([(",
        CALLS,
    ),
    Fault(
        "a prompt that fails after its launch has been processed",
        FORWARD,
        "        del seq.tokens[before.tokens :]\n        seq.seq_len = before.seq_len\n",
        "",
        CALLS,
    ),
    Fault(
        "a host copy whose upload failed is lost",
        "metrale_lab/engine/step_inputs.py",
        "            self._stagings.appendleft(staging)\n",
        "",
        CALLS,
    ),
    Fault(
        "a lookup that fails half-way keeps some blocks",
        "metrale_lab/cache/allocator.py",
        "            for block in taken:\n",
        "            for block in taken[1:]:\n",
        ("tests/cache/test_allocator.py",),
    ),
    Fault(
        "a sequence takes memory for all that it may become",
        LIFECYCLE,
        "        return self._open()\n\n    def cache_sequence",
        "        seq = self._open()\n"
        "        seq.proposer_state = bytearray(min(budget_tokens, 2**20))\n"
        "        return seq\n\n    def cache_sequence",
        ("tests/engine/test_budget.py",),
    ),
    Fault(
        "what an ended row had reserved is in flight for ever",
        "metrale_lab/scheduler/routers.py",
        " in self._unlaunched.items() if not seq.freed}",
        " in self._unlaunched.items()}",
        ALONE,
    ),
    Fault(
        "scores that could not be moved out are taken for moved",
        "metrale_lab/engine/logits.py",
        "                own = torch.empty_like(source)\n",
        "                own = self._own = torch.empty_like(source)\n",
        CALLS,
    ),
    Fault(
        "nobody is told of a slot that is held at the end",
        LIFECYCLE,
        '                    ("emptying the slots", self.slots.reset),\n',
        "",
        ENDS,
    ),
    Fault(
        "a model is torn down from below",
        LIFECYCLE,
        '                    ("emptying the snapshots", self.snapshots.drop),\n',
        '                    ("closing the stream", self._stream.close),\n'
        '                    ("emptying the snapshots", self.snapshots.drop),\n',
        ENDS,
    ),
    Fault(
        "a ring that cannot be freed keeps the other one",
        "metrale_lab/scheduler/router.py",
        '        attempt_each(("freeing a ring", ring.close) for ring in rings)\n',
        "        for ring in rings:\n            ring.close()\n",
        ENDS,
    ),
    Fault(
        "the rings go before the rows",
        "metrale_lab/scheduler/core.py",
        'steps.insert(0, ("cancelling',
        'steps.insert(1, ("cancelling',
        ("tests/scheduler/test_closing_order.py",),
    ),
    Fault(
        "an event is made on any thread",
        FORWARD,
        "        self._enter()\n        return self.device.create_event()\n",
        "        return self.device.create_event()\n",
        ("tests/engine/test_bound_threads.py",),
    ),
    Fault(
        "a scheduler uses the model before its thread is bound",
        "metrale_lab/scheduler/core.py",
        "        model.bind_gpu_to_thread()  # before the router makes its events\n",
        "",
        ("tests/engine/test_bound_threads.py",),
    ),
    Fault(
        "an admission that raises is everybody's end",
        ADMISSION,
        "            except Exception as error:\n                self._fail(row, error)\n",
        "            except AdapterError as error:\n                self._fail(row, error)\n",
        ALONE,
    ),
    Fault(
        "a resume without room that raises is everybody's end",
        ADMISSION,
        "            return self._has_room_again(row)\n        except Exception as error:",
        "            return self._has_room_again(row)\n        except AdapterError as error:",
        ALONE,
    ),
    Fault(
        "nothing happens after a resume that ended its request",
        ADMISSION,
        "changed |= resumed or row.finished",
        "changed |= resumed",
        ALONE,
    ),
    Fault(
        "what could not be given back at its end is given up",
        "metrale_lab/scheduler/giving_back.py",
        "        if self.attempt(where, work):\n            self._left.remove(work)\n",
        "        self.attempt(where, work)\n        self._left.remove(work)\n",
        ("tests/scheduler/test_giving_back.py",),
    ),
    Fault(
        "a lease that could not be ended is forgotten",
        "metrale_lab/scheduler/leases.py",
        "            self._model.release_adapter(row.adapter_slot)\n"
        "            row.adapter_slot = NONE\n",
        "            slot, row.adapter_slot = row.adapter_slot, NONE\n"
        "            self._model.release_adapter(slot)\n",
        ("tests/scheduler/test_giving_back.py",),
    ),
)
