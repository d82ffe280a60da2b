"""What an `adapter_config.json` of PEFT says: which modules are adapted, with which rank and scale.

The rules of names and patterns are those of PEFT (`tuners_utils.check_target_module_exists`,
`other.get_pattern_key`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metrale_lab.arguments import shown
from metrale_lab.errors import AdapterError, ModelFormatError
from metrale_lab.weights.fields import Fields
from metrale_lab.weights.folder_config import read_json

MAX_RANK = 4096
_LAYER_NUMBER = re.compile(r".*?\.[^.]*\.(\d+)\.")
# Options that change what an adapter computes, and that are not offered.
_UNSUPPORTED = (
    "use_dora",
    "modules_to_save",
    "fan_in_fan_out",
    "lora_bias",
    "layer_replication",
    "target_parameters",
    "trainable_token_indices",
    "alora_invocation_tokens",
    "use_qalora",
    "use_bdlora",
    "arrow_config",
    "kasa_config",
    "monteclora_config",
    "velora_config",
)
_PLAIN_STARTS = (True, False, None, "gaussian", "eva", "orthogonal")  # keep the base as it is


@dataclass(frozen=True, slots=True)
class PeftConfig:
    """A LoRA configuration that the engine can follow.

    Attributes
    ----------
    source : str
        Folder and file, for messages.
    targets, excluded : str or tuple of str or None
        A regular expression for whole module paths, or names that a path is or ends with.
    layers : tuple of int or None
        Layers that names may match in; None: all.
    rank_pattern, alpha_pattern : dict of str to number
        Rank and alpha of the modules that a pattern fits, instead of `rank` and `alpha`.
    """

    source: str
    rank: int
    alpha: float
    use_rslora: bool
    targets: str | tuple[str, ...]
    excluded: str | tuple[str, ...] | None
    layers: tuple[int, ...] | None
    rank_pattern: dict[str, int]
    alpha_pattern: dict[str, float]

    def adapts(self, module: str) -> bool:
        """Whether the module of that path (`model.layers.0.self_attn.q_proj`) is adapted."""
        if self.excluded is not None and _fits(self.excluded, module):
            return False
        if isinstance(self.targets, str):
            return self.targets.lower() == "all-linear" or _fits(self.targets, module)
        return _fits(self.targets, module) and self._in_layers(module)

    def rank_of(self, module: str) -> int:
        """Rank of an adapted module."""
        return self.rank_pattern.get(_pattern_for(self.rank_pattern, module), self.rank)

    def scale_of(self, module: str) -> float:
        """`alpha / rank`, or `alpha / sqrt(rank)` with rank-stabilised scaling."""
        rank = self.rank_of(module)
        alpha = self.alpha_pattern.get(_pattern_for(self.alpha_pattern, module), self.alpha)
        return alpha / math.sqrt(rank) if self.use_rslora else alpha / rank

    def check_targets(self, modules: Iterable[str]) -> None:
        """AdapterError for a target that fits none of the model's projections."""
        there = list(modules)
        wanted = [self.targets] if isinstance(self.targets, str) else list(self.targets)
        for target in wanted:
            if target.lower() == "all-linear" and isinstance(self.targets, str):
                continue
            rule: str | tuple[str, ...] = target if isinstance(self.targets, str) else (target,)
            if not any(_fits(rule, module) for module in there):
                names = ", ".join(sorted({module.rsplit(".", 1)[-1] for module in there}))
                raise AdapterError(
                    f"{self.source}: target_modules {shown(target)} fits no projection of this "
                    f"model. It has: {names}."
                )

    def _in_layers(self, module: str) -> bool:
        found = _LAYER_NUMBER.match(module)
        return self.layers is None or (found is not None and int(found[1]) in self.layers)


def read_peft_config(folder: Path) -> PeftConfig:
    """Read and check `adapter_config.json`; AdapterError names the field."""
    try:
        source = f"{folder.name}/adapter_config.json"
        return _config(Fields(source, read_json(folder / "adapter_config.json", "a LoRA folder")))
    except ModelFormatError as error:
        raise AdapterError(f"{error} Give a LoRA folder that PEFT saved.") from None


def _config(fields: Fields) -> PeftConfig:
    if (kind := fields.text("peft_type")) != "LORA":
        fields.refuse("peft_type", kind, "'LORA'")
    _refuse_unsupported(fields)
    return PeftConfig(
        source=fields.source,
        rank=fields.integer("r", maximum=MAX_RANK),
        alpha=fields.number("lora_alpha"),
        use_rslora=fields.flag("use_rslora", default=False),
        targets=_rule(fields, "target_modules"),
        excluded=_rule(fields, "exclude_modules") if fields.values.get("exclude_modules") else None,
        layers=_layers(fields),
        rank_pattern=_ranks(fields.mapping("rank_pattern")),
        alpha_pattern=_alphas(fields.mapping("alpha_pattern")),
    )


def _refuse_unsupported(fields: Fields) -> None:
    if (bias := fields.text("bias", default="none")) != "none":
        fields.refuse("bias", bias, "'none' (adapters with biases are not offered)")
    for name in _UNSUPPORTED:
        if fields.values.get(name):
            fields.refuse(name, fields.values[name], "it unset: this is not offered")
    start = fields.values.get("init_lora_weights")
    if not any(start is one or (isinstance(one, str) and start == one) for one in _PLAIN_STARTS):
        fields.refuse("init_lora_weights", start, "a start that leaves the base weights alone")


def _rule(fields: Fields, name: str) -> str | tuple[str, ...]:
    """A regular expression as it is; a list of names as a tuple."""
    value = fields.values.get(name)
    if isinstance(value, str) and value:
        if value.lower() != "all-linear":
            _check_pattern(fields, name, value)
        return value
    if isinstance(value, list) and value and all(isinstance(one, str) and one for one in value):
        return tuple(value)
    return fields.refuse(name, value, "module names, a regular expression, or 'all-linear'")


def _layers(fields: Fields) -> tuple[int, ...] | None:
    name = "layers_to_transform"
    value: Any = fields.values.get(name)
    if value is None or value == []:
        return None
    if fields.values.get("layers_pattern") not in (None, "", [], "layers", ["layers"]):
        fields.refuse("layers_pattern", fields.values["layers_pattern"], "'layers' or none")
    several = value if isinstance(value, list) else [value]
    if any(isinstance(one, bool) or not isinstance(one, int) or one < 0 for one in several):
        fields.refuse(name, value, "a layer number or a list of them")
    return tuple(several)


def _ranks(fields: Fields) -> dict[str, int]:
    return {key: fields.integer(key, maximum=MAX_RANK) for key in _patterns(fields)}


def _alphas(fields: Fields) -> dict[str, float]:
    return {key: fields.number(key) for key in _patterns(fields)}


def _patterns(fields: Fields) -> list[str]:
    for key in fields.values:
        _check_pattern(fields, key, key)
    return list(fields.values)


def _check_pattern(fields: Fields, name: str, pattern: str) -> None:
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        fields.refuse(name, pattern, "a regular expression")


def _pattern_for(patterns: Iterable[str], module: str) -> str:
    """The first pattern that fits the end of a module's path, "" = none."""
    return next((one for one in patterns if re.match(rf"(.*\.)?({one})$", module)), "")


def _fits(rule: str | tuple[str, ...], module: str) -> bool:
    if isinstance(rule, str):
        return re.fullmatch(rule, module) is not None
    return any(module == name or module.endswith(f".{name}") for name in rule)
