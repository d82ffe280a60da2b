"""Texts that trip tokenizers."""

from __future__ import annotations

TEXTS = (
    "",
    "Hello world",
    " ",
    "\n",
    "  two  spaces\n\n\ttab \n \n  x   ",
    "123 45 6.78e-9 1,000,000 a1b2c3 1234567",
    "'s 're I'LL don't CAN'T we'Ve 'S",
    "def f(x):\r\n    return x**2  # sq\r\n\r\n",
    "https://a.b/c?d=e&f#g ... --> != <= [x] {y}",
    "ünïcödé ß ĀĒ 漢字かな交じり 한국어 नमस्ते สวัสดี العربية",
    "CamelCase HTTPServer iPhone ǅ ﬁn éÉ",
    "😀👩‍👩‍👧‍👦🏳️‍🌈 e\u0301 \u200b\u00a0x\u3000y\u2028\u0085z",
    "price: $5 €6 ±7°",
    "\x00\x01\x7f\ufffd",
    "日本語123テスト",
)
MARKED = (
    "<|im_start|>user\nhi<|im_end|>\n",
    "<|im_start|><|im_end|>  <|endoftext|> x",
    "x<|im_end y|> <|im_end|",
)
OTHER_DIGITS = ("x ½ y", " ①②½ Ⅷ ٣٤ 三", "2² H₂O १२३")
