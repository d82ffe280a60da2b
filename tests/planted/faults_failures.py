"""Faults of what happens when something else fails."""

from __future__ import annotations

from tests.planted.fault import Fault

CALLS = ("tests/faults/test_calls.py",)
DECODE = "metrale_lab/scheduler/decode_lane.py"
INPUTS = "metrale_lab/engine/step_inputs.py"
WORK = ("tests/faults/test_device_work.py",)

FAILURE_FAULTS = (
    Fault(
        "a failing poll ends every request",
        "metrale_lab/scheduler/prefill_lane.py",
        "        try:\n            self._model.poll_innerq()\n            with",
        "        self._model.poll_innerq()\n        try:\n            with",
        CALLS,
    ),
    Fault(
        "a launch ahead that fails takes its rows with it",
        DECODE,
        '                self._faults.add("launch ahead", error)\n',
        '                self._fail(flight.rows, "launch ahead", error)\n',
        CALLS,
    ),
    Fault(
        "a rollback that fails ends every request",
        DECODE,
        '            self._faults.add("rolling back a step", error)\n',
        "            raise error\n",
        CALLS,
    ),
    Fault(
        "a device fault fails the next prompt too",
        DECODE,
        '        self.drop_all()\n        self._fail(flight.rows, "decode step", error)\n',
        '        self.drop_all()\n        self._fail(self._rows.live, "decode step", error)\n',
        WORK,
    ),
    Fault(
        "an upload that cannot be launched loses its host copy",
        INPUTS,
        "            self._stagings.appendleft(staging)\n            raise\n",
        "            raise\n",
        CALLS,
    ),
    Fault(
        "a step that cannot be built keeps the others' staging memory",
        "metrale_lab/engine/core.py",
        "            made.callback(steps.close)\n",
        "",
        ("tests/faults/test_building.py",),
    ),
)
