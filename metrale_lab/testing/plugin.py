"""The pytest plugin: labs as fixtures.

Loading it imports neither torch nor pandas. `@pytest.mark.metrale(num_blocks=8)` on a test sets
the options of the lab that it gets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from metrale_lab.lab import Lab


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers", "metrale(**options): options of the lab that the test's fixture makes"
    )


@pytest.fixture
def metrale_scripted(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A `scripted_lab`, closed after the test."""
    from metrale_lab.testing.scripted import scripted_lab

    with scripted_lab(**_options(request)) as lab:
        yield lab


@pytest.fixture
def metrale_lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A `Lab`, closed after the test; the option `model` names another model than the default."""
    from metrale_lab.lab import Lab

    with Lab(**_options(request)) as lab:
        yield lab


def _options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Options of all markers of the test; the nearest wins."""
    options: dict[str, Any] = {}
    for marker in request.node.iter_markers("metrale"):
        options = {**marker.kwargs, **options}
    return options
