"""Compiled torch functions: loops and branches on values, inside one call that needs no GIL."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., Any])


def scripted(function: Function) -> Function:
    """Compile `function` with TorchScript.

    TorchScript is deprecated and still the one way to a loop inside a captured CPU step, so its
    warnings say nothing that a user could act on.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled: Function = torch.jit.script(function)
    return compiled
