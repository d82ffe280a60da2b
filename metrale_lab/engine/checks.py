"""Refuses what a caller may not ask, before anything changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import index

from metrale_lab.arguments import instance, integer, number, refusal, shown
from metrale_lab.counting import counted
from metrale_lab.engine.feed import NO_ID, RowDraw, RowMask
from metrale_lab.engine.sequence import SequenceState
from metrale_lab.errors import InvalidRequest, PromptTooLong

HOTTEST = 3.4e38  # temperature; float32 holds no more


def checked_ids(tokens: Sequence[int], vocab_size: int) -> list[int]:
    """The ids as plain ints. InvalidRequest when one is no integer or outside the vocabulary."""
    if not isinstance(tokens, Iterable) or isinstance(tokens, str | bytes | Mapping):
        raise refusal("tokens", tokens, "a sequence of token ids")
    ids = []
    for token in tokens:
        try:
            plain = -1 if isinstance(token, bool) else index(token)
        except Exception:
            plain = -1
        if not 0 <= plain < vocab_size:
            raise InvalidRequest(
                f"token id {shown(token)}: ids are integers from 0 to {vocab_size - 1}. "
                "Encode the text with this model's own tokenizer."
            )
        ids.append(plain)
    return ids


def check_batch(seqs: Sequence[SequenceState], items: int, max_batch: int) -> None:
    """InvalidRequest unless there are 1 to `max_batch` different sequences and an item for each."""
    if not 1 <= count("seqs", seqs) <= max_batch:
        raise InvalidRequest(
            f"a batch of {counted(len(seqs), 'row')}: this model "
            f"takes 1 to {max_batch}. Split the batch."
        )
    if items != len(seqs):
        raise InvalidRequest(
            f"{counted(items, 'input')} for {counted(len(seqs), 'sequence')}: "
            "give one per sequence."
        )
    if len({id(seq) for seq in seqs}) < len(seqs):
        raise InvalidRequest("a sequence stands twice in the batch. Give each row its own.")


def check_room(seq: SequenceState, tokens: int, max_seq_len: int) -> None:
    """PromptTooLong when the sequence may not grow by so many tokens."""
    if seq.seq_len + tokens > max_seq_len:
        raise PromptTooLong(
            f"{counted(tokens, 'more token')} after {seq.seq_len}: "
            f"sequence {seq.id} may hold {max_seq_len}.",
            "Raise max_seq_len, or give fewer tokens.",
        )


def checked_rows(rows: int, masks: int, draws: int | None, dst_bytes: int, max_rows: int) -> None:
    """InvalidRequest unless every row has its mask (and draw), and the ids fit into `dst`."""
    counts = {rows, masks} if draws is None else {rows, masks, draws}
    if len(counts) > 1 or not 1 <= rows <= max_rows:
        given = f"{counted(rows, 'row')} of scores, {counted(masks, 'mask')}"
        given += "" if draws is None else f", {counted(draws, 'draw')}"
        raise InvalidRequest(
            f"{given}: give one of each per row, at most {counted(max_rows, 'row')}."
        )
    if dst_bytes < 4 * rows:
        raise InvalidRequest(
            f"a view of {counted(dst_bytes, 'byte')} for "
            f"{counted(rows, 'id')}: {4 * rows} are needed. "
            "Give a wider view."
        )


def count(name: str, items: Sequence[object]) -> int:
    """How many there are. InvalidRequest when it is no list."""
    if not isinstance(items, Sequence) or isinstance(items, str | bytes):
        raise refusal(name, items, "a list with one item per row")
    return len(items)


def check_picks(masks: Sequence[RowMask], draws: Sequence[RowDraw] | None) -> None:
    """InvalidRequest unless each mask is two ids, and each draw has numbers in their ranges."""
    for row, mask in enumerate(masks):
        if not isinstance(mask, tuple | list) or len(mask) != 2:
            raise refusal(f"masks[{row}]", mask, "two token ids, NO_ID for none")
        for one in mask:
            integer(f"masks[{row}]", one, 0, NO_ID)
    for row, draw in enumerate(draws or ()):
        _check_draw(f"draws[{row}]", draw)


def _check_draw(name: str, draw: RowDraw) -> None:
    instance(name, draw, RowDraw)
    number(f"{name}.temperature", draw.temperature, "a number from 0 to 3.4e38", _is_warmth)
    number(f"{name}.top_p", draw.top_p, "a number from 0 to 1", lambda x: 0 <= x <= 1)
    integer(f"{name}.top_k", draw.top_k)
    integer(f"{name}.position", draw.position)
    integer(f"{name}.seed", draw.seed, -(2**63), 2**64 - 1)


def _is_warmth(value: float) -> bool:
    return 0 <= value <= HOTTEST
