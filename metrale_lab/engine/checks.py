"""Refuses what a caller may not ask, before anything changes."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index

from metrale_lab.engine.sequence import SequenceState
from metrale_lab.errors import InvalidRequest, PromptTooLong


def checked_ids(tokens: Sequence[int], vocab_size: int) -> list[int]:
    """The ids as plain ints. InvalidRequest when one is no integer or outside the vocabulary."""
    ids = []
    for token in tokens:
        try:
            number = -1 if isinstance(token, bool) else index(token)
        except TypeError:
            number = -1
        if not 0 <= number < vocab_size:
            raise InvalidRequest(
                f"token id {token!r}: ids are integers from 0 to {vocab_size - 1}. "
                "Encode the text with this model's own tokenizer."
            )
        ids.append(number)
    return ids


def check_batch(seqs: Sequence[SequenceState], items: int, max_batch: int) -> None:
    """InvalidRequest unless there are 1 to `max_batch` different sequences and an item for each."""
    if not 1 <= len(seqs) <= max_batch:
        raise InvalidRequest(
            f"a batch of {len(seqs)} rows: this model takes 1 to {max_batch}. Split the batch."
        )
    if items != len(seqs):
        raise InvalidRequest(f"{items} inputs for {len(seqs)} sequences: give one per sequence.")
    if len({id(seq) for seq in seqs}) < len(seqs):
        raise InvalidRequest("a sequence stands twice in the batch. Give each row its own.")


def check_room(seq: SequenceState, tokens: int, max_seq_len: int) -> None:
    """PromptTooLong when the sequence may not grow by so many tokens."""
    if seq.seq_len + tokens > max_seq_len:
        raise PromptTooLong(
            f"{tokens} more tokens after {seq.seq_len}: sequence {seq.id} may hold {max_seq_len}. "
            "Raise max_seq_len, or give fewer tokens."
        )


def checked_rows(rows: int, masks: int, draws: int | None, dst_bytes: int, max_rows: int) -> None:
    """InvalidRequest unless every row has its mask (and draw), and the ids fit into `dst`."""
    counts = {rows, masks} if draws is None else {rows, masks, draws}
    if len(counts) > 1 or not 1 <= rows <= max_rows:
        given = f"{rows} rows of scores, {masks} masks"
        given += "" if draws is None else f", {draws} draws"
        raise InvalidRequest(f"{given}: give one of each per row, at most {max_rows} rows.")
    if dst_bytes < 4 * rows:
        raise InvalidRequest(
            f"{rows} ids need {4 * rows} bytes, the view has {dst_bytes}. Give a wider view."
        )
