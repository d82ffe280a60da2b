"""LoRA against PEFT: rows of different adapters in one step, and nothing shared between them."""

from __future__ import annotations

import pytest
import torch

from metrale_lab.errors import AdapterError, DeviceFault, InvalidRequest
from metrale_lab.trace.events import AdapterEvent, BlockEvent, MemoryPart, PrefixLookup
from metrale_lab.weights import load_model
from metrale_lab.weights.peft_folder import LoraAdapter, read_adapter
from tests.engine.kit import best, opened, prompt
from tests.lora_folders import (
    ATTENTION,
    DELTA,
    MLP,
    adapted_logits,
    adapted_model,
    greedy,
    make_adapter,
)
from tests.tiny_models import ARCHITECTURES, HYBRIDS, make_folder

BOUND = 3e-5  # float32: scores of a few units, sums in another order
BOUND_OF_HALVES = 0.15  # bfloat16: of the scores' own spread; another adapter's are 0.9 away
ADAPTERS = {
    "all": {"r": 3, "lora_alpha": 9, "target_modules": "all-linear"},
    "rs": {"r": 9, "use_rslora": True, "target_modules": ATTENTION},
    "mlp": {"r": 2, "target_modules": MLP, "layers_to_transform": [1]},
}

OF_A_HYBRID = {
    "qwen3_5_text": ADAPTERS
    | {
        "rs": {"r": 9, "use_rslora": True, "target_modules": [*DELTA, "q_proj"]},
        "mlp": {"r": 2, "target_modules": [*MLP, "in_proj_b"], "layers_to_transform": [1, 2]},
    },
    "granitemoehybrid": ADAPTERS
    | {
        "rs": {"r": 9, "use_rslora": True, "target_modules": ["in_proj", "out_proj", "q_proj"]},
        "mlp": {
            "r": 2,
            "target_modules": ["input_linear", "output_linear", "in_proj"],
            "layers_to_transform": [1, 2],
        },
    },
}


class Bench:
    """A base model, its adapters, and what transformers and PEFT say."""

    def __init__(self, path, architecture):
        self.base = make_folder(path / "base", architecture)
        self.loaded = load_model(self.base)
        self.paths = {None: None} | {
            name: make_adapter(self.base, path / name, seed=number, **options)
            for number, (name, options) in enumerate(
                OF_A_HYBRID.get(architecture, ADAPTERS).items()
            )
        }

    def logits(self, name, ids):
        return adapted_logits(self.base, self.paths[name], ids)

    def load_all(self, model):
        return {None: -1} | {
            name: model.load_adapter(name, path) for name, path in self.paths.items() if name
        }


@pytest.fixture(scope="module", params=[*ARCHITECTURES, *HYBRIDS])
def bench(request, tmp_path_factory):
    return Bench(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return Bench(tmp_path_factory.mktemp("alone"), "llama")


def fresh(model, slot):
    seq = model.alloc_sequence()
    seq.adapter_slot = slot
    return seq


def close(got, expected):
    torch.testing.assert_close(torch.as_tensor(got), expected, rtol=0, atol=BOUND)


@pytest.mark.parametrize("capture", [True, False])
def test_mixed_rows_have_the_scores_of_peft(bench, capture):
    """Whole and chunked prompts, then decode steps whose rows have different adapters."""
    ids = prompt(21)
    with opened(bench.loaded, max_batch=8, capture=capture) as model:
        slots = bench.load_all(model)
        names = [None, *ADAPTERS, *ADAPTERS, None]
        seqs = [fresh(model, slots[name]) for name in names]
        expected = {name: bench.logits(name, ids) for name in bench.paths}
        for number, (name, seq) in enumerate(zip(names, seqs, strict=True)):
            chunk = 15 if number % 2 else 7
            model.prefill(ids[:chunk], seq)
            close(model.prefill(ids[seq.seq_len : 18], seq).numpy(), expected[name][17])
        for at in (18, 19, 20):
            scores = model.decode_batch([ids[at]] * 8, seqs).numpy()
            for name, row in zip(names, scores, strict=True):
                close(row, expected[name][at])
        different = [expected[name][20] for name in bench.paths]
        for one in different[1:]:
            assert (one - different[0]).abs().max() > 100 * BOUND, "an adapter that does nothing"


def test_greedy_tokens_are_those_of_peft(bench):
    ids = prompt(11, seed=3)
    with opened(bench.loaded) as model:
        slots = bench.load_all(model)
        seqs = [fresh(model, slots[name]) for name in bench.paths]
        texts = [[best(model.prefill(ids, seq))] for seq in seqs]
        for _ in range(9):
            scores = model.decode_batch([text[-1] for text in texts], seqs).numpy()
            for text, row in zip(texts, scores, strict=True):
                text.append(int(row.argmax()))
    for name, text in zip(bench.paths, texts, strict=True):
        assert text == greedy(adapted_model(bench.base, bench.paths[name]), ids, 10)


def test_nothing_is_reused_across_identities_and_a_whole_prefix_within_one(llama):
    events = []
    ids = prompt(33)
    with opened(llama.loaded, events.append) as model:
        slots = llama.load_all(model)
        for name in (None, "all", "rs", None, "all", "rs"):
            seq = fresh(model, slots[name])
            close(model.prefill(ids, seq).numpy(), llama.logits(name, ids)[32])
            model.free_sequence(seq)
    lookups = [one for one in events if isinstance(one, PrefixLookup)]
    assert [one.reused_tokens for one in lookups] == [0, 0, 0, 32, 32, 32]
    assert [one.miss_reason for one in lookups[1:3]] == ["other_adapter"] * 2
    assert [one.adapter_id for one in lookups[:3]] == [one.adapter_id for one in lookups[3:]]
    assert len({one.adapter_id for one in lookups}) == 3


def test_a_reload_serves_old_rows_as_before_and_shares_nothing(llama):
    """v1's row goes on with v1 in the same batch in which v2's row runs with v2."""
    ids = prompt(20)
    with opened(llama.loaded) as model:
        first = fresh(model, model.load_adapter("x", llama.paths["all"]))
        model.prefill(ids[:17], first)
        assert model.load_adapter("x", llama.paths["rs"]) != first.adapter_slot
        second = fresh(model, model.adapters.find("x").slot)
        model.prefill(ids[:17], second)
        assert (second.cached_prefix_tokens, second.adapter_id) != (16, first.adapter_id)
        for at in (17, 18, 19):
            scores = model.decode_batch([ids[at]] * 2, [first, second]).numpy()
            close(scores[0], llama.logits("all", ids)[at])
            close(scores[1], llama.logits("rs", ids)[at])
        model.free_sequence(first)
        assert model.adapters.slots[first.adapter_slot].state == "free"


def test_the_same_slot_reloaded_finds_nothing_of_the_old_one(llama):
    ids = prompt(20)
    with opened(llama.loaded) as model:
        for name in ("all", "rs", "all"):
            slot = model.load_adapter("x", llama.paths[name])
            seq = fresh(model, slot)
            close(model.prefill(ids, seq).numpy(), llama.logits(name, ids)[19])
            assert (slot, seq.cached_prefix_tokens) == (0, 0)
            model.free_sequence(seq)


def test_minus_one_is_the_active_adapter(llama):
    ids = prompt(9)
    with opened(llama.loaded) as model:
        slots = llama.load_all(model)
        for name in (None, "rs", "all", None):
            model.activate_adapter(name)
            seq = fresh(model, -1)
            close(model.prefill(ids[:8], seq).numpy(), llama.logits(name, ids)[7])
            assert seq.acquired_adapter_slot == slots[name]
            model.activate_adapter("mlp")
            close(model.decode_batch([ids[8]], [seq]).numpy()[0], llama.logits(name, ids)[8])
            assert seq.acquired_adapter_slot == slots[name], "resolved once"
            model.free_sequence(seq)
        assert [one.users for one in model.adapters.slots] == [0] * 4


def test_a_reclaim_for_a_prompt_counts_what_its_own_adapter_has_cached(llama):
    ids = prompt(33)
    with opened(llama.loaded) as model:
        slot = model.load_adapter("x", llama.paths["all"])
        seq = fresh(model, slot)
        model.prefill(ids, seq)
        model.free_sequence(seq)
        assert model.reclaim_prefix_blocks_for([*ids, 4], slot, 5).target == 1
        assert model.reclaim_prefix_blocks_for([*ids, 4], -1, 5).target == 5


def test_a_load_that_fails_changes_nothing(llama, tmp_path):
    """Neither slots nor pools nor what a live row computes."""
    ids = prompt(12)
    wider = make_adapter(
        make_folder(tmp_path / "wide", "llama", hidden_size=128), tmp_path / "of wide"
    )
    events = []
    with opened(llama.loaded, events.append) as model:
        slot = model.load_adapter("x", llama.paths["all"])
        seq = fresh(model, slot)
        model.prefill(ids[:10], seq)
        before = (list(model.adapters.slots), model.memory_parts(), len(events))
        for path in (tmp_path / "nowhere", wider, llama.base):
            with pytest.raises(AdapterError):
                model.load_adapter("x", path)
        for name in ("", 3, None, "\ud800"):
            with pytest.raises(AdapterError, match="name="):
                model.load_adapter(name, llama.paths["rs"])
        for path in (3, None, ""):
            with pytest.raises(AdapterError, match="path="):
                model.load_adapter("x", path)
        with pytest.raises(AdapterError, match="'y' is not loaded"):
            model.unload_adapter("y")
        assert (list(model.adapters.slots), model.memory_parts(), len(events)) == before
        close(model.decode_batch([ids[10]], [seq]).numpy()[0], llama.logits("all", ids)[10])


def test_an_adapter_of_another_model_is_refused_before_anything_changes(llama, tmp_path):
    base = make_folder(tmp_path / "wide", "llama", hidden_size=128)
    deep = make_folder(tmp_path / "deep", "llama", num_hidden_layers=3)
    others = [LoraAdapter("none", {})]
    for folder in (base, deep):
        adapter = make_adapter(folder, folder.with_name(f"of {folder.name}"))
        others.append(read_adapter(adapter, load_model(folder).spec))
    with opened(llama.loaded) as model:
        before = model.memory_parts()
        for other in others:
            with pytest.raises(AdapterError, match=r"read_adapter\(\)"):
                model.install_adapter("x", other)
        assert (model.adapters.slots, model.memory_parts()) == ([], before)


def test_memory_that_is_not_there_changes_nothing(llama, monkeypatch):
    ids = prompt(6)
    with opened(llama.loaded) as model:
        slot = model.load_adapter("x", llama.paths["mlp"])
        pools = model.steps.adapters.layers

        def no_memory(*sizes, **options):
            raise MemoryError("not that much")

        with monkeypatch.context() as patch:
            patch.setattr("metrale_lab.engine.lora_pools.torch.zeros", no_memory)
            with pytest.raises(MemoryError):
                model.load_adapter("y", llama.paths["all"])
        assert model.steps.adapters.layers is pools
        assert model.adapters.names == ["x"]
        close(model.prefill(ids, fresh(model, slot)).numpy(), llama.logits("mlp", ids)[5])


def test_slots_that_hold_nothing_are_refused(llama):
    with opened(llama.loaded) as model:
        seq = fresh(model, 0)
        with pytest.raises(InvalidRequest, match="adapter_slot=0"):
            model.prefill([5], seq)
        slot = model.load_adapter("x", llama.paths["all"])
        seq.adapter_slot = slot + 1
        for call in (
            lambda: model.prefill([5], seq),
            lambda: model.lookup_prefix([5], seq),
            lambda: model.decode_batch([5], [seq]),
            lambda: model.reclaim_prefix_blocks_for([5], slot + 1, 1),
        ):
            with pytest.raises(AdapterError, match="holds no adapter"):
                call()
        seq.adapter_slot = slot
        model.prefill([5], seq)
        for wrong in (4, -2, "0", None, True):
            with pytest.raises(InvalidRequest, match="slot="):
                model.release_adapter(wrong)
        assert model.adapters.slots[slot].users == 1


def test_a_failed_first_use_gives_the_adapter_back(llama):
    with opened(llama.loaded, num_blocks=1) as model:
        slot = model.load_adapter("x", llama.paths["all"])
        seq = fresh(model, slot)
        with pytest.raises(Exception, match="exhausted"):
            model.prefill(prompt(9), seq)
        assert (seq.acquired_adapter_slot, model.adapters.slots[slot].users) == (-1, 0)
        model.prefill(prompt(3), seq)
        assert model.adapters.slots[slot].users == 1


def test_captures_are_kept_until_the_pools_grow(llama):
    """Another adapter, another row order: the same captures. A larger pool: new ones."""
    ids = prompt(9)
    events = []
    with opened(llama.loaded, events.append) as model:
        slots = [model.load_adapter(str(n), llama.paths["all"]) for n in range(4)]
        seqs = [fresh(model, slot) for slot in slots]
        for seq in seqs:
            model.prefill(ids, seq)
        model.decode_batch([1] * 4, seqs)
        model.decode_batch([1] * 4, seqs[::-1])
        captures = {one.key: one.captures for one in model.steps.graphs.info()}
        assert captures == {"prefill": 1, "decode 4": 1}
        model.free_sequence(seqs.pop())
        model.load_adapter("3", llama.paths["mlp"])
        assert len(model.steps.graphs) == 2
        before = model.decode_batch([1] * 3, seqs).numpy()
        for seq in seqs:
            model.free_sequence(seq)
        model.load_adapter("4", llama.paths["mlp"])
        assert len(model.steps.graphs) == 0
        again = [fresh(model, slot) for slot in slots[:3]]
        for seq in again:
            model.prefill([*ids, 1, 1], seq)
        close(model.decode_batch([1] * 3, again).numpy(), torch.as_tensor(before))
        parts = [one for one in events if isinstance(one, MemoryPart) and one.part == "adapters"]
        assert [one.nbytes for one in parts[::2]] == [0, model.memory_parts()["adapters"]]
        assert 0 < parts[1].nbytes < parts[2].nbytes


def test_without_adapters_nothing_is_added_to_a_step(llama):
    with opened(llama.loaded) as model:
        seq = fresh(model, -1)
        model.prefill(prompt(5), seq)
        model.decode_batch([5], [seq])
        bare = [one.nbytes for one in model.steps.graphs.info()]
        assert model.memory_parts()["adapters"] == 0
        model.load_adapter("x", llama.paths["all"])
        model.prefill(prompt(5), fresh(model, -1))
        model.decode_batch([5], [seq])
        assert all(a < b.nbytes for a, b in zip(bare, model.steps.graphs.info(), strict=True))


def test_with_the_last_adapter_the_pools_go(llama):
    ids = prompt(9)
    with opened(llama.loaded) as model:
        bare = model.decode_batch([5], [fresh(model, -1)]).numpy().tobytes()
        for name in ("rs", "mlp"):
            slots = llama.load_all(model)
            seq = fresh(model, slots["all"])
            model.prefill(ids[:7], seq)
            for one in ADAPTERS:
                model.unload_adapter(one)
            close(model.decode_batch([ids[7]], [seq]).numpy()[0], llama.logits("all", ids)[7])
            assert model.memory_parts()["adapters"] > 0, "a row still needs its own"
            model.free_sequence(seq)
            slot = model.load_adapter(name, llama.paths[name])
            seq = fresh(model, slot)
            close(model.prefill(ids, seq).numpy(), llama.logits(name, ids)[8])
            model.free_sequence(seq)
            model.unload_adapter(name)
            assert model.memory_parts()["adapters"] == 0
            assert model.decode_batch([5], [fresh(model, -1)]).numpy().tobytes() == bare


@pytest.mark.parametrize("user", ["sequence", "lease"])
def test_the_pools_go_when_the_last_user_of_the_last_adapter_does(llama, user):
    told = []
    with opened(llama.loaded, told.append) as model:
        bare = model.decode_batch([5], [fresh(model, -1)]).numpy().tobytes()
        slot = model.load_adapter("all", llama.paths["all"])
        seq = fresh(model, slot)
        if user == "sequence":
            model.prefill(prompt(7), seq)
        else:
            model.acquire_adapter("all")
        model.unload_adapter("all")
        assert model.memory_parts()["adapters"] > 0
        if user == "sequence":
            model.free_sequence(seq)
        else:
            model.release_adapter(slot)
        assert model.memory_parts()["adapters"] == 0
        assert [one.nbytes for one in told if getattr(one, "part", "") == "adapters"][-1] == 0
        assert model.decode_batch([5], [fresh(model, -1)]).numpy().tobytes() == bare


def test_a_failed_step_is_not_told_to_who_frees_the_last_user_of_an_adapter(llama):
    def fail():
        raise RuntimeError("planted")

    with opened(llama.loaded) as model:
        seq = fresh(model, model.load_adapter("all", llama.paths["all"]))
        model.prefill(prompt(7), seq)
        model.unload_adapter("all")
        model.default_stream.enqueue(fail)
        model.free_sequence(seq)
        with pytest.raises(DeviceFault, match="planted"):
            model.default_stream.synchronize()
        model.load_adapter("mlp", llama.paths["mlp"])
        model.unload_adapter("mlp")
        assert model.memory_parts()["adapters"] == 0


def test_an_empty_slot_is_poisoned_and_read_by_nobody(llama):
    ids = prompt(9)
    with opened(llama.loaded, poison=True) as model:
        slots = llama.load_all(model)
        seq = fresh(model, slots["all"])
        model.prefill(ids[:7], seq)
        model.unload_adapter("rs")
        model.unload_adapter("all")
        close(model.decode_batch([ids[7]], [seq]).numpy()[0], llama.logits("all", ids)[7])
        model.free_sequence(seq)
        model.default_stream.synchronize()
        pool = model.steps.adapters.layers[0]["qkv"]
        assert pool.a[slots["rs"] + 1].isnan().all()
        assert all(one[slots["all"] + 1].isnan().all() for one in pool.b)
        other = fresh(model, slots["mlp"])
        close(model.prefill(ids, other).numpy(), llama.logits("mlp", ids)[8])
        slot = model.load_adapter("rs", llama.paths["rs"])
        close(model.prefill(ids, fresh(model, slot)).numpy(), llama.logits("rs", ids)[8])


def test_adapters_outlive_a_reset_and_are_told_to_a_new_observer(llama):
    late = []
    with opened(llama.loaded) as model:
        model.load_adapter("x", llama.paths["all"])
        model.observe(late.append)
        told = [one for one in late if isinstance(one, AdapterEvent)]
        assert [(one.kind, one.name) for one in told] == [("load", "x")] + [("add", "")] * 3
        assert not [one for one in late if isinstance(one, BlockEvent)]
        assert MemoryPart("adapters", model.memory_parts()["adapters"]) in late


def test_where_it_is_asked_for_a_row_has_the_same_bits_beside_other_adapters(bench):
    ids = prompt(21)
    with opened(bench.loaded, max_batch=8, company_free=True, prefix_cache=False) as model:
        slots = bench.load_all(model)
        seqs = {name: fresh(model, slot) for name, slot in slots.items()}
        for seq in seqs.values():
            model.prefill(ids[:20], seq)

        def scores(*names):
            """Of the first row; then all rows are as they were before."""
            rows = [seqs[name] for name in names]
            found = model.decode_batch([ids[20]] * len(rows), rows).numpy()[0].tobytes()
            for seq in rows:
                model.free_sequence(seq)
            for name in names:
                seqs[name] = fresh(model, slots[name])
                model.prefill(ids[:20], seqs[name])
            return found

        for name in slots:
            alone = scores(name)
            others = [other for other in slots if other != name]
            assert all(scores(name, *others[:count]) == alone for count in (1, 2, 3)), name


def test_in_bfloat16_an_adapter_is_as_near_as_its_model(bench):
    """The factors stay float32; what is added is rounded once."""
    ids = prompt(12)
    with opened(bench.loaded, dtype=torch.bfloat16, kv_dtype=torch.bfloat16) as model:
        slots = bench.load_all(model)
        seqs = [fresh(model, slots[name]) for name in bench.paths]
        for seq in seqs:
            model.prefill(ids[:11], seq)
        scores = model.decode_batch([ids[11]] * len(seqs), seqs).numpy()
        assert model.steps.adapters.layers[0]["gate_up"].b[0].dtype == torch.float32
        for name, row in zip(bench.paths, scores, strict=True):
            expected = bench.logits(name, ids)[11]
            wrong = (torch.as_tensor(row).float() - expected).std() / expected.std()
            assert wrong < BOUND_OF_HALVES, name
