"""Naive twins: loops over rows, heads and ids, in the words of the formulas."""

import math

import torch

NO_ID = 2**32 - 1


def rms_norm(x, weight, eps):
    x64 = x.double()
    return weight.double() * x64 / torch.sqrt((x64 * x64).mean(-1, keepdim=True) + eps)


def rotary(x, positions, inv_freq):
    out = torch.empty_like(x)
    half = x.shape[-1] // 2
    for token, position in enumerate(positions.tolist()):
        for i in range(half):
            angle = float(torch.tensor(float(position)) * inv_freq[i])
            a, b = x[token, :, i], x[token, :, i + half]
            out[token, :, i] = a * math.cos(angle) - b * math.sin(angle)
            out[token, :, i + half] = b * math.cos(angle) + a * math.sin(angle)
    return out


def attention(q, pools, table, length, scale=None):
    """One query [q_heads, d] over the first `length` positions of one sequence."""
    k_pool, v_pool = pools
    block_size, kv_heads, d = k_pool.shape[1:]
    scale = d**-0.5 if scale is None else scale
    cells = [(int(table[p // block_size]), p % block_size) for p in range(length)]
    k = torch.stack([k_pool[c] for c in cells]).double()
    v = torch.stack([v_pool[c] for c in cells]).double()
    out = torch.empty(q.shape, dtype=torch.float64)
    for head in range(q.shape[0]):
        kv_head = head * kv_heads // q.shape[0]
        weights = torch.softmax(k[:, kv_head] @ q[head].double() * scale, 0)
        out[head] = weights @ v[:, kv_head]
    return out


def masked_argmax(logits, masks):
    out = []
    for row, mask in zip(logits.float().tolist(), masks.tolist(), strict=True):
        best, best_id = None, NO_ID
        for token, score in enumerate(row):
            if math.isfinite(score) and token not in mask and (best is None or score > best):
                best, best_id = score, token
        out.append(best_id)
    return torch.tensor(out)


def philox(counter, key):
    word = 0xFFFFFFFF
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & word, (a >> 32) ^ c[3] ^ k[1], a & word]
        k = [(k[0] + 0x9E3779B9) & word, (k[1] + 0xBB67AE85) & word]
    return c


def uniform(seed, position):
    words = philox(
        [position & 0xFFFFFFFF, position >> 32 & 0xFFFFFFFF, 0, 0],
        [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF],
    )
    return ((words[0] >> 5) * 2**26 + (words[1] >> 6)) / 2**53


def kept(row, mask, temperature, top_k, top_p):
    """Ids that may be drawn, in the order of the draw, and their probabilities."""
    pairs = [(s, t) for t, s in enumerate(row) if math.isfinite(s) and t not in mask]
    best = max(s for s, _ in pairs)
    weights = {t: math.exp((s - best) / temperature) for s, t in pairs}
    if not (0 < top_k < len(row)) and top_p >= 1:
        order = sorted(weights)
    else:
        order = [t for s, t in sorted(pairs, key=lambda pair: (-pair[0], pair[1]))]
        order = order[: top_k or None]
        total, before, keep = sum(weights[t] for t in order), 0.0, []
        for token in order:
            if keep and before >= top_p * total:
                break
            keep.append(token)
            before += weights[token]
        order = keep
    total = sum(weights[t] for t in order)
    return order, [weights[t] / total for t in order]


def sample(row, mask, temperature, top_k, top_p, seed, position):
    if temperature == 0 or not any(math.isfinite(s) and t not in mask for t, s in enumerate(row)):
        return int(masked_argmax(torch.tensor([row]), torch.tensor([mask])))
    order, probabilities = kept(row, mask, temperature, top_k, top_p)
    number, summed = uniform(seed, position), 0.0
    for token, probability in zip(order, probabilities, strict=True):
        summed += probability
        if summed > number:
            return token
    return order[-1]
