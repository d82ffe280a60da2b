import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from metrale_lab.ops import NO_ID, masked_argmax
from tests.ops import naive

INF, NAN = float("inf"), float("nan")
NONE = [NO_ID, NO_ID]


@pytest.mark.parametrize(
    ("row", "mask", "best"),
    [
        ([1, 3, 3, 2], NONE, 1),
        ([1, 3, 3, 2], [1, NO_ID], 2),
        ([1, 3, 3, 2], [2, 1], 3),
        ([1, 3, 3, 2], [1, 1], 2),
        ([NAN, 1], NONE, 1),
        ([1, NAN], NONE, 0),
        ([INF, 1, -INF], NONE, 1),
        ([-INF, -INF], NONE, NO_ID),
        ([NAN, INF], NONE, NO_ID),
        ([5, 4], [0, 1], NO_ID),
        ([5], [0, NO_ID], NO_ID),
        ([-0.0, 0.0], NONE, 0),
        ([0.0, -0.0], NONE, 0),
        ([9, 8, 7], [3, -1], 0),
        ([-3e38, -INF], NONE, 0),
    ],
)
def test_one_rule(row, mask, best):
    assert (
        masked_argmax(torch.tensor([row], dtype=torch.float32), torch.tensor([mask])).item() == best
    )


scores = st.sampled_from([-INF, -1.5, -0.0, 0.0, 1.0, 2.0, INF, NAN])
ids = st.sampled_from([0, 1, 2, 3, 4, 17, NO_ID])


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.lists(scores, min_size=5, max_size=5), ids, ids), min_size=1, max_size=4),
    st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
)
def test_as_the_naive_twin(rows, dtype):
    logits = torch.tensor([row for row, _, _ in rows]).to(dtype)
    before = logits.clone()
    masks = torch.tensor([[a, b] for _, a, b in rows])
    out = masked_argmax(logits, masks)
    assert out.dtype == torch.int64
    assert torch.equal(out, naive.masked_argmax(logits, masks))
    assert torch.equal(logits.nan_to_num(), before.nan_to_num())  # the scores are left alone


def test_the_id_keeps_its_bits_in_a_cell_of_32():
    cell = masked_argmax(torch.tensor([[NAN]]), torch.tensor([NONE])).to(torch.int32)
    assert cell.numpy().view("uint32").tolist() == [NO_ID]
