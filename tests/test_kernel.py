"""In a real kernel: re-running a cell leaves one lab, and waiting can be interrupted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import start_new_kernel

from tests.tiny_models import make_folder

pytestmark = pytest.mark.notebook


@pytest.fixture
def kernel() -> Iterator[BlockingKernelClient]:
    manager, client = start_new_kernel(kernel_name="python3")
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("tiny") / "llama", "llama")


def run(client: BlockingKernelClient, code: str) -> str:
    """What the code printed; its error fails the test."""
    printed: list[str] = []

    def take(message: dict[str, Any]) -> None:
        if message["msg_type"] == "stream" and message["content"]["name"] == "stdout":
            printed.append(message["content"]["text"])

    reply = client.execute_interactive(code, output_hook=take, timeout=120)
    content = reply["content"]
    assert content["status"] == "ok", "\n".join(content.get("traceback", []))
    return "".join(printed)


MEASURE = """
import gc, json, threading
from pathlib import Path
gc.collect()
pages = int(Path("/proc/self/statm").read_text().split()[1])
print(json.dumps({"labs": len(labs()), "threads": threading.active_count(), "pages": pages}))
"""


def test_running_a_cell_twenty_times_leaves_one_lab_and_flat_memory(
    kernel: BlockingKernelClient, folder: Path
) -> None:
    run(kernel, "from metrale_lab import Lab, labs")
    cell = f"""
lab = Lab({str(folder)!r}, num_blocks=256, block_size=16, max_batch=2, max_seq_len=128)
lab
answer = lab.submit(token_ids=[5, 6, 7], max_tokens=4).result()
"""
    measured = []
    for turn in range(20):
        printed = run(kernel, cell)
        assert ("closed" in printed) == (turn > 0), printed
        assert printed.count("\n") == (turn > 0)
        measured.append(json.loads(run(kernel, MEASURE)))
    assert {one["labs"] for one in measured} == {1}
    assert len({one["threads"] for one in measured[2:]}) == 1
    pages = [one["pages"] for one in measured]
    assert pages[-1] < pages[9] * 1.02, pages


def test_two_labs_of_one_cell_are_both_kept(kernel: BlockingKernelClient, folder: Path) -> None:
    run(kernel, "from metrale_lab import Lab, labs")
    cell = f"pair = [Lab({str(folder)!r}, num_blocks=8, max_seq_len=64) for _ in range(2)]"
    for _ in range(3):
        run(kernel, cell)
        assert run(kernel, "print(len(labs()), labs() == pair)") == "2 True\n"
