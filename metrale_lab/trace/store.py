"""A record as a Parquet file: one row per event, kind-specific columns null elsewhere."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq

from metrale_lab.arguments import shown
from metrale_lab.errors import ModelFormatError, TraceIncomplete
from metrale_lab.files import check_file, replacing, there
from metrale_lab.trace.events import Event, NodeAdded
from metrale_lab.trace.fold import Stamped
from metrale_lab.trace.plain import plain_state, state_of
from metrale_lab.trace.recorder import RecordView, replayed
from metrale_lab.trace.texts import TokenTexts

FORMAT = 1
_KEY = b"metrale_lab"
_TYPES: dict[Any, pa.DataType] = {
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    str: pa.string(),
}
EVENTS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Event)}


class Saved(NamedTuple):
    """What a file holds; the columns are the view's events, the rest is in its metadata."""

    view: RecordView
    attrs: Mapping[str, Any]  # the lab's description
    laws: Sequence[tuple[str, bool, str]] = ()  # as they were when the trace was taken
    texts: TokenTexts | None = None


def token_ids(view: RecordView) -> set[int]:
    """Ids of all tokens that the prefix cache stored."""
    known = [one.tokens for one in view.base.nodes.values()]
    added = [one.event.tokens for one in view.stamped() if isinstance(one.event, NodeAdded)]
    return {token for tokens in (*known, *added) for token in tokens}


def save(path: Path, whole: Saved) -> Path:
    """Write the events of a record, and what else there is.

    Raises
    ------
    TraceIncomplete
        If early events were overwritten: the rest does not tell the whole run.
    WriteFailed
        If the system refuses; nothing half-written is left.
    """
    check_file(path)
    view = whole.view
    if view.dropped:
        raise TraceIncomplete(view.dropped, view.state.seq_no, view.dropped)
    rows = [_row(one) for one in view.stamped()]
    header = {
        "format": FORMAT,
        "num_blocks": view.state.num_blocks,
        "block_size": view.state.block_size,
        "base": plain_state(view.base),
        "attrs": dict(whole.attrs),
        "laws": [[law, bool(holds), told] for law, holds, told in whole.laws],
        "texts": None if whole.texts is None else whole.texts.as_json(),
    }
    schema = _schema().with_metadata({_KEY: json.dumps(header).encode()})
    table = pa.Table.from_pylist(rows, schema=schema)
    # Opened here, because pyarrow knows no names outside Unicode.
    with replacing(path) as scratch, scratch.open("wb") as file:
        pq.write_table(table, file)
    return path


def load(path: Path) -> Saved:
    """Read a file that `save` wrote; earlier versions wrote no laws, texts and beginnings.

    Raises
    ------
    ModelFormatError
        If it is no such file, or one of a later version.
    """
    if not there(path.is_file):
        raise ModelFormatError(
            f"{shown(str(path), 300)}: there is no such file. Give the path that save() returned."
        )
    try:
        with path.open("rb") as file:
            table = pq.read_table(file)
    except (pa.ArrowException, OSError) as error:
        raise ModelFormatError(
            f"{shown(path.name)}: not a Parquet file that can be read: {shown(str(error), 300)}"
        ) from error
    header = _header(path, table)
    if header.get("format") != FORMAT:
        raise ModelFormatError(
            f"{path.name}: metadata 'metrale_lab' has format {header.get('format')!r}; "
            f"expected {FORMAT}: a file that Trace.save wrote."
        )
    try:
        rows = table.to_pylist()
        record = replayed(
            header["num_blocks"],
            header["block_size"],
            [(row["t_s"], row["tick"], _event(path, row)) for row in rows],
            None if header.get("base") is None else state_of(header["base"]),
        )
        laws = [(str(law), bool(holds), str(told)) for law, holds, told in header.get("laws", ())]
        texts = TokenTexts.from_json(header.get("texts"))
        return Saved(record, dict(header["attrs"]), laws, texts)
    except ModelFormatError:
        raise
    except Exception as error:  # any field may be missing, of another type, or out of its range
        raise ModelFormatError(
            f"{path.name}: its rows do not tell a run ({type(error).__name__}: {error}); "
            "expected a file that Trace.save wrote."
        ) from error


def _header(path: Path, table: pa.Table) -> dict[str, Any]:
    """What `save` put into the file's metadata; empty when it is none of ours."""
    try:
        found = json.loads((table.schema.metadata or {}).get(_KEY, b"{}"))
    except ValueError as error:
        raise ModelFormatError(
            f"{path.name}: metadata 'metrale_lab' is no JSON: {error}; "
            "expected a file that Trace.save wrote."
        ) from error
    return found if isinstance(found, dict) else {}


def _row(one: Stamped) -> dict[str, Any]:
    kind = type(one.event).__name__
    values = {COLUMNS[kind, field][0]: value for field, value in one.event._asdict().items()}
    return values | {"seq_no": one.seq_no, "t_s": one.t_s, "tick": one.step, "event": kind}


def _event(path: Path, row: dict[str, Any]) -> Event:
    kind = EVENTS.get(row["event"])
    if kind is None:
        raise ModelFormatError(
            f"{path.name}: event {row['seq_no']} is of kind {row['event']!r}; "
            f"expected one of {', '.join(EVENTS)}."
        )
    values = (row[COLUMNS[kind.__name__, field][0]] for field in kind._fields)
    event: Event = kind(*(tuple(one) if isinstance(one, list) else one for one in values))
    return event


def _columns() -> dict[tuple[str, str], tuple[str, pa.DataType]]:
    """Column name and type of each kind's fields; where types differ, the kind is in the name."""
    types: dict[str, pa.DataType] = {}
    found: dict[tuple[str, str], tuple[str, pa.DataType]] = {}
    for kind in EVENTS.values():
        for field, hint in get_type_hints(kind).items():
            items = get_args(hint)
            arrow = pa.list_(_TYPES[items[0]]) if get_origin(hint) is tuple else _TYPES[hint]
            same = types.setdefault(field, arrow) == arrow
            found[kind.__name__, field] = (field if same else f"{kind.__name__}.{field}", arrow)
    return found


COLUMNS = _columns()


def _schema() -> pa.Schema:
    fixed = {
        "seq_no": pa.int64(),
        "t_s": pa.float64(),
        "tick": pa.int64(),
        "event": pa.string(),
    }
    return pa.schema(list((fixed | dict(COLUMNS.values())).items()))
