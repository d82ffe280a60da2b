from __future__ import annotations

import os
from pathlib import Path

import pytest

from metrale_lab.errors import FetchFailed
from metrale_lab.weights.fetch import fetch


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The SmolLM2 file, fetched when it is not there; without a network the test is skipped."""
    try:
        return fetch("smollm2")
    except FetchFailed as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))
