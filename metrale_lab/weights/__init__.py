"""Models from files: GGUF and Hugging Face folders, with tokenizer and chat template."""

from metrale_lab.weights.fetch import cached_path, resolve_model
from metrale_lab.weights.load import LoadedModel, load_model
from metrale_lab.weights.rope import rope_frequencies
from metrale_lab.weights.spec import ModelSpec, RopeScaling
from metrale_lab.weights.token_bytes import Detokenizer
from metrale_lab.weights.tokenizer import Tokenizer

__all__ = [
    "Detokenizer",
    "LoadedModel",
    "ModelSpec",
    "RopeScaling",
    "Tokenizer",
    "cached_path",
    "load_model",
    "resolve_model",
    "rope_frequencies",
]
