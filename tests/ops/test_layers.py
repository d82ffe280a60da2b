import pytest
import torch

from metrale_lab.ops import rms_norm, rotary, rotary_angles, silu_mul, write_kv
from tests.ops import naive


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rms_norm(dtype):
    x, weight = torch.randn(5, 24).to(dtype) * 30, torch.randn(24).to(dtype)
    out = rms_norm(x, weight, 1e-5)
    assert out.dtype == dtype
    tolerance = 1e-6 if dtype == torch.float32 else 2e-2
    expected = naive.rms_norm(x, weight, 1e-5)
    torch.testing.assert_close(out.double(), expected, atol=tolerance, rtol=tolerance)


def test_rms_norm_of_zeros_is_zero():
    assert rms_norm(torch.zeros(2, 8), torch.ones(8), 1e-6).abs().sum() == 0


def test_rms_norm_over_heads():
    x, weight = torch.randn(3, 4, 8), torch.randn(8)
    expected = torch.stack([rms_norm(x[:, head], weight, 1e-6) for head in range(4)], 1)
    torch.testing.assert_close(rms_norm(x, weight, 1e-6), expected)


def test_rotary_turns_half_split_pairs():
    positions = torch.tensor([0, 1, 7, 1000])
    inv_freq = 10000.0 ** (-torch.arange(0, 8, 2) / 8.0)
    x = torch.randn(4, 3, 8)
    out = rotary(x, *rotary_angles(positions, inv_freq))
    torch.testing.assert_close(out, naive.rotary(x, positions, inv_freq), atol=1e-4, rtol=1e-4)
    assert torch.equal(out[0], x[0])


def test_rotary_of_fewer_angles_leaves_the_other_dimensions():
    positions, inv_freq = torch.tensor([3, 1000]), torch.tensor([1.0, 0.1])
    x = torch.randn(2, 3, 10)
    out = rotary(x, *rotary_angles(positions, inv_freq))
    expected = naive.rotary(x[..., :4].contiguous(), positions, inv_freq)
    torch.testing.assert_close(out[..., :4], expected, atol=1e-4, rtol=1e-4)
    assert torch.equal(out[..., 4:], x[..., 4:])


def test_rotary_angles_carry_the_attention_factor():
    cos, sin = rotary_angles(torch.tensor([3]), torch.tensor([0.5]), 2.0)
    torch.testing.assert_close(cos**2 + sin**2, torch.tensor([[4.0]]))


def test_silu_mul():
    gate, up = torch.randn(3, 7), torch.randn(3, 7)
    torch.testing.assert_close(silu_mul(gate, up), gate / (1 + torch.exp(-gate)) * up)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_write_kv_changes_exactly_the_named_cells(dtype):
    pools = [torch.full((5, 4, 2, 3), -7.0, dtype=dtype) for _ in range(2)]
    k, v = torch.randn(3, 2, 3), torch.randn(3, 2, 3)
    slots = torch.tensor([17, 2, 7])
    write_kv(k, v, *pools, slots)
    for pool, new in zip(pools, (k, v), strict=True):
        flat = pool.view(20, 2, 3)
        assert torch.equal(flat[slots], new.to(dtype))
        untouched = [cell for cell in range(20) if cell not in slots.tolist()]
        assert (flat[untouched] == -7).all()


def test_write_kv_refuses_a_pool_that_it_could_only_copy():
    pool = torch.zeros(4, 5, 2, 3).transpose(0, 1)
    with pytest.raises(RuntimeError, match="view"):
        write_kv(torch.ones(1, 2, 3), torch.ones(1, 2, 3), pool, pool, torch.tensor([0]))


def test_padding_rows_may_share_the_dummy_cell():
    pool = torch.zeros(2, 4, 1, 1)
    k = torch.tensor([1.0, 2.0, 2.0]).view(3, 1, 1)
    write_kv(k, k, pool, pool.clone(), torch.tensor([0, 4, 4]))
    assert pool.flatten().tolist() == [1, 0, 0, 0, 2, 0, 0, 0]
