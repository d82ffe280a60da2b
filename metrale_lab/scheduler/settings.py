"""What of a lab's configuration concerns the scheduler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """Limits and policies of a scheduler.

    Attributes
    ----------
    max_batch : int
        Rows of a decode step.
    max_prefill_tokens : int
        Prompt tokens per tick over all prompts; 0 = a prompt is not cut.
    max_seq_len : int
        Longest sequence in tokens, prompt and output together.
    router : {"sync", "async"}
        Whether decode steps run ahead of the host.
    admit_watermark : int or None
        Output tokens reserved per request at admission; None = all of `max_tokens`.
    seed : int
        Seed that a request without its own gets its draws from.
    deterministic : bool
        Wait for the device without polling first, so that no clock shows in the record, and cut
        prompts where they would be cut alone. A request's own timeout still counts.
    model_name : str
        Name used in messages.
    max_polls : int or None
        Polls of an event before the router blocks; None: 2000, but 8 where the device shares the
        host's cores.
    """

    max_batch: int = 8
    max_prefill_tokens: int = 256
    max_seq_len: int = 2048
    router: Literal["sync", "async"] = "async"
    admit_watermark: int | None = None
    seed: int = 0
    deterministic: bool = False
    model_name: str = "model"
    max_polls: int | None = None
