"""The model that comes with the package, and how it was made.

`train` makes `checkpoint/`, `train_adapters` makes `adapters/`; both need transformers, serving
does not.
"""

from __future__ import annotations

from pathlib import Path

CHECKPOINT = Path(__file__).parent / "checkpoint"
"""Folder of the model itself, as Hugging Face lays one out."""

ADAPTERS = Path(__file__).parent / "adapters"
"""Folder of its LoRA adapters, one PEFT folder for each of `themes.THEMES`."""
