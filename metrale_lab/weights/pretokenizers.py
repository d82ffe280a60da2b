"""How a text is cut into words before byte-pair merging, by the name that a GGUF file gives.

The names, patterns and flags are those of llama.cpp's vocabulary loader. A word is never merged
across the cuts, so a wrong pattern gives other tokens than the model was trained on.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import Regex, pre_tokenizers

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    rf"|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
)
_GPT4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_ENDINGS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_ENDINGS}?"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
)


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """A cutting rule.

    Attributes
    ----------
    patterns : tuple of str
        Applied one after the other, each to the pieces that the one before left.
    whole_words_first : bool
        A word that is a token itself is taken without merging.
    add_bos : bool
        Whether a text starts with BOS when the file does not say.
    """

    patterns: tuple[str, ...]
    whole_words_first: bool = False
    add_bos: bool = False

    def build(self) -> pre_tokenizers.PreTokenizer:
        """The rule as a part of the `tokenizers` library, with its byte alphabet at the end."""
        cuts = [pre_tokenizers.Split(Regex(one), behavior="isolated") for one in self.patterns]
        alphabet = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return pre_tokenizers.Sequence([*cuts, alphabet])


_GROUPS: tuple[tuple[PreTokenizer, tuple[str, ...]], ...] = (
    (PreTokenizer((_GPT2,)), ("gpt-2", "phi-2", "gigachat", "mellum", "olmo", "mpt", "exaone4")),
    (
        PreTokenizer((r"\p{N}", _GPT2)),
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"),
    ),
    (
        PreTokenizer((_LLAMA3,), whole_words_first=True, add_bos=True),
        ("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "midm-2.0", "lfm2"),
    ),
    (PreTokenizer((_LLAMA3,)), ("smaug-bpe", "dbrx", "glm4", "chatglm-bpe")),
    (
        PreTokenizer((_QWEN2,)),
        ("qwen2", "deepseek-r1-qwen", "stablelm2", "megrez", "hunyuan", "kormo"),
    ),
    (PreTokenizer((_TEKKEN,), whole_words_first=True, add_bos=True), ("tekken",)),
    (PreTokenizer((_GPT4O,)), ("gpt-4o", "llama4")),
)
PRE_TOKENIZERS: dict[str, PreTokenizer] = {name: rule for rule, names in _GROUPS for name in names}
