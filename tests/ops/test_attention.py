import pytest
import torch

from metrale_lab.ops import attention, paged_decode_attention, paged_prefill_attention
from tests.ops import naive

BLOCK, KV_HEADS, D = 4, 2, 16
NAN = float("nan")


def pools_for(lengths, blocks=64, dtype=torch.float32, seed=0):
    """Pools that are NaN wherever no sequence wrote, and a table with odd unused entries."""
    generator = torch.Generator().manual_seed(seed)
    pools = [torch.full((blocks + 1, BLOCK, KV_HEADS, D), NAN, dtype=dtype) for _ in range(2)]
    table = torch.full((len(lengths), 24), blocks, dtype=torch.int32)
    free = torch.randperm(blocks, generator=generator).tolist()
    for row, length in enumerate(lengths):
        for position in range(length):
            if position % BLOCK == 0:
                table[row, position // BLOCK] = free.pop()
            cell = (int(table[row, position // BLOCK]), position % BLOCK)
            for pool in pools:
                pool[cell] = torch.randn(KV_HEADS, D, generator=generator).to(dtype)
    return pools, table


@pytest.fixture(params=[4, 6, 256], ids="tile {}".format)
def tile(request, monkeypatch):
    monkeypatch.setattr(attention, "PREFILL_TILE", request.param)
    monkeypatch.setattr(attention, "DECODE_TILE", request.param * 3 * KV_HEADS * D)


@pytest.mark.usefixtures("tile")
@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize("lengths", [[1], [4, 5, 17], [9, 1, 40, 3]])
def test_decode_reads_what_the_table_names_and_nothing_past_the_length(lengths, group):
    pools, table = pools_for(lengths)
    q = torch.randn(len(lengths), KV_HEADS * group, D)
    out = paged_decode_attention(q, *pools, table, torch.tensor(lengths, dtype=torch.int32))
    for row, length in enumerate(lengths):
        expected = naive.attention(q[row], pools, table[row], length)
        torch.testing.assert_close(out[row].double(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.usefixtures("tile")
def test_a_row_of_length_zero_gives_zeros_whatever_its_table_names():
    pools, table = pools_for([0, 6, 0])
    table[0] = -1
    q = torch.randn(3, KV_HEADS, D)
    out = paged_decode_attention(q, *pools, table, torch.tensor([0, 6, 0]))
    assert out[0].abs().sum() == out[2].abs().sum() == 0
    assert out[1].isfinite().all()
    assert paged_decode_attention(q[:1], *pools, table[:1], torch.tensor([0])).abs().sum() == 0


def test_the_sentinel_behind_the_length_may_be_negative():
    pools, table = pools_for([6, 30])
    q = torch.randn(2, KV_HEADS, D)
    lengths = torch.tensor([6, 30])
    expected = paged_decode_attention(q, *pools, table, lengths)
    table[0, 2:] = -1
    assert torch.equal(paged_decode_attention(q, *pools, table, lengths), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_decode_in_half_precision(dtype):
    pools, table = pools_for([11, 30], dtype=dtype)
    q = torch.randn(2, 4, D).to(dtype)
    out = paged_decode_attention(q, *pools, table, torch.tensor([11, 30]))
    assert out.dtype == dtype
    for row, length in enumerate([11, 30]):
        expected = naive.attention(q[row], pools, table[row], length)
        torch.testing.assert_close(out[row].double(), expected, atol=2e-2, rtol=2e-2)


def test_the_cache_may_be_narrower_than_the_query():
    pools, table = pools_for([9], dtype=torch.bfloat16)
    q = torch.randn(1, 4, D)
    out = paged_decode_attention(q, *pools, table, torch.tensor([9]), 0.3)
    expected = naive.attention(q[0], pools, table[0], 9, scale=0.3)
    torch.testing.assert_close(out[0].double(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.usefixtures("tile")
@pytest.mark.parametrize(("start", "tokens"), [(0, 1), (0, 13), (5, 1), (8, 9), (7, 30)])
def test_prefill_reads_prefix_and_itself_causally(start, tokens):
    pools, table = pools_for([start + tokens])
    q = torch.randn(tokens, KV_HEADS * 3, D)
    out = paged_prefill_attention(q, *pools, table[0], start)
    for i in range(tokens):
        expected = naive.attention(q[i], pools, table[0], start + i + 1)
        torch.testing.assert_close(out[i].double(), expected, atol=1e-5, rtol=1e-5)


def test_start_may_be_a_tensor():
    pools, table = pools_for([12])
    q = torch.randn(4, KV_HEADS, D)
    expected = paged_prefill_attention(q, *pools, table[0], 8)
    for start in (torch.tensor(8), torch.tensor([8], dtype=torch.int32)):
        assert torch.equal(paged_prefill_attention(q, *pools, table[0], start), expected)


def test_the_portable_tile_equals_the_cpu_one():
    q, k, v = torch.randn(2, 3, 5, D), torch.randn(2, 3, 7, D), torch.randn(2, 3, 7, D)
    mask = torch.zeros(2, 1, 5, 7)
    mask[0, :, :, 4:] = -float("inf")
    out, lse = attention._attend(q, k, v, mask, 0.25)
    plain, plain_lse = attention._attend_anywhere(q, k, v, mask, 0.25)
    torch.testing.assert_close(out, plain)
    torch.testing.assert_close(lse, plain_lse)


def test_indices_beyond_32_bits_do_not_wrap():
    """Cell numbers are int64 even where the table is int32: block 2**27 of 16 is cell 2**31."""
    table = torch.tensor([[2**27]], dtype=torch.int32)
    flat = attention._cells(table, torch.tensor([[5]]), 16, 2**27 + 1)
    assert flat.tolist() == [[2**31 + 5]]
