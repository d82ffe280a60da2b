"""What a request must get: no cache, one row, the whole prompt again for each token."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import torch

from metrale_lab import ops
from metrale_lab.arguments import flag, instance, integer, shown
from metrale_lab.errors import AdapterError, InvalidConfig
from metrale_lab.scheduler.requests import RequestSpec
from metrale_lab.scheduler.sampling import derive_seed
from metrale_lab.testing.adapters import by_name, scripted_adapter
from metrale_lab.testing.checks import bonuses, end_ids, vocabulary
from metrale_lab.testing.tags import NO_TOKENS, context_of, next_tags, scores_of, tags_of


class Oracle:
    """Generates with the made-up network alone, slowly and with nothing to go wrong.

    Parameters
    ----------
    vocab_size, max_seq_len, eos_ids, biased
        As given to `scripted_model`.
    adapters : iterable of str, or mapping of str to str
        As given to `scripted_model`; what a request's `adapter` may name.
    hybrid : bool
        As given to `scripted_model`.
    lab_seed : int
        `LabConfig.seed`, from which requests without a seed get theirs.
    """

    def __init__(
        self,
        vocab_size: int = 64,
        max_seq_len: int = 256,
        eos_ids: Iterable[int] = (),
        biased: Mapping[int, float] | None = None,
        lab_seed: int = 0,
        adapters: Iterable[str] | Mapping[str, str] = (),
        hybrid: bool = False,
    ) -> None:
        self._vocab = vocabulary(vocab_size)
        self._max_seq_len = integer("max_seq_len", max_seq_len, 1, error=InvalidConfig)
        self._eos, self._biased = end_ids(eos_ids), bonuses(biased, self._vocab)
        self._lab_seed = integer("lab_seed", lab_seed, error=InvalidConfig)
        self._hybrid = flag("hybrid", hybrid, InvalidConfig)
        paths = by_name(adapters)
        self._contents = {name: scripted_adapter(path).content for name, path in paths.items()}

    def generate(self, spec: RequestSpec, request_id: int = 0) -> tuple[tuple[int, ...], str]:
        """Output ids and finish reason ("stop" or "length") of a request.

        Stop strings, processors and log-probabilities are not looked at. `request_id` counts for
        sampled requests without a seed.
        """
        instance("spec", spec, RequestSpec)
        request_id = integer("request_id", request_id)
        if spec.adapter is not None and spec.adapter not in self._contents:
            there = ", ".join(map(shown, self._contents)) or "none"
            raise AdapterError(
                f"adapter {shown(spec.adapter)}: this oracle knows {there}. "
                "Give it the adapters that the model has."
            )
        tokens, outputs = list(spec.token_ids), list[int]()
        ends = frozenset(spec.stop_token_ids) | (frozenset() if spec.ignore_eos else self._eos)
        seed = derive_seed(self._lab_seed, request_id) if spec.seed is None else spec.seed
        limit = min(spec.max_tokens, self._max_seq_len - len(tokens))
        while True:
            forbidden = ends if len(outputs) < spec.min_tokens else frozenset()
            token = self._next(tokens, forbidden, spec, seed)
            outputs.append(token)
            if token in ends:
                return tuple(outputs), "stop"
            if len(outputs) == limit:
                return tuple(outputs), "length"
            tokens.append(token)

    def _next(
        self, tokens: list[int], forbidden: frozenset[int], spec: RequestSpec, seed: int
    ) -> int:
        content = 0 if spec.adapter is None else self._contents[spec.adapter]
        tags = tags_of(tokens, np.arange(len(tokens)), content)
        scores = scores_of(tags ^ self._context(tokens, content), self._vocab)
        for token, bonus in self._biased.items():
            scores[token] += bonus
        scores[sorted(forbidden)] = -np.inf
        if spec.temperature == 0:
            return int(np.argmax(scores))
        picked = ops.sample(
            torch.from_numpy(scores)[None],
            torch.full((1, 2), ops.NO_ID, dtype=torch.int64),
            torch.tensor([spec.temperature]),
            torch.tensor([spec.top_k]),
            torch.tensor([spec.top_p]),
            torch.tensor([seed]),
            torch.tensor([len(tokens)]),
        )
        return int(picked)

    def _context(self, tokens: list[int], content: int) -> np.uint64:
        """The tag of the recurrent states after all tokens, one by one from the start."""
        if not self._hybrid:
            return np.uint64(0)
        layers = NO_TOKENS
        for token in tokens:
            layers = next_tags(layers, token, content)
        return context_of(layers)
