"""What events about requests make of a state."""

from __future__ import annotations

from metrale_lab.trace import events as ev
from metrale_lab.trace.fold_blocks import request_of
from metrale_lab.trace.state import LabState, RequestState, Span


def _known(state: LabState, request_id: int) -> RequestState | None:
    request = state.own_request(request_id)
    if request is None:
        state.doubt(f"request {request_id} is not known")
    return request


def _move(request: RequestState, word: str, t_s: float) -> None:
    """Put a request into another state: one span ends, the next begins."""
    request.state = word
    if request.spans and request.spans[-1].end_s is None:
        request.spans[-1].end_s = t_s
    if not request.ended:
        request.spans.append(Span(word, t_s))


def on_submitted(state: LabState, event: ev.RequestSubmitted, t_s: float, step: int) -> None:
    if event.request_id in state.requests:
        state.doubt(f"request {event.request_id} is known already")
    request = RequestState(
        event.request_id,
        event.name,
        event.priority,
        event.prompt_tokens,
        event.max_tokens,
        event.adapter,
        event.arrived_s,
        epoch=state.epoch,
    )
    request.spans.append(Span("waiting", event.arrived_s))
    state.requests[event.request_id] = request


def on_bound(state: LabState, event: ev.SequenceBound, t_s: float, step: int) -> None:
    view = state.own_sequence(event.sequence)
    if view is None:
        state.doubt(f"sequence {event.sequence} is not open")
    else:
        view.request_id = event.request_id
    request = _known(state, event.request_id)
    if request is not None:
        request.sequence = event.sequence
        request.attempts += 1


def on_blocked(state: LabState, event: ev.RequestBlocked, t_s: float, step: int) -> None:
    request = _known(state, event.request_id)
    if request is not None:
        request.blocked_by = event.blocked_by


def on_admitted(state: LabState, event: ev.RequestAdmitted, t_s: float, step: int) -> None:
    request = _known(state, event.request_id)
    if request is None:
        return
    _move(request, "prefilling", t_s)
    request.sequence = event.sequence
    if request.admitted_s is None:
        request.admitted_s = t_s
    if event.attempt == 1:
        request.cached_tokens = max(request.cached_tokens, event.cached_tokens)


def on_prefilled(state: LabState, event: ev.RequestPrefilled, t_s: float, step: int) -> None:
    request = _known(state, event.request_id)
    if request is None:
        return
    if event.recomputed:
        request.recomputed_tokens += event.tokens
    if event.last:
        _move(request, "running", t_s)
        if request.prefilled_s is None:
            request.prefilled_s = t_s


def on_parked(state: LabState, event: ev.RequestParked, t_s: float, step: int) -> None:
    request = _known(state, event.request_id)
    if request is not None:
        _move(request, "spilled" if event.how == "spill" else "parked", t_s)
        request.sequence = -1


def on_finished(state: LabState, event: ev.RequestFinished, t_s: float, step: int) -> None:
    request = _known(state, event.request_id)
    if request is None:
        return
    if request.ended:
        state.doubt(f"request {event.request_id} ended before")
    _move(request, event.state, t_s)
    request.finish_reason, request.error = event.finish_reason, event.error
    request.output_tokens, request.finished_s = event.output_tokens, t_s
    request.sequence = -1
    state.ended[event.request_id] = None
    if len(state.ended) > state.ended_kept:
        oldest = next(iter(state.ended))
        del state.ended[oldest], state.requests[oldest]
        state.requests_forgotten += 1


def on_token(state: LabState, event: ev.TokenEvent, t_s: float, step: int) -> None:
    if event.outcome != "delivered":
        return
    request = _known(state, event.request_id)
    if request is None:
        return
    state.tokens_delivered += 1
    request.output_tokens += 1
    request.token_times.append(t_s)
    request.last_token_s = t_s
    if request.first_token_s is None:
        request.first_token_s = t_s


def on_preempted(state: LabState, event: ev.Preempted, t_s: float, step: int) -> None:
    request = _known(state, event.request_id)
    if request is not None:
        request.preemptions += 1


def on_lookup(state: LabState, event: ev.PrefixLookup, t_s: float, step: int) -> None:
    request = state.own_request(request_of(state, event.sequence))
    if request is not None and request.attempts > 1:
        return  # a preempted request that finds its own history
    state.tokens_looked_up += event.prompt_tokens
    state.tokens_reused += event.reused_tokens
    if request is not None:
        request.cached_tokens = event.reused_tokens
