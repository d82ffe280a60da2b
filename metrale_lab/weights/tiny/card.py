"""The model card of `tiny`, filled in by its training."""

from __future__ import annotations

from collections.abc import Mapping

CARD = """\
---
license: apache-2.0
language: en
tags: [teaching, stories, hybrid]
---

# tiny

A language model of {parameters:,} parameters that tells short children's stories. It is shipped
with Metrale Lab so that a lab starts in a second, without a network, and still shows readable text:
`Lab("tiny")`. It knows nothing but its stories; whatever the prompt is, a story comes out.

## Architecture

`qwen3_5_text`: 6 layers, gated delta rule in two of three and gated attention in every third;
hidden size 192, MLP 384, heads of 64 elements, half of each turned by its position; 2,048 tokens of
byte-level BPE; input and output embedding are one; bfloat16. Trained on rows of {length} tokens,
positions up to 40,960.

## Data

{tokens:,} positions of stories drawn by a seeded grammar (`metrale_lab/weights/tiny/stories.py`):
a cast, one of sixteen plots, an ending. One in seven begins with other common words or a request,
so that a prompt from elsewhere leads to a story too. No text of other people is in it.

## Training

`python -m metrale_lab.weights.tiny.train` writes this folder anew. AdamW, {steps:,} steps of {rows}
rows, later of eight single stories, at last by turns; seed {seed}; one CPU core, {minutes} minutes
on the machine that made this file, which had other work beside it. Loss at the end, in nats per
token: {training_loss} on the last batch, {held_out_loss} on stories that training had not seen.
Another processor or version of PyTorch adds in another order and gives other weights of the same
quality.

## Adapters

Three LoRA adapters beside this folder have learned the same stories with other words in them:
`sea`, `castle` and `space` (rank 4, 120 steps each; made by
`python -m metrale_lab.weights.tiny.train_adapters`).

## What it writes

{samples}

## Limits

It repeats its plots and mixes up who did what now and then. It is for looking at an engine at work,
and for tests; for nothing else.

## Licence

Apache-2.0, as the rest of Metrale Lab.
"""


def card(facts: Mapping[str, float], samples: Mapping[str, str]) -> str:
    """The card's text; `samples` are greedy texts by their prompt."""
    told = "\n\n".join(f"> **{prompt}**{text}" for prompt, text in samples.items())
    return CARD.format(**facts, samples=told)
