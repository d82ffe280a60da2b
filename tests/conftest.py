"""For all tests: readable assertions of the harness, and how many examples hypothesis tries.

State machines take the profile's number of examples each: eight machines try 2,400 in the profile
"ci" and 100,000 in "nightly". Without `--hypothesis-profile` it is the small "dev".
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("tests.harness")

_SAME = {"deadline": None, "suppress_health_check": list(HealthCheck)}
settings.register_profile("dev", max_examples=100, derandomize=True, **_SAME)
settings.register_profile("ci", max_examples=300, derandomize=True, **_SAME)
settings.register_profile("nightly", max_examples=12_500, print_blob=True, **_SAME)
settings.load_profile("dev")
