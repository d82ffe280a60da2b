"""The tables: the columns that are promised, and rows that say what the story did."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from metrale_lab.trace import events as ev
from metrale_lab.trace.recorder import Recorder
from metrale_lab.trace.tables import TABLES, Frames
from tests.trace.story import BLOCK_SIZE, NUM_BLOCKS, text_of, told

PROMISED = {
    "blocks": "block; state ref_count sequences request_ids tokens_filled in_cache adapter_id "
    "prefix_depth node pins life age_ms bytes",
    "block_events": "seq_no; t_s step kind block life ref_count sequence request_id cause "
    "cause_request_id node idle_ms",
    "prefix_nodes": "node; parent block depth_tokens adapter_id ref_count last_access_s children "
    "snapshot text",
    "prefix_lookups": "seq_no; t_s request_id attempt adapter_id prompt_tokens matched_tokens "
    "reused_tokens hit miss_reason snapshot_depth",
    "reclaims": "seq_no; t_s request_id reason prompt_tokens adapter_slot blocks_needed "
    "pinned_blocks target free_before free evicted_nodes evicted_blocks rounds satisfied "
    "duration_ms",
    "feed": "ticket; step rows fed launch_s device_start_s device_end_s ready_s await_s settled_s "
    "ring_slot polls blocked device_ms host_ms gap_ms lead_ms reserved_blocks discarded_rows "
    "captured",
    "tokens": "seq_no; request_id index token_id text step t_s fed outcome",
    "requests": "request_id; name state priority prompt_tokens cached_tokens output_tokens "
    "max_tokens finish_reason arrived_s admitted_s first_token_s finished_s queue_ms prefill_ms "
    "ttft_ms tpot_ms itl_p99_ms e2e_ms preemptions recomputed_tokens peak_blocks blocked_by "
    "adapter error",
    "preemptions": "seq_no; t_s request_id for_request_id cause how blocks_freed",
    "steps": "step; t_s duration_ms plan_ms launch_ms wait_ms commit_ms decode_rows "
    "prefill_tokens emitted_tokens free_blocks cached_blocks reserved_blocks evicted_blocks "
    "preempted running waiting parked spilled",
    "memory": "part; bytes",
    "slots": "slot; state sequence request_id parity bytes",
    "slot_events": "seq_no; t_s kind slot to_slot sequence",
    "adapters": "slot; name generation state users rank bytes",
    "graphs": "key; rows captures replays capture_ms bytes pinned",
}


def frames(recorder: Recorder | None = None) -> Frames:
    return Frames(recorder or told(), {"model": "story"}, text_of)


def table(name: str, source: Frames | None = None) -> pd.DataFrame:
    return getattr(source or frames(), name)()


def dtype_word(values: Any) -> str:
    word = str(values.dtype)
    return {"object": "tuple"}.get(word, word)


@pytest.mark.parametrize("name", list(PROMISED))
@pytest.mark.parametrize("full", [True, False])
def test_columns_are_those_promised_and_described(name: str, full: bool) -> None:
    source = frames() if full else frames(Recorder(NUM_BLOCKS, BLOCK_SIZE))
    one, described = table(name, source), source.columns(name)
    index, columns = PROMISED[name].split("; ")
    assert [one.index.name, *one.columns] == [index, *columns.split()]
    assert described["name"].tolist() == [index, *columns.split()]
    found = [dtype_word(one.index), *(dtype_word(one[column]) for column in one.columns)]
    assert found == described["dtype"].tolist()
    assert list(described.columns) == ["name", "dtype", "unit", "meaning"]
    assert (described["meaning"].str.len() > 3).all()


def test_columns_of_all_tables() -> None:
    every = frames().columns()
    assert list(every.columns) == ["table", "name", "dtype", "unit", "meaning"]
    assert list(dict.fromkeys(every["table"])) == list(TABLES)
    assert set(TABLES) == set(PROMISED)
    with pytest.raises(ValueError, match=r"blocks., .block_events"):
        frames().columns("nodes")


def test_attrs_and_tables_are_fresh() -> None:
    source = frames(told(100))
    one = source.blocks()
    assert one.attrs["model"] == "story"
    assert (one.attrs["num_blocks"], one.attrs["block_size"]) == (NUM_BLOCKS, BLOCK_SIZE)
    assert one.attrs["step"] == 23
    assert one.attrs["events_dropped"] == told(100).dropped > 0
    one["state"] = "free"
    assert (source.blocks()["state"] != "free").any()


def test_blocks_agree_with_the_pool() -> None:
    one = table("blocks")
    assert len(one) == NUM_BLOCKS
    references = one["sequences"].map(len) + one["in_cache"] + (one["state"] == "held")
    assert (one["ref_count"] == references).all()
    free, used = one[one["ref_count"] == 0], one[one["ref_count"] > 0]
    assert free["age_ms"].isna().all()
    assert (used["age_ms"] >= 0).all()
    cached = one[one["in_cache"]]
    assert (cached["tokens_filled"] == BLOCK_SIZE).all()
    assert (cached["prefix_depth"] % BLOCK_SIZE == 0).all()


def test_block_events_say_whose_and_for_whom() -> None:
    one = table("block_events")
    evicted = one[one["kind"] == "evict"]
    other = evicted[evicted["cause_request_id"] == 3]
    assert len(other) == 4  # three by the reclaim, one when it grew
    assert set(other["request_id"]) == {0, 1}
    assert (evicted["idle_ms"] > 0).all()
    assert one[one["kind"] != "evict"]["idle_ms"].isna().all()
    taken = one[one["kind"].isin(["alloc", "retain"]) & one["sequence"].notna()]
    assert (taken["request_id"] == taken["cause_request_id"]).all()
    held = one[(one["cause"] == "manual") & (one["kind"] == "alloc")]
    assert len(held) == 4
    assert held["request_id"].isna().all()


def test_attribution_does_not_need_the_events_that_were_dropped() -> None:
    everything, rest = table("block_events"), table("block_events", frames(told(200)))
    assert 0 < len(rest) < len(everything)
    pd.testing.assert_frame_equal(everything.loc[rest.index], rest)
    lookups = table("prefix_lookups", frames(told(200)))
    pd.testing.assert_frame_equal(table("prefix_lookups").loc[lookups.index], lookups)


def test_lookups_name_request_attempt_and_reason() -> None:
    one = table("prefix_lookups")
    assert one["request_id"].tolist() == [0, 1, 2, 2, 3]
    assert one["attempt"].tolist() == [1, 1, 1, 2, 1]
    assert one["hit"].tolist() == [False, True, False, True, True]
    assert one["miss_reason"].tolist()[:2] == ["never_seen", "last_token"]


def test_reclaims_name_the_request_and_what_went() -> None:
    one = table("reclaims")
    assert one["request_id"].tolist() == [0, 1, 2, 2, 3]
    assert one["reason"].tolist()[3] == "resume"
    last = one.iloc[-1]
    assert len(last["evicted_blocks"]) == len(last["evicted_nodes"]) == 3
    assert last["free"] == last["free_before"] + 3
    assert (one["target"] == one["blocks_needed"] - one["pinned_blocks"]).all()


def test_a_reclaim_by_hand_belongs_to_nobody() -> None:
    recorder = Recorder(4, 4)
    recorder(ev.ReclaimFinished(0, -1, 2, 0, 2, 4, 4, (), (), 0, True, 0.1))
    one = table("reclaims", frames(recorder)).iloc[0]
    assert one["reason"] == "manual"
    assert one["request_id"] is pd.NA


def test_feed_times_are_in_order_and_gaps_and_leads_follow_from_them() -> None:
    one = table("feed")
    assert one.index.tolist() == list(range(len(one)))
    done = one[one["settled_s"].notna()]
    assert len(done) == len(one) - 1  # the story ends with a step in flight
    for earlier, later in (
        ("launch_s", "device_start_s"),
        ("device_start_s", "device_end_s"),
        ("device_end_s", "ready_s"),
        ("ready_s", "settled_s"),
    ):
        assert (done[earlier] <= done[later]).all()
    assert one["gap_ms"].isna().tolist()[:2] == [True, False]
    ahead = done[done["lead_ms"].notna()]
    assert (ahead["gap_ms"] == 0).all()
    assert (ahead["lead_ms"] > 0).all()
    assert done["discarded_rows"].sum() == 1
    flying = one.iloc[-1]
    assert flying["device_ms"] is pd.NA
    assert flying["ring_slot"] == 1


def test_tokens_and_requests_agree() -> None:
    tokens, requests = table("tokens"), table("requests")
    delivered = tokens[tokens["outcome"] == "delivered"]
    for request_id, count in delivered.groupby("request_id").size().items():
        assert requests.loc[request_id, "output_tokens"] == count
    assert (tokens["outcome"] == "discarded").sum() == 1
    first = delivered.groupby("request_id")["t_s"].min()
    assert (requests.loc[first.index, "first_token_s"] == first).all()


def test_totals_are_those_of_the_tables() -> None:
    state, tokens, lookups = told().state(), table("tokens"), table("prefix_lookups")
    assert state.tokens_delivered == (tokens["outcome"] == "delivered").sum()
    first = lookups[lookups["attempt"] == 1]
    assert state.tokens_looked_up == first["prompt_tokens"].sum()
    assert state.tokens_reused == first["reused_tokens"].sum()


def test_request_durations() -> None:
    one = table("requests").loc[1]
    assert one["ttft_ms"] == pytest.approx((one["first_token_s"] - one["arrived_s"]) * 1e3)
    assert one["e2e_ms"] == pytest.approx((one["finished_s"] - one["arrived_s"]) * 1e3)
    tpot = (one["e2e_ms"] - one["ttft_ms"]) / (one["output_tokens"] - 1)
    assert one["tpot_ms"] == pytest.approx(tpot)
    assert one["cached_tokens"] == 16
    assert one["finish_reason"] == "stop"
    waits = table("requests").loc[4]
    assert waits["state"] == "waiting"
    assert waits["blocked_by"] == "blocks"
    assert waits["tpot_ms"] is pd.NA
    preempted = table("requests").loc[2]
    assert preempted["preemptions"] == 1
    assert preempted["recomputed_tokens"] == 2
    assert preempted["cached_tokens"] == 0  # its own history found again does not count


def test_steps_are_the_ticks() -> None:
    one = table("steps")
    assert one.index.tolist() == list(range(24))
    assert one["emitted_tokens"].sum() == (table("tokens")["outcome"] == "delivered").sum()
    assert one["evicted_blocks"].sum() == (table("block_events")["kind"] == "evict").sum()
    assert one["preempted"].sum() == len(table("preemptions"))


def test_memory_adds_up_to_what_the_engine_holds() -> None:
    recorder = told()
    parts = recorder.state().memory
    one = table("memory", frames(recorder))["bytes"]
    graphs = sum(graph.nbytes for graph in recorder.state().graphs.values())
    pool = NUM_BLOCKS * parts["kv_block"]
    fixed = sum(parts[name] for name in ("weights", "workspace", "slots", "snapshots"))
    assert one.sum() == fixed + pool + graphs
    assert one["held"] == 4 * parts["kv_block"]


def test_prefix_nodes_carry_text() -> None:
    one = table("prefix_nodes")
    assert one["text"].str.startswith(" ").all()
    roots = one[one["parent"].isna()]
    assert (roots["depth_tokens"] == BLOCK_SIZE).all()
    assert one["children"].sum() == len(one) - len(roots)
    assert table("prefix_nodes", Frames(told()))["text"].isna().all()


def test_explanations_are_shown_whole() -> None:
    shown = Frames(Recorder(4, 16)).columns().head(60)
    for text in (repr(shown), shown._repr_html_()):
        assert "..." not in text
        assert shown["meaning"].str.len().max() > 50
