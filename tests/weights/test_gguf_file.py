"""The header reader finds what the gguf library's reader finds, field by field."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch

from metrale_lab.errors import ModelFormatError
from metrale_lab.weights.gguf_file import GgufFile

SCALARS = {
    "uint8": 200,
    "int8": -100,
    "uint16": 60_000,
    "int16": -30_000,
    "uint32": 4_000_000_000,
    "int32": -2_000_000_000,
    "uint64": 2**63 + 1,
    "int64": -(2**62),
    "float32": 0.15625,
    "float64": 1e-300,
    "bool": True,
    "string": "Zürich 漢字",
}


@pytest.fixture
def every_type(tmp_path):
    path = tmp_path / "every.gguf"
    writer = gguf.GGUFWriter(path, "none")
    for kind, value in SCALARS.items():
        getattr(writer, f"add_{kind}")(f"a.{kind}", value)
    for kind, values in {
        "ints": [1, -2, 3],
        "floats": [0.5, -0.25],
        "flags": [True, False, True],
        "texts": ["", "é", "x" * 300],
    }.items():
        writer.add_array(f"list.{kind}", values)
    values = np.linspace(-3, 3, 256 * 4, dtype=np.float32).reshape(2, 2, 256)
    for kind in ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0"):
        number = gguf.GGMLQuantizationType[kind]
        writer.add_tensor(kind, gguf.quants.quantize(values, number), raw_dtype=number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def assert_reads_the_same(path):
    ours, theirs = GgufFile(path), gguf.GGUFReader(path)
    fields = {k: f for k, f in theirs.fields.items() if not k.startswith("GGUF.")}
    assert list(ours.metadata) == list(fields)
    assert ours.version == theirs.fields["GGUF.version"].contents()
    for key, field in fields.items():
        value, expected = ours.metadata[key], field.contents()
        if isinstance(value, np.ndarray):
            assert value.tolist() == expected, key
        else:
            assert value == expected, key
            assert type(value) is type(expected), key
    assert list(ours.tensors) == [tensor.name for tensor in theirs.tensors]
    for tensor in theirs.tensors:
        info = ours.tensors[tensor.name]
        assert info.shape == tuple(reversed(tensor.shape.tolist()))
        assert (info.type, info.offset, info.nbytes) == (
            tensor.tensor_type,
            tensor.data_offset,
            tensor.n_bytes,
        )
    return ours, theirs


def test_every_value_and_tensor_type(every_type):
    ours, theirs = assert_reads_the_same(every_type)
    for tensor in theirs.tensors:
        expected = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        loaded = ours.load(tensor.name, torch.float32)
        assert torch.equal(loaded, torch.from_numpy(expected.reshape(loaded.shape).copy()))
        for dtype in (torch.bfloat16, torch.float16, torch.float64):
            assert torch.equal(ours.load(tensor.name, dtype), loaded.to(dtype))


@pytest.mark.weights
def test_smollm2(smollm2_path):
    ours, theirs = assert_reads_the_same(smollm2_path)
    for tensor in theirs.tensors[:12]:  # the embedding and one layer
        expected = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        assert np.array_equal(ours.load(tensor.name, torch.float32).numpy(), expected)


def test_other_alignments(tmp_path):
    for alignment in (8, 256):
        path = tmp_path / f"{alignment}.gguf"
        writer = gguf.GGUFWriter(path, "none")
        writer.add_custom_alignment(alignment)
        for name in ("a", "b"):
            writer.add_tensor(name, np.arange(3, dtype=np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        ours, _ = assert_reads_the_same(path)
        assert ours.load("b", torch.float32).tolist() == [0, 1, 2]


def test_a_type_that_nobody_dequantises_is_named(tmp_path):
    path = tmp_path / "ints.gguf"
    writer = gguf.GGUFWriter(path, "none")
    writer.add_tensor("counts", np.arange(4, dtype=np.int32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelFormatError, match=r"ints\.gguf: tensor counts has type I32"):
        GgufFile(path).load("counts", torch.float32)
