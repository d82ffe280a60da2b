"""Every planted fault: kinds that users of other engines reported, and some of our own."""

from __future__ import annotations

from tests.planted.faults_adapters import ADAPTER_FAULTS
from tests.planted.faults_cache import CACHE_FAULTS
from tests.planted.faults_ending import ENDING_FAULTS
from tests.planted.faults_failures import FAILURE_FAULTS
from tests.planted.faults_hybrid import HYBRID_FAULTS
from tests.planted.faults_laws import LAW_FAULTS
from tests.planted.faults_model import MODEL_FAULTS
from tests.planted.faults_scheduler import SCHEDULER_FAULTS
from tests.planted.faults_slots import SLOT_FAULTS

FAULTS = (
    *CACHE_FAULTS,
    *SCHEDULER_FAULTS,
    *MODEL_FAULTS,
    *HYBRID_FAULTS,
    *ADAPTER_FAULTS,
    *SLOT_FAULTS,
    *ENDING_FAULTS,
    *FAILURE_FAULTS,
    *LAW_FAULTS,
)
