"""Mutants that no test can kill, by file and changed line, with the reason."""

from __future__ import annotations

_KEYWORDS = "the calls that the package makes stay allowed"
_NEVER_BELOW = "a count is never negative: the check itself sees to it"
_OF_EACH = "names an adapter's empty prefix: below 1, and another for each adapter, as before"
_SET_LATER = "the tree sets it on each node that it grows; a root's is not read"
_BOUND = "a bound of memory, chosen by size alone"
_MORE_SLOTS = "only an attribute that nobody sets could tell"
_NONE_IS_LEAST = "no slot is below NONE"
_ONE_PAST = "a load goes to a slot that exists, or to the next one"
_STATES = "of the three states: draining, free, loaded, in this order"
_NO_POLLS = "as few polls as 0"
_NO_SLOTS = "as few slots as 0"
_NONE_ENDS = "evicting none, or fewer, ends the loop"
_COLUMNS = "columns of one record, made together"
_BITS = "the first is whole blocks, a power of two each, and the second less than one"
_ONE_CELL = "the slot has one cell"
_CONSTANT = "a model that does not count writes has always written the same"
_ONE_BLOCK = "a sequence takes one block between two launches, and none when asked again"
_TOO_DEEP = "what is stored deeper has more tokens, and no beginning of these equals them"
_BY_IDENTITY = "snapshots compare by identity"
_IDENTITY = "small numbers and literals are the same objects in CPython"

EXPLAINED: dict[str, dict[str, str]] = {
    "metrale_lab/cache/pool.py": {
        "self, block: int, holder: int, cause: str, /, for_sequence: int = NONE, "
        "node: int = NONE": _KEYWORDS,
        "if self._ref_counts[self._checked(block)] <= 0:": _NEVER_BELOW,
        "if count <= 0:": _NEVER_BELOW,
        "if count <= 1:": "a count of 0 was refused above",
        "return count <= 1": "a count of 0 was refused above",
        'kind = "cache" if holder <= CACHE_OWNER else "retain"': (
            "the only holder below the cache is hold_blocks, which shares nothing"
        ),
        'kind = "cache" if holder is CACHE_OWNER else "retain"': _IDENTITY,
        'kind = "restore" if cause is "restore" else "alloc"': _IDENTITY,
    },
    "metrale_lab/cache/allocator.py": {
        "/,": _KEYWORDS,
        "while self.pool.free <= target:": _NONE_ENDS,
        "while self.pool.free != target:": _NONE_ENDS,
        "while self.pool.free is not target:": _NONE_ENDS,
        "while len(self._held) != held:": "there are at least so many",
        "for block, node in zip(match.blocks, match.nodes, strict=False):": _COLUMNS,
        "for block, node in zip(done.acquired_blocks, done.acquired_nodes, strict=False):": (
            _COLUMNS
        ),
        "for block, node in zip(done.released_blocks, done.released_nodes, strict=False):": (
            _COLUMNS
        ),
    },
    "metrale_lab/cache/recency.py": {
        "index = index << WORD_BITS ^ (word & -word).bit_length() - 1": (
            "the bits that the shift left empty: either sets them"
        ),
        "index = index << WORD_BITS | (word | -word).bit_length() - 1": (
            "minus the lowest bit, which is as long"
        ),
    },
    "metrale_lab/cache/lru.py": {
        "if self._nodes.get(node.stamp) == node:": "nodes have no equality but identity",
    },
    "metrale_lab/cache/ghosts.py": {
        "def __init__(self, capacity: int = 4097) -> None:": _BOUND,
        "def __init__(self, capacity: int = 4095) -> None:": _BOUND,
    },
    "metrale_lab/cache/trie.py": {
        "continue": "below a missing block nothing is found: the walk only takes longer",
        "self._lineages += 2": "lineages only have to differ",
    },
    "metrale_lab/cache/nodes.py": {
        "return - 0 - adapter_id": _OF_EACH,
        "return - 2 - adapter_id": _OF_EACH,
        "return -1 * adapter_id": _OF_EACH,
        "return -1 << adapter_id": _OF_EACH,
        "return -1 ^ adapter_id": _OF_EACH,
        "return ~1 - adapter_id": _OF_EACH,
        "return self.ref_count != 1 or self.pins > 0": "the cache's own reference makes it 1",
        "return self.ref_count > 1 or self.pins != 0": _NEVER_BELOW,
        "@dataclass(slots=False, eq=False)": _MORE_SLOTS,
        "@dataclass(slots=True, eq=True)": "nodes are told apart by `is`",
        "ref_count: int = 2": _SET_LATER,
        "ref_count: int = 0": _SET_LATER,
        "stamp: int = 1  # number of the operation that touched it last": _SET_LATER,
        "stamp: int = -1  # number of the operation that touched it last": _SET_LATER,
        "last_access_s: float = 1.0": _SET_LATER,
        "last_access_s: float = -1.0": _SET_LATER,
    },
    "metrale_lab/cache/slots.py": {
        "@dataclass(frozen=False, slots=True, eq=False)": _MORE_SLOTS,
        "@dataclass(frozen=True, slots=False, eq=False)": _MORE_SLOTS,
        "@dataclass(frozen=True, slots=True, eq=True)": "claims are told apart by `is`",
        "return self._owners.get(claim.slot) == claim": "claims compare by identity",
    },
    "metrale_lab/cache/snapshots.py": {
        "@dataclass(slots=False, eq=False)": _MORE_SLOTS,
        "@dataclass(slots=True, eq=True)": "snapshots are told apart by `is`",
        "for depth in range(len(tokens) // size << size, 0, -size):": _TOO_DEEP,
        "for depth in range(len(tokens) * size * size, 0, -size):": _TOO_DEEP,
        "for depth in range(len(tokens) ** size * size, 0, -size):": _TOO_DEEP,
        "for depth in range(len(tokens) << size * size, 0, -size):": _TOO_DEEP,
        "for depth in range(len(tokens) // size * size, -1, -size):": (
            "nothing is stored at depth 0"
        ),
        "if snapshot.holders <= 0 or self._stored.get(snapshot.number) is not snapshot:": (
            _NEVER_BELOW
        ),
        "if snapshot.holders == 0 or self._stored.get(snapshot.number) != snapshot:": _BY_IDENTITY,
        "return self._reserved.get(place.number) == place": _BY_IDENTITY,
        "assert len(tokens) % self.block_size <= 0, "
        'f"the end at {len(tokens)} is inside a block"': "a remainder is never negative",
        "if found is not None and found.node is not node:": _IDENTITY,
    },
    "metrale_lab/cache/adapters.py": {
        "@dataclass(slots=False)": _MORE_SLOTS,
        'if one.state <= "draining" and not one.users:': _STATES,
        'return [one.name for one in self.slots if one.state >= "loaded"]': _STATES,
        'if one.state >= "loaded" and one.name == name:': _STATES,
        'if other.name == name and other is not one and other.state >= "loaded":': _STATES,
        'if other.name == name and other != one and other.state == "loaded":': (
            "no two slots have one number"
        ),
        "chosen = self.active if slot <= NONE else slot": _NONE_IS_LEAST,
        "return 0 if resolved <= NONE else self.slots[resolved].identity": _NONE_IS_LEAST,
        "if resolved <= NONE or not self.slots[resolved].users:": _NONE_IS_LEAST,
        "if resolved > NONE:": _NONE_IS_LEAST,
        "was_active = self.active > NONE and self.slots[self.active].name == name": _NONE_IS_LEAST,
        "return total if slot != total else max(FIRST_SLOTS, 2 * total)": _ONE_PAST,
        "return total if slot is not total else max(FIRST_SLOTS, 2 * total)": _ONE_PAST,
        **dict.fromkeys(
            (
                'self._tell("add" if one.state is "free" else "load", one)',
                'return [one.name for one in self.slots if one.state is "loaded"]',
                'return any(one.state is not "free" for one in self.slots)',
                'if one.state is "loaded" and one.name == name:',
                "chosen = self.active if slot is NONE else slot",
                'empty = not 0 <= chosen < len(self.slots) or self.slots[chosen].state is "free"',
                "return 0 if resolved is NONE else self.slots[resolved].identity",
                "if resolved is NONE or not self.slots[resolved].users:",
                "if resolved is not NONE:",
                'if one.state is "draining" and not one.users:',
                'free = [one.slot for one in self.slots if one.state is "free"]',
                'if other.name == name and other is not one and other.state is "loaded":',
                "was_active = self.active is not NONE and self.slots[self.active].name == name",
                "if self.active is one.slot:",
            ),
            _IDENTITY,
        ),
    },
    "metrale_lab/cache/tree.py": {
        "self._stamp += 2": "stamps only have to grow",
        "self._stamp = 1": "stamps only have to grow",
        "self._stamp = -1": "stamps only have to grow",
        'assert child.ref_count != 1, f"insert: node {child.id} was released before"': _NEVER_BELOW,
        "if len(set(numbers)) != len(numbers):": "a set is never longer",
        "def lookup(self, tokens: Sequence[int], adapter_id: int, /, resumed: bool = False) "
        "-> Match:": (_KEYWORDS),
        "if any(node.pins <= 0 for node in nodes):": _NEVER_BELOW,
        "if unheld := [node.id for node in known if node.ref_count <= 1]:": _NEVER_BELOW,
    },
    "metrale_lab/cache/misses.py": {
        "NEIGHBOURS_COMPARED = 9  # so many siblings are compared, "
        "whatever a node's fan-out": _BOUND,
        "NEIGHBOURS_COMPARED = 7  # so many siblings are compared, "
        "whatever a node's fan-out": _BOUND,
        "if first_difference(trie, tokens, matched_tokens, adapter_id) > NONE:": (
            "a place is never below it"
        ),
        "others = (other for other in trie.roots if other is not adapter_id)": (
            "its own tree was searched before and has no such block"
        ),
        "if len(chunk) != bs:": "a slice is never longer",
        "if len(chunk) is not bs:": "a slice is never longer, and small numbers are one object",
        "return start + common if start + common != 0 else NONE": "a place is never negative",
        "if first_difference(trie, tokens, matched_tokens, adapter_id) is not NONE:": _IDENTITY,
        "return any(len(trie.walk(tokens, other)) * trie.block_size >= len(tokens) "
        "for other in others)": ("a walk is never longer than its tokens"),
        "return start | common if start + common > 0 else NONE": _BITS,
        "return start ^ common if start + common > 0 else NONE": _BITS,
        "return start + common if start | common > 0 else NONE": _BITS,
        "return start + common if start ^ common > 0 else NONE": _BITS,
    },
    "metrale_lab/scheduler/ring.py": {
        "self._next = (slot.number + 1) - len(self.slots)": "a place counted from the end",
    },
    "metrale_lab/scheduler/router.py": {
        "@dataclass(slots=False)": _MORE_SLOTS,
        "self._ring = Ring(model, ring_slots if self._has_feed else -1, max_rows)": _NO_SLOTS,
        "self._prompt_ring = Ring(model, 1 if self._has_feed else -1, 1)": _NO_SLOTS,
        "slot = self._prompt_ring.take( 0)": "a ring asks whether the rows are too many",
        "return slot.ids( 2)[0]": _ONE_CELL,
        "return slot.ids(1)[ -1]": _ONE_CELL,
    },
    "metrale_lab/scheduler/routers.py": {
        "self, model: Model, max_rows: int, emit: Observer = unobserved, max_polls: int = -1": (
            _NO_POLLS
        ),
        "return make(model, settings.max_batch, emit, -1 if settings.deterministic else polls)": (
            _NO_POLLS
        ),
        "self._unlaunched[seq] = self._unlaunched.get(seq, 0) | blocks": _ONE_BLOCK,
        "self._unlaunched[seq] = self._unlaunched.get(seq, 0) ^ blocks": _ONE_BLOCK,
        'make = AsyncRouter if settings.router <= "async" else SyncRouter': (
            "the settings allow two words"
        ),
        'return int(getattr(self._model, "feed_writes", 1))': _CONSTANT,
        'return int(getattr(self._model, "feed_writes", -1))': _CONSTANT,
    },
}
