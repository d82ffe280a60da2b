"""An ordered set of time stamps whose least member is found in constant time."""

from __future__ import annotations

WORD_BITS = 10  # 1,024 members a word
LEVELS = 4  # 2**40 stamps
LIMIT = 1 << (WORD_BITS * LEVELS)


class StampSet:
    """Whole numbers from 0 to 2**40 - 1, kept as a tree of bit words of fixed height.

    Bit i of a word says that the word i below it has members. Adding, discarding and finding the
    least member each touch one word a level, however many members there are. A heap would need
    a logarithm of them, or leave dead entries behind.
    """

    def __init__(self) -> None:
        self._levels: list[dict[int, int]] = [{} for _ in range(LEVELS)]

    def add(self, stamp: int) -> None:
        """Put a stamp in; nothing happens when it is there."""
        assert 0 <= stamp < LIMIT, f"stamp {stamp} is outside 0..2**40"
        index = stamp
        for level in self._levels:
            index, bit = index >> WORD_BITS, index & (1 << WORD_BITS) - 1
            word = level.get(index, 0)
            level[index] = word | 1 << bit
            if word:
                return

    def discard(self, stamp: int) -> None:
        """Take a stamp out; nothing happens when it is not there."""
        if stamp not in self:
            return
        index = stamp
        for level in self._levels:
            index, bit = index >> WORD_BITS, index & (1 << WORD_BITS) - 1
            level[index] &= ~(1 << bit)
            if level[index]:
                return
            del level[index]

    def least(self) -> int | None:
        """The smallest stamp, None when there is none."""
        index = 0
        for level in reversed(self._levels):
            word = level.get(index, 0)
            if not word:
                return None
            index = index << WORD_BITS | (word & -word).bit_length() - 1
        return index

    def __contains__(self, stamp: int) -> bool:
        word = self._levels[0].get(stamp >> WORD_BITS, 0)
        return bool(word >> (stamp & (1 << WORD_BITS) - 1) & 1)
