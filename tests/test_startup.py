"""A lab starts fast because it brings only what serving takes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

FOR_LOOKING = ("pandas", "pyarrow", "matplotlib", "IPython", "ipywidgets", "anywidget", "PIL")
FOR_OTHER_FILES = ("gguf", "transformers", "peft")
_SERVE = """
import json, sys
from metrale_lab import Lab
with Lab(num_blocks=8, max_seq_len=64) as lab:
    (result,) = lab.generate("The little cat", max_tokens=2, ignore_eos=True)
assert len(result.token_ids) == 2
print(json.dumps([name for name in {names!r} if name in sys.modules]))
"""


@pytest.mark.parametrize("collecting", [True, False])
def test_the_import_leaves_the_garbage_collector_as_it_was(collecting: bool) -> None:
    program = (
        f"import gc; {'gc.enable' if collecting else 'gc.disable'}()\n"
        "from metrale_lab import Lab\n"
        "print(gc.isenabled())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == str(collecting), done.stderr


def test_serving_imports_nothing_that_only_looking_needs() -> None:
    program = _SERVE.format(names=(*FOR_LOOKING, *FOR_OTHER_FILES))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []
