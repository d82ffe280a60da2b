"""Makes a model of the engine from a loaded one."""

from __future__ import annotations

from metrale_lab.device.base import Device
from metrale_lab.engine.model import TransformerModel
from metrale_lab.engine.settings import EngineSettings
from metrale_lab.trace.events import Observer, unobserved
from metrale_lab.weights import LoadedModel


def build_model(
    loaded: LoadedModel, settings: EngineSettings, device: Device, emit: Observer = unobserved
) -> TransformerModel:
    """Put the weights onto the device and make pools, buffers and bookkeeping.

    Every thread that uses the model calls `bind_gpu_to_thread` first, the calling one too.
    """
    device.bind_thread()
    return TransformerModel(loaded, settings, device, emit)
