import threading
import weakref

import numpy as np
import pytest
import torch

from metrale_lab.device import memory
from metrale_lab.device.base import PinnedMemory
from metrale_lab.device.memory import LiveCount, free_host_memory, host_copy


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
