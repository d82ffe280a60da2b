"""Adapters through a whole lab: the texts of PEFT in every way; bad folders change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from metrale_lab import Lab, LabConfig
from metrale_lab.engine import Model
from metrale_lab.errors import AdapterError, EngineStopped, InvalidConfig
from metrale_lab.testing import Oracle, scripted_lab
from tests.lora_folders import ATTENTION, DELTA, MLP, adapted_model, greedy, make_adapter
from tests.tiny_models import HYBRIDS, make_folder

SMALL: dict[str, Any] = {
    "device": "cpu",
    "threads": 1,
    "num_blocks": 96,
    "block_size": 8,
    "max_batch": 8,
    "max_seq_len": 128,
}
TOKENS = 16
NAMES = (None, "all", "rs", "some")
ADAPTERS: dict[str, dict[str, Any]] = {
    "all": {"r": 3, "target_modules": "all-linear"},
    "rs": {"r": 8, "use_rslora": True, "target_modules": ATTENTION},
    "some": {"r": 2, "target_modules": MLP, "layers_to_transform": [1]},
}
PROMPTS = [[3 + (7 * at + 11 * text) % 240 for at in range(19 + 4 * text)] for text in range(2)]


class Bench:
    """A model, its adapters, and for each what PEFT writes after each prompt."""

    def __init__(self, path: Path, architecture: str) -> None:
        self.base = make_folder(path / "base", architecture)
        hybrid = {"rs": {"target_modules": [*DELTA, "q_proj"]}} if architecture in HYBRIDS else {}
        self.paths = {
            name: make_adapter(self.base, path / name, seed=seed, **options | hybrid.get(name, {}))
            for seed, (name, options) in enumerate(ADAPTERS.items())
        }
        self.expected = {}
        for name in NAMES:
            model = adapted_model(self.base, self.paths.get(name))  # type: ignore[arg-type]
            self.expected[name] = [greedy(model, prompt, TOKENS) for prompt in PROMPTS]

    def open(self, **options: Any) -> Lab:
        return Lab(self.base, adapters=tuple(self.paths.items()), **SMALL | options)


@pytest.fixture(scope="module", params=["llama", "qwen2", "qwen3", "qwen3_5_text"])
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("one"), "llama")


def ask(lab: Lab, name: str | None, prompt: int) -> Any:
    return lab.submit(token_ids=PROMPTS[prompt], adapter=name, max_tokens=TOKENS, ignore_eos=True)


def all_at_once(lab: Lab) -> list[Any]:
    """Eight rows, of the base model and three adapters, in one batch; their results."""
    with lab.paused():
        requests = [ask(lab, name, prompt) for prompt in range(2) for name in NAMES]
    return [request.result(60) for request in requests]


@pytest.mark.parametrize("scheduler", ["sync", "async"])
@pytest.mark.parametrize("chunk", [0, 16])
def test_eight_mixed_rows_write_what_peft_writes(bench: Bench, scheduler: str, chunk: int) -> None:
    """Cold, then warm from the cache of the first round; alone in the end."""
    with bench.open(scheduler=scheduler, max_prefill_tokens=chunk, poison=True) as lab:
        expected = [bench.expected[name][prompt] for prompt in range(2) for name in NAMES]
        assert len({tuple(text) for text in expected}) == 8
        cold, warm = all_at_once(lab), all_at_once(lab)
        assert [list(one.token_ids) for one in cold] == expected
        assert [list(one.token_ids) for one in warm] == expected
        assert [one.cached_tokens for one in cold] == [0] * 8
        assert [one.cached_tokens for one in warm] == [16] * 8
        assert lab.frames.feed()["rows"].max() == 8
        for name in NAMES:
            assert list(ask(lab, name, 1).result(60).token_ids) == bench.expected[name][1]
        assert lab.check()["holds"].all()


@pytest.mark.parametrize("scheduler", ["sync", "async"])
def test_preempted_rows_write_what_peft_writes(bench: Bench, scheduler: str) -> None:
    with bench.open(scheduler=scheduler, num_blocks=18, admit_watermark=0) as lab:
        results = all_at_once(lab)
        assert sum(one.preemptions for one in results) > 0
        expected = [bench.expected[name][prompt] for prompt in range(2) for name in NAMES]
        assert [list(one.token_ids) for one in results] == expected
        assert set(lab.frames.adapters()["users"]) == {0}
        assert lab.check()["holds"].all()


def test_a_reload_while_the_old_one_serves(llama: Bench) -> None:
    """v1's request keeps v1, one that comes later gets v2, and nothing is shared."""
    with llama.open() as lab:
        lab.pause()
        old = ask(lab, "all", 0)
        lab.step(3)
        assert old.state == "running"
        lab.load_adapter("all", llama.paths["rs"])
        new = ask(lab, "all", 0)
        lab.step(2)
        assert new.state == "running"
        assert (
            lab.frames.adapters()["state"].tolist()[:4] == ["draining", "loaded"] + ["loaded"] * 2
        )
        lab.resume()
        assert list(old.result(60).token_ids) == llama.expected["all"][0]
        assert list(new.result(60).token_ids) == llama.expected["rs"][0]
        assert new.result().cached_tokens == 0
        lab.run_until_idle()
        assert lab.frames.adapters()["state"].tolist()[0] == "free"


def test_bad_folders_leave_a_running_lab_as_it_was(llama: Bench, tmp_path: Path) -> None:
    with llama.open() as lab:
        before = lab.frames.adapters()
        running = ask(lab, "some", 1)
        for path in (tmp_path / "nowhere", llama.base, tmp_path, 3, ""):
            with pytest.raises(AdapterError):
                lab.load_adapter("some", path)  # type: ignore[arg-type]
        with pytest.raises(AdapterError, match="'other' is not loaded"):
            lab.unload_adapter("other")
        with pytest.raises(AdapterError, match="'other' is not loaded"):
            ask(lab, "other", 0)
        with pytest.raises(AdapterError, match="'other' is not loaded"):
            lab.generate(["a"], adapter="other", progress=False)
        assert list(running.result(60).token_ids) == llama.expected["some"][1]
        lab.run_until_idle()
        assert lab.frames.adapters().equals(before)
        assert lab.errors() == []


def test_generate_takes_an_adapter(llama: Bench) -> None:
    with llama.open() as lab:
        texts = {
            name: lab.generate("the cache", adapter=name, max_tokens=5, progress=False)[0].token_ids
            for name in NAMES
        }
        assert len(set(texts.values())) > 1


def test_adapters_of_the_configuration_are_checked() -> None:
    pairs = (("a", "x"), ("b", "y=z"))
    for given in (pairs, [["a", "x"], ["b", "y=z"]], ("a=x", "b=y=z"), dict(pairs)):
        assert LabConfig(adapters=given).adapters == pairs  # type: ignore[arg-type]
    for wrong in ("a=x", 3, ("a",), (("a", "x"), "a=y"), (("", "x"),), (("a", 3),), ("=x",), None):
        with pytest.raises(InvalidConfig, match="adapters"):
            LabConfig(adapters=wrong)  # type: ignore[arg-type]


def test_a_lab_whose_adapter_cannot_be_loaded_does_not_open(llama: Bench, tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match="no such folder"):
        Lab(llama.base, adapters=(("a", tmp_path / "nowhere"),), **SMALL)
    with scripted_lab(adapters=("a",)) as lab:  # another lab opens as before
        assert lab.submit("abc", adapter="a").result(60).finish_reason == "length"


def test_a_model_without_adapters_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted_lab() as lab:
        monkeypatch.setattr("metrale_lab.assembly.TransformerAdapters", type("None", (), {}))
        for call in (lambda: lab.load_adapter("a", "x"), lambda: lab.unload_adapter("a")):
            with pytest.raises(AdapterError, match="a TagModel has no adapters"):
                call()
        assert isinstance(lab.model, Model)


def test_a_closed_lab_loads_nothing() -> None:
    lab = scripted_lab(adapters=("a",))
    lab.close()
    for call in (lambda: lab.load_adapter("b", "x"), lambda: lab.unload_adapter("a")):
        with pytest.raises(EngineStopped):
            call()
    assert lab.frames.adapters()["name"].tolist()[0] == "a"


def test_adapters_come_and_go_while_requests_run() -> None:
    """Steps are in flight at each load; each text is that of what its request found."""
    with scripted_lab(max_batch=4, completion="lag") as lab:
        requests, oracles = [], []
        lab.pause()
        for number in range(12):
            name, path = f"a{number % 3}", f"folder {number}"
            lab.load_adapter(name, path)
            request = lab.submit("onceuponatime", adapter=name, max_tokens=30)
            while request.state == "waiting":  # what a name stands for is settled at admission
                lab.step()
            requests.append(request)
            oracles.append(Oracle(adapters={name: path}))
            if number % 4 == 3:
                lab.unload_adapter(name)
        lab.resume()
        for request, oracle in zip(requests, oracles, strict=True):
            result = request.result(60)
            assert result.token_ids == oracle.generate(request.spec)[0]
        lab.run_until_idle()
        assert set(lab.frames.adapters()["users"]) == {0}
        assert lab.check()["holds"].all()
