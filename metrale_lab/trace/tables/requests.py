"""Tables of requests: how each fared, what it got, and who had to make room."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from metrale_lab.trace.events import Preempted, TokenEvent
from metrale_lab.trace.state import RequestState
from metrale_lab.trace.tables.schema import Column, Row, Source, Table, known, ms_between, word

REQUEST_STATES = (
    "waiting",
    "prefilling",
    "running",
    "parked",
    "spilled",
    "finished",
    "failed",
)
FINISH_REASONS = ("stop", "length", "cancelled", "timeout", "error")
BLOCKED_BY = ("rows", "blocks", "slots", "adapter")


def _requests(source: Source) -> Iterator[Row]:
    for one in source.view.state.requests.values():
        ttft = ms_between(one.arrived_s, one.first_token_s)
        e2e = ms_between(one.arrived_s, one.finished_s)
        yield (
            one.request_id,
            one.name,
            one.state,
            one.priority,
            one.prompt_tokens,
            one.cached_tokens,
            one.output_tokens,
            one.max_tokens,
            word(one.finish_reason),
            one.arrived_s,
            one.admitted_s,
            one.first_token_s,
            one.finished_s,
            ms_between(one.arrived_s, one.admitted_s),
            ms_between(one.admitted_s, one.prefilled_s),
            ttft,
            _tpot(one, ttft, e2e),
            _itl_p99(one),
            e2e,
            one.preemptions,
            one.recomputed_tokens,
            one.peak_blocks,
            word(one.blocked_by),
            word(one.adapter),
            word(one.error),
        )


def _tpot(one: RequestState, ttft: float | None, e2e: float | None) -> float | None:
    if ttft is None or e2e is None or one.output_tokens < 2:
        return None
    return (e2e - ttft) / (one.output_tokens - 1)


def _itl_p99(one: RequestState) -> float | None:
    if len(one.token_times) < 2:
        return None
    return float(np.percentile(np.diff(one.token_times), 99) * 1000.0)


REQUESTS = Table(
    "requests",
    "request",
    (
        Column("request_id", "Int64", "", "number of the request, from 0"),
        Column("name", "string", "", "name given at submit"),
        Column(
            "state",
            "category",
            "",
            "waiting, prefilling, running, parked: requeued, spilled: on disk, finished: also "
            "cancelled and timed out, failed",
            REQUEST_STATES,
        ),
        Column("priority", "Int64", "", "larger is served first"),
        Column("prompt_tokens", "Int64", "tokens", "tokens of its prompt"),
        Column("cached_tokens", "Int64", "tokens", "really skipped at first admission"),
        Column("output_tokens", "Int64", "tokens", "delivered so far"),
        Column("max_tokens", "Int64", "tokens", "most that it may get"),
        Column("finish_reason", "category", "", "why it ended", FINISH_REASONS),
        Column("arrived_s", "Float64", "s", "submitted, since the lab started"),
        Column("admitted_s", "Float64", "s", "first admitted"),
        Column("first_token_s", "Float64", "s", "first token delivered"),
        Column("finished_s", "Float64", "s", "ended"),
        Column("queue_ms", "Float64", "ms", "from arrival to first admission"),
        Column("prefill_ms", "Float64", "ms", "from first admission to the end of its prompt"),
        Column("ttft_ms", "Float64", "ms", "from arrival to the first token"),
        Column("tpot_ms", "Float64", "ms", "(e2e - ttft) / (n - 1), NA below 2 tokens"),
        Column("itl_p99_ms", "Float64", "ms", "99th percentile of the time between tokens"),
        Column("e2e_ms", "Float64", "ms", "from arrival to the end"),
        Column("preemptions", "Int64", "times", "how often it lost its blocks"),
        Column("recomputed_tokens", "Int64", "tokens", "computed again after preemptions"),
        Column("peak_blocks", "Int64", "blocks", "most blocks that it had at once"),
        Column("blocked_by", "category", "", "what last kept it in the queue", BLOCKED_BY),
        Column("adapter", "string", "", "adapter's name, NA = base"),
        Column("error", "string", "", "what failed, NA = nothing"),
    ),
    _requests,
)


def _tokens(source: Source) -> Iterator[Row]:
    for seq_no, t_s, step, event in source.view.stamped():
        if isinstance(event, TokenEvent):
            yield (
                seq_no,
                event.request_id,
                event.index,
                event.token_id,
                event.text,
                known(step),
                t_s,
                event.fed,
                event.outcome,
            )


TOKENS = Table(
    "tokens",
    "generated token",
    (
        Column("seq_no", "Int64", "", "event number"),
        Column("request_id", "Int64", "", "whose"),
        Column("index", "Int64", "", "position among the request's output tokens, from 0"),
        Column("token_id", "Int64", "", "id in the vocabulary"),
        Column("text", "string", "", "text that it added"),
        Column("step", "Int64", "", "tick"),
        Column("t_s", "Float64", "s", "when, since the lab started"),
        Column("fed", "boolean", "", "whether its input id came from the device"),
        Column(
            "outcome",
            "category",
            "",
            "delivered; discarded: made by a step that ran past the end; recomputed: made again "
            "after a preemption",
            ("delivered", "discarded", "recomputed"),
        ),
    ),
    _tokens,
)


def _preemptions(source: Source) -> Iterator[Row]:
    for seq_no, t_s, _, event in source.view.stamped():
        if isinstance(event, Preempted):
            yield (
                seq_no,
                t_s,
                event.request_id,
                known(event.for_request_id),
                event.cause,
                event.how,
                event.blocks_freed,
            )


PREEMPTIONS = Table(
    "preemptions",
    "preemption",
    (
        Column("seq_no", "Int64", "", "event number"),
        Column("t_s", "Float64", "s", "when, since the lab started"),
        Column("request_id", "Int64", "", "who lost its blocks"),
        Column("for_request_id", "Int64", "", "who needed them"),
        Column(
            "cause",
            "category",
            "",
            "what they were needed for",
            ("decode", "reserve", "prefill", "admission"),
        ),
        Column(
            "how", "category", "", "requeue: computed again; spill: saved", ("requeue", "spill")
        ),
        Column("blocks_freed", "Int64", "blocks", "blocks that it gave up"),
    ),
    _preemptions,
)
