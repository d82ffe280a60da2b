"""Tokenizers agree with transformers', and with llama.cpp's rules where those differ."""

from __future__ import annotations

import functools
import json

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

from metrale_lab.errors import InvalidRequest, ModelFormatError
from metrale_lab.weights.folder_tokenizer import tokenizer_from_folder
from metrale_lab.weights.gguf_file import GgufFile
from metrale_lab.weights.gguf_tokenizer import tokenizer_from_gguf
from metrale_lab.weights.pretokenizers import PRE_TOKENIZERS
from metrale_lab.weights.token_bytes import byte_level_bytes
from metrale_lab.weights.tokenizer import Tokenizer
from tests import tiny_models
from tests.weights.texts import MARKED, OTHER_DIGITS, TEXTS

CHATS = (
    [{"role": "user", "content": "hé 12"}],
    [
        {"role": "system", "content": "Be <|im_end|> brief."},
        {"role": "user", "content": " What?\n"},
        {"role": "assistant", "content": "That."},
        {"role": "user", "content": "{{ 7 * 7 }} {% raise %}"},
    ],
)


@functools.cache
def tiny():
    """The tiny vocabulary, where hypothesis cannot take a fixture."""
    return Tokenizer(
        tiny_models.tiny_tokenizer(),
        bytes_of=byte_level_bytes,
        added=list(enumerate(tiny_models.SPECIAL)),
        special_ids=range(3),
        eos_ids=[2],
    )


@pytest.fixture(scope="module")
def smollm2(smollm2_path):
    return tokenizer_from_gguf(GgufFile(smollm2_path))


@pytest.fixture(scope="module")
def reference(smollm2_path):
    return AutoTokenizer.from_pretrained(smollm2_path.parent, gguf_file=smollm2_path.name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_models.make_folder(tmp_path_factory.mktemp("models") / "tiny", "llama")


@pytest.fixture
def write_gguf(folder, tmp_path):
    """Builds the tokenizer of the tiny model's GGUF file with some fields changed."""

    def build(**overrides):
        named = {f"tokenizer.{key.replace('__', '.')}": value for key, value in overrides.items()}
        path = tiny_models.make_gguf(folder, tmp_path / "tiny.gguf", overrides=named)
        return tokenizer_from_gguf(GgufFile(path))

    return build


@pytest.mark.weights
@pytest.mark.parametrize("text", TEXTS + MARKED)
def test_smollm2_ids_equal_transformers(smollm2, reference, text):
    ids = smollm2.encode(text)
    assert ids == reference(text).input_ids
    assert smollm2.decode(ids) == reference.decode(
        ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
    )
    if text in TEXTS:
        assert smollm2.decode(ids) == text


@pytest.mark.weights
@pytest.mark.parametrize("text", TEXTS + MARKED + OTHER_DIGITS)
def test_smollm2_cuts_every_digit_off(smollm2, reference, text):
    """transformers' GGUF reader ignores this file's pre-tokenizer "smollm" and joins a space with
    digits such as ½; llama.cpp, like the model's own tokenizer.json, cuts each digit off."""
    digits = tokenizers.Tokenizer.from_str(reference.backend_tokenizer.to_str())
    digits.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), digits.pre_tokenizer]
    )
    assert smollm2.encode(text) == digits.encode(text).ids


@pytest.mark.weights
@pytest.mark.parametrize("messages", CHATS)
def test_smollm2_chats_equal_transformers(smollm2, reference, messages):
    text = reference.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert smollm2.apply_chat_template(messages) == text
    assert smollm2.encode_chat(messages) == reference(text).input_ids
    assert smollm2.encode_chat(messages)[0] == 1


@pytest.mark.weights
def test_smollm2_special_tokens(smollm2):
    assert smollm2.eos_ids == {0, 2}
    assert smollm2.special_ids == set(range(17))
    assert smollm2.vocab_size == 49_152
    assert smollm2.token_text(2) == "<|im_end|>"
    assert smollm2.token_text(49_152) == "[49152]"
    assert smollm2.token_text(-1) == "[-1]"


@pytest.mark.parametrize("text", TEXTS + MARKED)
def test_a_folder_equals_transformers(folder, text):
    ours = tokenizer_from_folder(folder, tiny_models.VOCAB_SIZE)
    theirs = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    assert ours.encode(text) == theirs(text).input_ids
    assert ours.decode(ours.encode(text)) == theirs.decode(
        theirs(text).input_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
    )
    assert ours.eos_ids == {0, 2}


@pytest.mark.parametrize("name", sorted(set(PRE_TOKENIZERS) & set(GGUF_PRE_TOKENIZER_SPLITS)))
def test_cuts_equal_those_that_transformers_knows(name):
    pattern = tokenizers.Regex(GGUF_PRE_TOKENIZER_SPLITS[name])
    expected = pre_tokenizers.Split(pattern, behavior="isolated")
    rule = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(one), behavior="isolated")
            for one in PRE_TOKENIZERS[name].patterns
        ]
    )
    for text in TEXTS + MARKED + OTHER_DIGITS:
        assert rule.pre_tokenize_str(text) == expected.pre_tokenize_str(text)


def test_gpt2_cuts_equal_the_librarys_own():
    rule, expected = PRE_TOKENIZERS["gpt-2"].build(), pre_tokenizers.ByteLevel(False)
    for text in TEXTS + MARKED + OTHER_DIGITS:
        assert rule.pre_tokenize_str(text) == expected.pre_tokenize_str(text)


def test_bos_and_eos_are_added_where_the_file_says(write_gguf):
    plain = write_gguf().encode("the cache")
    assert write_gguf(ggml__add_bos_token=True).encode("the cache") == [1, *plain]
    assert write_gguf(ggml__add_eos_token=True).encode("the cache") == [*plain, 2]
    both = write_gguf(ggml__add_bos_token=True, ggml__add_eos_token=True)
    assert both.encode("the cache") == [1, *plain, 2]
    assert both.encode("") == [1, 2]


def test_bos_follows_the_kind_of_vocabulary_when_the_file_is_silent(write_gguf):
    assert write_gguf(ggml__add_bos_token=None).encode("a")[0] != 1
    llama3 = write_gguf(ggml__add_bos_token=None, ggml__pre="llama-bpe")
    assert llama3.encode("a")[0] == 1
    assert llama3.encode_chat(CHATS[0]).count(1) == 2  # those that the template writes


def test_bos_without_an_id_is_refused(write_gguf):
    with pytest.raises(ModelFormatError, match="bos_token_id is missing"):
        write_gguf(ggml__add_bos_token=True, ggml__bos_token_id=None)


def test_whole_words_are_taken_before_merging(write_gguf):
    described = tiny_models.tokenizer_metadata()
    tokens = list(described["tokenizer.ggml.tokens"])
    tokens[-1] = "Ġzebra"  # reached by no merge
    merged = write_gguf(ggml__tokens=tokens).encode(" zebra")
    whole = write_gguf(ggml__tokens=tokens, ggml__pre="llama-bpe", ggml__add_bos_token=False)
    assert len(merged) > 1
    assert whole.encode(" zebra") == [len(tokens) - 1]


def test_user_defined_tokens_are_matched_whole_and_spoken(write_gguf):
    tokens = list(tiny_models.tokenizer_metadata()["tokenizer.ggml.tokens"])
    kinds = list(tiny_models.tokenizer_metadata()["tokenizer.ggml.token_type"])
    tokens[310], kinds[310] = "<think é>", 4
    ours = write_gguf(ggml__tokens=tokens, ggml__token_type=kinds)
    ids = ours.encode("a<think é>b<|im_end|>")
    assert ids[1] == 310
    assert ours.decode(ids) == "a<think é>b"
    assert ours.token_text(310) == "<think é>"


def test_every_declared_end_is_an_end(write_gguf):
    assert write_gguf(ggml__eot_token_id=7, ggml__eom_token_id=9).eos_ids == {0, 2, 7, 9}


def test_ends_of_a_folder_come_from_its_generation_config(folder, tmp_path):
    (tmp_path / "tokenizer.json").write_text((folder / "tokenizer.json").read_text())
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 6]}))
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": 9}))
    assert tokenizer_from_folder(tmp_path, 320).eos_ids == {0, 2, 5, 6}
    (tmp_path / "generation_config.json").unlink()
    assert tokenizer_from_folder(tmp_path, 320).eos_ids == {0, 2, 9}


@given(st.lists(st.integers(-2, 330)))
def test_streamed_text_equals_the_decoded_whole(ids):
    ours = tiny()
    stream = ours.detokenizer()
    pieces = [stream.push(token_id) for token_id in ids]
    text = "".join(pieces) + stream.flush()
    assert text == ours.decode(ids)
    assert stream.flush() == ""
    in_order = b"".join(ours._spoken[one] for one in ids if 0 <= one < ours.vocab_size)
    assert text == in_order.decode(errors="replace")


@given(st.text())
def test_text_survives_the_way_there_and_back(text):
    ours = tiny()
    ids = ours.encode(text)
    stream = ours.detokenizer()
    seen = ""
    for token_id in ids:
        seen += stream.push(token_id)
        assert "\ufffd" in text or text.startswith(seen)  # never half a character
    assert seen + stream.flush() == text or any(mark in text for mark in tiny_models.SPECIAL)


def test_a_cut_character_appears_with_its_last_byte(write_gguf):
    ours = write_gguf()
    ids = [ours.encode("é")[0], ours.encode("é")[1]]
    stream = ours.detokenizer()
    assert [stream.push(one) for one in ids] == ["", "é"]
    assert stream.push(ids[0]) == ""
    assert stream.flush() == "\ufffd"
    assert stream.push(ids[1]) == "\ufffd"
    assert ours.token_text(ids[0]) == "\ufffd"


def test_lone_surrogates_do_not_stop_a_request(write_gguf):
    ours = write_gguf()
    assert ours.decode(ours.encode("a\ud800b")) == "a\ufffdb"
    assert ours.decode(ours.encode("\ud83d\ude00")) == "😀"


def test_sentencepiece_folders_speak_spaces_and_bytes(tmp_path):
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "b", "▁a", "é"]
    backend = tokenizers.Tokenizer(
        models.BPE(
            {piece: at for at, piece in enumerate(pieces)},
            [("▁", "a")],
            unk_token="<unk>",
            byte_fallback=True,
        )
    )
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    backend.save(str(tmp_path / "tokenizer.json"))
    ours = tokenizer_from_folder(tmp_path, 1000)
    for text in ("a ab  é😀 a", " a", "b", "", "漢"):
        ids = ours.encode(text)
        assert ids == backend.encode(text).ids
        assert ours.decode(ids) == backend.decode(ids) == text.removeprefix(" ")


def test_prompts_are_neither_cut_nor_padded(folder, tmp_path):
    backend = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    backend.enable_truncation(4)
    backend.enable_padding(length=100)
    backend.save(str(tmp_path / "tokenizer.json"))
    ours = tokenizer_from_folder(tmp_path, 320)
    assert ours.decode(ours.encode("a long prompt, short")) == "a long prompt, short"
    assert len(ours.encode("z z z z z z")) < 100


def test_a_decoder_that_is_not_known_is_refused(folder, tmp_path):
    described = json.loads((folder / "tokenizer.json").read_text())
    described["decoder"] = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    (tmp_path / "tokenizer.json").write_text(json.dumps(described))
    with pytest.raises(ModelFormatError, match=r"decoder is .*WordPiece.* expected ByteLevel"):
        tokenizer_from_folder(tmp_path, 320)


def test_without_a_template_messages_are_refused(write_gguf):
    with pytest.raises(InvalidRequest, match="no chat template; submit text"):
        write_gguf(chat_template=None).encode_chat(CHATS[0])
