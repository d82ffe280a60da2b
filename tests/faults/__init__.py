"""Something fails: those concerned are told once, everybody else gets the right tokens."""

import pytest

pytest.register_assert_rewrite("tests.faults.injection")
