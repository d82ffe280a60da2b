"""A transformer behind the three traits."""

from __future__ import annotations

from metrale_lab.engine.feeding import TransformerFeed
from metrale_lab.engine.forward import TransformerForward
from metrale_lab.engine.lifecycle import TransformerLifecycle
from metrale_lab.engine.traits import Model


class TransformerModel(TransformerLifecycle, TransformerFeed, TransformerForward, Model):
    """A dense model or hybrid with a paged KV cache; made by `build_model`."""
