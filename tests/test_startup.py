"""A lab starts fast because it brings only what serving takes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiny_models import make_folder

FOR_LOOKING = ("pandas", "pyarrow", "matplotlib", "IPython", "ipywidgets", "anywidget", "PIL")
FOR_OTHER_FILES = ("gguf", "transformers", "peft")
_SERVE = """
import json, sys
from metrale_lab import Lab
with Lab({folder!r}, num_blocks=8, max_seq_len=64) as lab:
    (result,) = lab.generate("the block", max_tokens=2, ignore_eos=True)
assert len(result.token_ids) == 2
print(json.dumps([name for name in {names!r} if name in sys.modules]))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("tiny") / "llama", "llama")


def test_serving_imports_nothing_that_only_looking_needs(folder: Path) -> None:
    program = _SERVE.format(folder=str(folder), names=(*FOR_LOOKING, *FOR_OTHER_FILES))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []
