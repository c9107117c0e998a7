"""Merged latents: against decoding written out in loops, at every length and stride."""

import math

import naive
import numpy as np
import pytest
from builders import minimal_cell

from simstudy.attention.members import measure
from simstudy.attention.systems.latent_cache import _all_at_once, _drawn, _token_by_token
from simstudy.data.shared import SharedData

N, D, P = 9, 3, 4


def cell_of(stride, mask="stride", n_keys=N):
    return minimal_cell(
        instance={"kind": "latent_cache", "stride": stride, "mask": mask}, n_keys=n_keys, n_features=D, n_heads=1,
        head_dim=P, arrangement="aligned", bandwidth=0.9,
    )  # fmt: skip


def decoded(drawn, stride):
    """Output of each token from a cache of merged latents, as loops over scalars."""

    def projected(vector, column):
        return [sum(x * drawn[column + k, j] for j, x in enumerate(vector)) for k in range(P)]

    cache, outputs = [], []
    for m in range(N):
        token = [drawn[j, m] for j in range(D)]
        latent = [x / math.sqrt(D) for x in projected(token, D + P)]
        latent = [x - np.mean(latent) for x in latent]
        latent = [x / math.sqrt(np.mean(np.square(latent))) for x in latent]
        chunk = m // stride
        angles = [chunk / 10_000 ** (2 * (k // 2) / P) for k in range(P)]
        place = [math.cos(a) if k % 2 else math.sin(a) for k, a in enumerate(angles)]
        own, where = projected(latent, D + 2 * P), projected(place, D + 3 * P)
        gate = 1 / (1 + math.exp(-sum(a * b for a, b in zip(own, where, strict=True)) / P))
        if m % stride == 0:
            cache.append([0.0] * P)
        cache[-1] = [a + gate * b for a, b in zip(cache[-1], latent, strict=True)]
        query = [x / math.sqrt(D) / 0.81 for x in projected(token, D)]
        weights = naive.normalised([math.exp(sum(a * b for a, b in zip(query, c, strict=True))) for c in cache])
        outputs.append(weights @ np.array(cache))
    assert len(cache) == math.ceil(N / stride)
    return np.array(outputs)


@pytest.mark.parametrize("stride", [1, 2, 3, 4, 9, 20])
def test_both_ways__are_that_of_loops(stride):
    cell = cell_of(stride)
    shared = SharedData(cell, 3, 2)
    found, drawn = measure(cell, shared), shared.normals(N, D + 4 * P)
    queries, parts = _drawn(cell, shared, stride)
    scaled = queries / 0.81
    for r in range(2):
        outputs = decoded(drawn[r], stride)
        np.testing.assert_allclose(_token_by_token(scaled, parts, stride)[r], outputs, atol=1e-12)
        np.testing.assert_allclose(_all_at_once(scaled, parts, cell.instance)[r], outputs, atol=1e-12)
    assert (found["decoding_gap"] < 1e-14).all()


@pytest.mark.parametrize("stride", [2, 4])
def test_gap_under_a_causal_mask__is_that_of_attention_to_every_former_part(stride):
    """The control of the study: every token attends to what each former one knew of its chunk."""
    cell = cell_of(stride, "causal")
    shared = SharedData(cell, 3, 2)
    found = measure(cell, shared)["decoding_gap"]
    queries, parts = _drawn(cell, shared, stride)
    for r in range(2):
        partial = [parts[r, m // stride * stride : m + 1].sum(axis=0) for m in range(N)]
        wrong = []
        for m in range(N):
            weights = naive.normalised([math.exp(queries[r, m] @ partial[j] / 0.81) for j in range(m + 1)])
            wrong.append(weights @ np.array(partial[: m + 1]))
        right = decoded(shared.normals(N, D + 4 * P)[r], stride)
        assert found[r] == pytest.approx(np.abs(wrong - right).max() / np.abs(right).max())


def test_every_length_and_stride__is_decoded_alike_and_not_under_a_causal_mask():
    for n_keys in range(1, 13):
        for stride in range(1, 14):
            right, wrong = (cell_of(stride, mask, n_keys) for mask in ("stride", "causal"))
            shared = SharedData(right, 0, 2)
            assert (measure(right, shared)["decoding_gap"] < 1e-14).all()
            # A former token with part of its chunk is there from the second of two tokens in one chunk on.
            differs = stride > 1 and n_keys > 1
            assert (measure(wrong, shared)["decoding_gap"] > 1e-6).all() == differs
