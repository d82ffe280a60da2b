"""What a request ended with."""

from __future__ import annotations

from dataclasses import dataclass

from metrale_lab.counting import counted


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probabilities at one output token, natural logarithm, before temperature.

    Attributes
    ----------
    token_id, logprob
        The token that was taken.
    top : tuple of (token_id, logprob)
        The likeliest tokens, best first.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class RequestResult:
    """The outcome of a request.

    Attributes
    ----------
    finish_reason : {"stop", "length", "cancelled", "timeout", "error"}
    cached_tokens : int
        Prompt tokens whose computation was skipped at first admission.
    ttft_ms, tpot_ms, e2e_ms : float or None
        From submit to the first token; per token after the first; from submit to the end.
    logprobs : tuple of TokenLogprobs or None
        One per output token when asked for.
    error : Exception or None
        Why it failed; tokens generated before are kept.
    """

    request_id: int
    name: str | None
    text: str
    token_ids: tuple[int, ...]
    prompt_token_ids: tuple[int, ...]
    finish_reason: str
    cached_tokens: int
    ttft_ms: float | None
    tpot_ms: float | None
    e2e_ms: float
    preemptions: int
    logprobs: tuple[TokenLogprobs, ...] | None
    error: Exception | None

    def raise_for_error(self) -> None:
        """Raise `error` when there is one."""
        if self.error is not None:
            raise self.error

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= 60 else self.text[:57] + "..."
        return (
            f"<RequestResult {self.request_id} {self.finish_reason} "
            f"{counted(len(self.token_ids), 'token')} {text!r}>"
        )
