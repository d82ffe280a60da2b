"""A GGUF file that is cut, changed or of an unknown kind is a ModelFormatError that says where."""

from __future__ import annotations

import random
import struct

import gguf
import numpy as np
import pytest

from metrale_lab.errors import ModelFormatError, ModelNotFound
from metrale_lab.weights import load_model
from metrale_lab.weights.gguf_file import GgufFile
from tests import tiny_models


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A small llama file with llama3 rope factors."""
    folder = tmp_path_factory.mktemp("models")
    model = tiny_models.make_folder(folder / "tiny", "llama", tied=True, rope="llama3")
    return tiny_models.make_gguf(model, folder / "tiny.gguf", quant="Q8_0")


@pytest.fixture(scope="module")
def header_size(whole):
    return min(info.offset for info in GgufFile(whole).tensors.values())


@pytest.fixture
def copy(whole, tmp_path):
    path = tmp_path / "copy.gguf"
    path.write_bytes(whole.read_bytes())
    return path


def test_a_file_cut_at_any_byte_of_its_header_is_refused(copy, header_size):
    with copy.open("r+b") as file:
        for size in range(header_size - 1, -1, -1):
            file.truncate(size)
            with pytest.raises(ModelFormatError, match=r"^copy\.gguf: .*(expected|cut)"):
                GgufFile(copy)


def test_a_file_cut_in_its_tensors_is_refused(copy, header_size):
    size = copy.stat().st_size
    with copy.open("r+b") as file:
        for cut in (size - 1, size - 40, header_size + 1, header_size):
            file.truncate(cut)
            with pytest.raises(ModelFormatError, match=rf"the file ends at {cut}: it is cut"):
                load_model(copy)


def test_a_changed_byte_loads_or_is_refused(copy, header_size):
    data = copy.read_bytes()
    random_ = random.Random(7)
    refused = 0
    with copy.open("r+b", buffering=0) as file:
        for at in random_.sample(range(header_size), 1500):
            file.seek(at)
            file.write(bytes([data[at] ^ random_.choice((0x01, 0x80, 0xFF))]))
            try:
                load_model(copy)
            except ModelFormatError:
                refused += 1
            file.seek(at)
            file.write(data[at : at + 1])
    assert refused > 500
    load_model(copy)


@pytest.mark.parametrize("count", [2**31, 2**63, 2**64 - 1])
@pytest.mark.parametrize("field", ["tensors", "fields"])
def test_huge_counts_end_at_the_end_of_the_file(copy, field, count):
    data = bytearray(copy.read_bytes())
    struct.pack_into("<Q", data, 8 if field == "tensors" else 16, count)
    copy.write_bytes(data)
    with pytest.raises(ModelFormatError, match=r"copy\.gguf: "):
        load_model(copy)


@pytest.mark.parametrize("kind", gguf.GGUFValueType)
def test_huge_arrays_end_at_the_end_of_the_file(tmp_path, kind):
    path = tmp_path / "huge.gguf"
    name = b"an.array"
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", len(name)) + name
    path.write_bytes(head + struct.pack("<IIQ", 9, kind, 2**61) + bytes(64))
    with pytest.raises(ModelFormatError, match=r"an\.array .* file ends at"):
        GgufFile(path)


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (0, b"GGML", r"magic is b'GGML'; expected b'GGUF'"),
        (4, struct.pack("<I", 1), r"version is 1; expected 2 or 3"),
        (4, struct.pack(">I", 3), r"version is 50331648 \(a big-endian file\)"),
        (4, struct.pack("<I", 4), r"version is 4; expected 2 or 3"),
    ],
)
def test_the_preamble_is_checked(copy, at, value, message):
    data = bytearray(copy.read_bytes())
    data[at : at + len(value)] = value
    copy.write_bytes(data)
    with pytest.raises(ModelFormatError, match=rf"copy\.gguf: {message}"):
        load_model(copy)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("general.architecture", "mamba", "'mamba'; expected one of llama, qwen2, qwen3"),
        ("llama.block_count", None, "missing; expected an integer"),
        ("llama.block_count", 2.0, "2.0; expected an integer"),
        ("llama.block_count", 2**31, "expected an integer from 1"),
        ("llama.block_count", 3, r"tensor blk\.2\.attn_norm\.weight is missing"),
        ("llama.embedding_length", 32, r"tensor token_embd\.weight has shape \(320, 64\)"),
        ("llama.feed_forward_length", 64, r"tensor blk\.0\.ffn_gate\.weight has shape"),
        ("llama.attention.head_count_kv", 3, "4 query heads for 3 key/value heads"),
        ("llama.attention.head_count_kv", 4, r"tensor blk\.0\.attn_k\.weight has shape"),
        ("llama.attention.layer_norm_rms_epsilon", float("nan"), "nan; expected a finite number"),
        ("llama.attention.layer_norm_rms_epsilon", None, "missing; expected a finite number"),
        ("llama.rope.freq_base", float("inf"), "inf; expected a finite number above 1"),
        ("llama.rope.freq_base", 0.5, "expected a finite number above 1"),
        ("llama.rope.dimension_count", 8, "8; expected the width of a head, 16"),
        ("llama.attention.value_length", 8, "8; expected the width of a head, 16"),
        ("llama.rope.scaling.type", "longrope", "'longrope'; expected none, linear or yarn"),
        ("llama.rope.scaling.type", "yarn", "expected none or linear beside the rope_freqs"),
        ("llama.context_length", None, "missing"),
        ("llama.vocab_size", 321, "321; expected the rows of token_embd.weight, 320"),
        ("llama.expert_count", 8, "8; expected 0: one dense model in one file"),
        ("llama.attention.sliding_window", 512, "512; expected 0"),
        ("split.count", 2, "2; expected 1: one dense model in one file"),
        ("tokenizer.ggml.model", "llama", "'llama'; expected 'gpt2'"),
        ("tokenizer.ggml.pre", "klingon", "'klingon'; expected one of .*smollm"),
        ("tokenizer.ggml.pre", None, "missing"),
        ("tokenizer.ggml.tokens", None, "None; expected an array of texts"),
        ("tokenizer.ggml.tokens", ["a"] * 320, "319 repeated.*expected each token once"),
        ("tokenizer.ggml.token_type", [1, 2], "expected an array of 320 integers"),
        ("tokenizer.ggml.merges", ["nowhere to"], "does not fit tokenizer.ggml.tokens"),
        ("tokenizer.ggml.merges", ["word"], "'word'; expected two tokens with a space between"),
        ("tokenizer.ggml.eos_token_id", 320, "320; expected an integer from 0 to 319"),
        ("tokenizer.ggml.add_bos_token", 1, "1; expected true or false"),
        ("tokenizer.chat_template", "{% for %}", "does not parse .* expected a Jinja template"),
    ],
)
def test_a_wrong_field_is_named(whole, tmp_path, field, value, message):
    path = tmp_path / "wrong.gguf"
    folder = whole.parent / "tiny"
    tiny_models.make_gguf(folder, path, quant="Q8_0", overrides={field: value})
    if field == "general.architecture":
        rewrite_architecture(path, value)
    with pytest.raises(ModelFormatError, match=rf"wrong\.gguf: .*{message}"):
        load_model(path)


def rewrite_architecture(path, name):
    """Of the same length as "llama", so that only these bytes change."""
    data = path.read_bytes()
    assert len(name) == len("llama")
    path.write_bytes(data.replace(b"llama", name.encode(), 1))


@pytest.fixture
def write_tensors(whole, tmp_path):
    """Writes a file with the fields of the tiny model and the tensors that a test gives."""

    def write(change):
        reader = gguf.GGUFReader(whole)
        tensors = {tensor.name: (tensor.data, tensor.tensor_type) for tensor in reader.tensors}
        change(tensors)
        path = tmp_path / "wrong.gguf"
        writer = gguf.GGUFWriter(path, "llama")
        for field in reader.fields.values():
            if field.name.startswith("GGUF.") or field.name == "general.architecture":
                continue
            kind = field.types[0]
            inner = field.types[1] if kind == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), kind, inner)
        for name, (data, kind) in tensors.items():
            writer.add_tensor(name, data, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return write


def test_a_missing_tensor_is_named(write_tensors):
    path = write_tensors(lambda tensors: tensors.pop("blk.1.ffn_up.weight"))
    with pytest.raises(ModelFormatError, match=r"blk\.1\.ffn_up\.weight is missing; expected"):
        load_model(path)


def test_a_tensor_that_the_engine_would_ignore_is_refused(write_tensors):
    bias = (np.zeros(64, np.float32), gguf.GGMLQuantizationType.F32)
    path = write_tensors(lambda tensors: tensors.update({"blk.0.attn_output.bias": bias}))
    with pytest.raises(ModelFormatError, match=r"blk\.0\.attn_output\.bias .* has no place"):
        load_model(path)


@pytest.mark.parametrize("bad", [0.0, float("nan"), -1.0, float("inf")])
def test_rope_factors_are_checked(write_tensors, bad):
    factors = np.ones(8, np.float32)
    factors[3] = bad
    kind = gguf.GGMLQuantizationType.F32
    path = write_tensors(lambda tensors: tensors.update({"rope_freqs.weight": (factors, kind)}))
    with pytest.raises(ModelFormatError, match=r"rope_freqs\.weight holds .* above 0"):
        load_model(path)


def patch_tensor(path, name, offset, value):
    """Overwrite bytes of a tensor's entry; offset counts from behind its name."""
    data = bytearray(path.read_bytes())
    at = data.index(struct.pack("<Q", len(name)) + name.encode()) + 8 + len(name) + offset
    data[at : at + len(value)] = value
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("offset", "value", "message"),
    [
        (0, struct.pack("<I", 0), "has 0 dimensions; expected 1 to 4"),
        (0, struct.pack("<I", 5), "has 5 dimensions; expected 1 to 4"),
        (4, struct.pack("<Q", 63), "expected a last dimension in multiples of 32"),
        (12, struct.pack("<Q", 0), r"has shape \(0, 64\)"),
        (12, struct.pack("<Q", 2**62), "it is cut"),
        (20, struct.pack("<I", 99), "has the unknown tensor type 99"),
        (20, struct.pack("<I", 4), "has the unknown tensor type 4"),
        (24, struct.pack("<Q", 33), "starts at byte 33; expected a multiple of 32"),
        (24, struct.pack("<Q", 2**63), "it is cut"),
        (24, struct.pack("<Q", 0), "overlaps another tensor"),
    ],
)
def test_a_wrong_tensor_entry_is_named(copy, offset, value, message):
    patch_tensor(copy, "blk.1.attn_k.weight", offset, value)
    with pytest.raises(ModelFormatError, match=rf"copy\.gguf: tensor .*{message}"):
        load_model(copy)


def test_what_is_no_file_at_all(tmp_path):
    with pytest.raises(ModelNotFound, match="no such file"):
        load_model(tmp_path / "nothing.gguf")
    (tmp_path / "empty.gguf").write_bytes(b"")
    with pytest.raises(ModelFormatError, match=r"empty\.gguf: the file is empty"):
        load_model(tmp_path / "empty.gguf")
    (tmp_path / "text.gguf").write_text("hello, I am no model")
    with pytest.raises(ModelFormatError, match=r"text\.gguf: magic is b'hell'"):
        load_model(tmp_path / "text.gguf")


@pytest.mark.parametrize("what", ["tensor", "field"])
def test_names_are_there_once(copy, what):
    data = copy.read_bytes()
    old, new = {
        "tensor": (b"blk.0.ffn_up.weight", b"blk.1.ffn_up.weight"),
        "field": (b"tokenizer.ggml.bos_token_id", b"tokenizer.ggml.eos_token_id"),
    }[what]
    copy.write_bytes(data.replace(old, new))
    with pytest.raises(ModelFormatError, match=rf"{new.decode()} is there twice; expected once"):
        load_model(copy)
