import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch

from metrale_lab.device import memory
from metrale_lab.device.base import PinnedMemory
from metrale_lab.device.memory import LiveCount, free_host_memory, host_copy, zeros


@pytest.mark.parametrize("count", [0, 1, 5, 2**15, 2**16])
def test_host_copy_copies_every_byte_when_it_runs(count):
    source, target = np.arange(count, dtype="int64"), np.zeros(count, dtype="int64")
    copy = host_copy(target, source)
    assert not target.any()
    copy()
    assert np.array_equal(source, target)
    source += 1
    copy()
    assert np.array_equal(source, target)


def test_counts_of_several_threads_add_up():
    live = LiveCount()

    def work():
        for _ in range(500):
            live.add(3)
            live.add(-2)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert live.value == 2000


def test_giving_back_more_than_was_taken_is_an_error():
    with pytest.raises(AssertionError, match="given back"):
        LiveCount().add(-1)


def test_free_memory_is_that_of_the_machine_within_the_container(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    unlimited = free_host_memory()
    assert unlimited > 2**20
    (tmp_path / "memory.max").write_text("3000000\n")
    (tmp_path / "memory.current").write_text("2000000\n")
    (tmp_path / "memory.stat").write_text("anon 5\ninactive_file 500000\n")
    assert free_host_memory() == 1_500_000
    (tmp_path / "memory.max").write_text("max\n")
    assert free_host_memory() > 2**20
    (tmp_path / "memory.max").write_text("1000000\n")
    assert free_host_memory() == 0


def test_freed_pinned_memory_lets_its_bytes_go():
    storage = torch.zeros(64, dtype=torch.uint8)
    gone = weakref.ref(storage)
    pinned = PinnedMemory(storage)
    view = pinned.view(8, 16)
    assert view.numpy("int64").tolist() == [0, 0]
    del storage
    pinned.free()
    assert gone() is None
    with pytest.raises(ValueError, match="freed"):
        view.numpy()


@pytest.mark.parametrize(("offset", "nbytes"), [(-1, 4), (0, 65), (60, 8), (65, 0)])
def test_a_view_outside_the_memory_is_refused(offset, nbytes):
    with pytest.raises(ValueError, match="do not lie"):
        PinnedMemory(torch.zeros(64, dtype=torch.uint8)).view(offset, nbytes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8, torch.int64])
@pytest.mark.parametrize("shape", [(), (0, 4), (3,), (2, 5, 7)])
def test_zeros_are_what_torch_gives_and_begin_at_a_cache_line(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    ours = zeros(shape, dtype, torch.device("cpu"))
    assert torch.equal(ours, torch.zeros(shape, dtype=dtype))
    assert ours.is_contiguous()
    assert ours.numel() == 0 or ours.data_ptr() % 64 == 0


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="counts pages as Linux does")
def test_zeros_take_memory_only_where_they_are_written() -> None:
    pages = 2**30 // 4096
    before = resident_pages()
    pool = zeros((2**28,), torch.float32, torch.device("cpu"))
    assert resident_pages() - before < pages // 16
    pool[: 2**26] = 1
    assert resident_pages() - before > pages // 5


def resident_pages() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1])
