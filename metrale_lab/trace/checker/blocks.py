"""Laws of blocks and tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from metrale_lab.counting import counted
from metrale_lab.trace.checker.compare import wrong_tables
from metrale_lab.trace.checker.world import World


def i1(world: World) -> Iterator[str]:
    """Free + held + held for in-flight steps = total; the dummy block and slot are in none."""
    total, free = world.pool.total, len(world.free_list)
    taken = total - world.ref_counts.count(0)
    if free + taken != total:
        yield f"{free} free + {taken} referenced is not {counted(total, 'block')}"
    for block in {*world.owners, *world.free_list}.difference(range(total)):
        yield f"block {block} is outside the pool of {total}"


def i2(world: World) -> Iterator[str]:
    """References of a block = entries of live tables + 1 if the cache stores it + holds."""
    owners = world.owners
    for block, count in enumerate(world.ref_counts):
        if count != (known := owners.get(block, 0)):
            yield f"block {block} has {counted(count, 'reference')}, {known} with an owner"


def i3(world: World) -> Iterator[str]:
    """The free list has no duplicate and only blocks without references."""
    times = Counter(world.free_list)
    for block, count in enumerate(world.ref_counts):
        if (listed := times.get(block, 0)) == (count == 0):
            continue
        if listed > 1:
            yield f"block {block} is on the free list {counted(listed, 'time')}"
        if listed and count:
            yield f"block {block} is free with {counted(count, 'reference')}"
        if not listed and not count:
            yield f"block {block} has no references and is not free"


def i6(world: World) -> Iterator[str]:
    """Position p lives in table[p // bs] at p % bs; a table has the blocks of its positions.

    One block more may be there for the position that a step ahead will write; a hybrid that
    computes a matched prefix again has that prefix's blocks from the start.
    """
    bs = world.block_size
    for seq in world.sequences:
        matched = seq.cached_prefix_tokens // bs if world.holds_state else 0
        least, most = (max(matched, n) for n in (-(-seq.seq_len // bs), seq.seq_len // bs + 1))
        if not least <= len(seq.block_table) <= most:
            yield (
                f"sequence {seq.id} has {counted(len(seq.block_table), 'block')} for {seq.seq_len} "
                f"positions, {least} to {most} are right"
            )
        for block, times in Counter(seq.block_table).items():
            if times > 1:
                yield f"sequence {seq.id} names block {block} {counted(times, 'time')}"
    yield from wrong_tables(world)


def i8(world: World) -> Iterator[str]:
    """Table entries past the length are the sentinel: a host table ends there and holds none."""
    total = world.pool.total
    for seq in world.sequences:
        if any(not 0 <= block < total for block in seq.block_table):
            yield f"sequence {seq.id} has {seq.block_table} in a pool of {total}"
    yield from _padded_tables(world)


def _padded_tables(world: World) -> Iterator[str]:
    """The tables of the newest steps, as they were sent: the dummy block past each row's end."""
    dummy, bs = world.pool.total, world.block_size
    if (prompt := world.newest_inputs("prefill")) is not None:
        used = -(-int(prompt["start"][0] + prompt["count"][0]) // bs)
        if not _is_padded(table := prompt["table"].tolist(), used, dummy):
            yield f"the prompt of {counted(used, 'block')} was given table {table}"
    if (step := world.newest_inputs("decode")) is not None:
        rows = zip(step["tables"].tolist(), step["positions"].tolist(), strict=True)
        for row, (table, position) in enumerate(rows):
            used = 0 if table[0] == dummy else position // bs + 1
            if not _is_padded(table, used, dummy):
                yield f"row {row} of {counted(used, 'block')} was given table {table}"


def _is_padded(table: list[int], used: int, dummy: int) -> bool:
    """Whether a table has real blocks as far as it is used, and the dummy from there on."""
    real = table[:used]
    past = table[used:]
    return past.count(dummy) == len(past) and (not real or 0 <= min(real) <= max(real) < dummy)
