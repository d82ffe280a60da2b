"""Every planted fault still fits the source (`make planted` sees that each is caught)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.planted.fault import DoesNotApply, check_applies
from tests.planted.faults import FAULTS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_a_planted_fault_applies(fault):
    check_applies(fault, ROOT)


def test_there_are_many_and_each_has_its_name():
    names = [fault.name for fault in FAULTS]
    assert len(set(names)) == len(names) >= 30


def test_a_fault_whose_source_changed_says_so():
    gone = FAULTS[0]._replace(old="this text is nowhere")
    with pytest.raises(DoesNotApply, match="0 times instead of once"):
        check_applies(gone, ROOT)
    with pytest.raises(DoesNotApply, match="not there"):
        check_applies(FAULTS[0]._replace(tests=("tests/nowhere.py",)), ROOT)
