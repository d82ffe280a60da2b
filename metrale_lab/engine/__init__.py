"""The model traits and the types that cross their border."""

from metrale_lab.device.base import Event, PinnedMemory, PinnedView, Stream
from metrale_lab.engine.feed import (
    NO_ID,
    NO_MASK,
    FeedRow,
    FeedSource,
    HostToken,
    Logits,
    ModelDims,
    PrefixReclaim,
    RowDraw,
    RowMask,
)
from metrale_lab.engine.sequence import SequenceState
from metrale_lab.engine.traits import Model, ModelDeviceFeed, ModelForward, ModelLifecycle

__all__ = [
    "NO_ID",
    "NO_MASK",
    "Event",
    "FeedRow",
    "FeedSource",
    "HostToken",
    "Logits",
    "Model",
    "ModelDeviceFeed",
    "ModelDims",
    "ModelForward",
    "ModelLifecycle",
    "PinnedMemory",
    "PinnedView",
    "PrefixReclaim",
    "RowDraw",
    "RowMask",
    "SequenceState",
    "Stream",
]
