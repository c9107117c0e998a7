"""One computation of attention: its weights, means of weights, visible keys, and output.

Index legend: b sequence, h head, t query, s key.
"""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

from simstudy.errors import UserError


@dataclasses.dataclass
class Call:
    """One computation of attention: tensors (b, h, t, ·); query heads may share heads of keys and values."""

    name: str
    module: Any
    query: Any  # None, as is the key, if only the weights are known
    key: Any
    value: Any
    scale: float
    mask: Any = None  # truth values (True if a key is visible), or numbers that are added to logits
    bias: Any = None  # numbers that are added to logits
    causal: bool = False
    softcap: float | None = None
    sinks: Any = None  # one further logit per head, which takes weight from the keys, or (b, h, t, n) logits
    valid: Any = None  # (b, t) truth values, False for padding; None if padding is not known
    given: Any = None  # weights that the model computed
    edited: Any = None  # output that replaces that of the model
    unmixed: bool = False  # True while the output of a call that is computed in parts is incomplete
    output: Any = None

    @property
    def plain(self) -> bool:
        """True if logits of visible keys are scaled products of queries and keys, without a mask or bias added."""
        added = self.mask is not None and self.mask.is_floating_point() and (self.visible & (self.mask != 0)).any()
        known = self.query is not None and self.softcap is None and self.sinks is None and self.bias is None
        return known and not added

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Numbers of sequences, heads, queries and keys."""
        return tuple(self.given.shape) if self.query is None else (*self.query.shape[:3], self.key.shape[-2])

    def weights(self, rows: slice = slice(None), n_keys: int | None = None) -> Any:
        """Return weights (b, h, rows, s) of the first keys, as if there were no others; with sinks, of sum below 1.

        A query without visible keys has weights 0 if the mask has truth values or −∞, and 1/s if it is finite.
        """
        import torch

        if self.query is None:
            return self.given[..., rows, :n_keys]
        logits = _by_group(self.query[..., rows, :], self.key[..., :n_keys, :].mT)
        logits *= self.scale
        if self.softcap is not None:
            logits = torch.tanh(logits / self.softcap) * self.softcap
        for each in (each for each in (self.bias, self.mask) if each is not None):
            part = of_rows(each, rows)[..., :n_keys]
            logits = logits.masked_fill(~part, -torch.inf) if part.dtype == torch.bool else logits + part
        n_keys = logits.shape[-1]
        if self.causal:
            places = torch.arange(self.query.shape[-2], device=logits.device)[rows, None]
            logits = logits.masked_fill(torch.arange(n_keys, device=logits.device) > places, -torch.inf)
        if self.sinks is not None:
            sinks = of_rows(self.sinks, rows) if self.sinks.ndim == 4 else self.sinks.reshape(1, -1, 1, 1)
            logits = torch.cat([logits, sinks.to(logits.dtype).expand(*logits.shape[:-1], -1)], -1)
        found = torch.softmax(logits if logits.dtype == torch.float64 else logits.float(), -1)[..., :n_keys]
        if self.mask is not None and found[..., :1].isnan().any():  # logits that are all −∞
            found = found.masked_fill(logits.isneginf().all(-1, keepdim=True), 0.0)
        return found

    def mix(self, weights: Any) -> Any:
        """Return the output (b, h, t, d) of weights."""
        return _by_group(weights, self.value[..., : weights.shape[-1], :].to(weights.dtype))

    def tiles(self, size: int = 128) -> Iterator[tuple[slice, Any]]:
        """Yield slices of queries, from the last to the first, and their weights up to the last visible key."""
        given = self.given if self.sinks is None else None
        size = size if given is None else 2 * size  # given weights take no further memory
        for start in reversed(range(0, self.shape[2], size)):  # the largest first, whose memory is reused
            rows = slice(start, min(start + size, self.shape[2]))
            n_keys = None  # all keys, as a query without visible keys gives weight to all
            if self.sees_a_key[..., rows].all():
                n_keys = int(self.visible[..., rows, :].flatten(0, -2).any(0).nonzero()[-1]) + 1
            weights = self.weights(rows, n_keys) if given is None else given[..., rows, :n_keys]
            if self.output is not None:
                self.output[..., rows, :] = self.mix(weights)
            yield rows, weights
        self.unmixed = False

    @functools.cached_property
    def visible(self) -> Any:
        """Truth values (1 or b, 1 or h, t, s), True if the query sees the key."""
        import torch

        n_queries, n_keys = self.shape[2:]
        if self.query is None:
            return self.given != 0
        mask = torch.ones(1, 1, dtype=torch.bool, device=self.value.device) if self.mask is None else self.mask
        visible = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
        visible = visible[(None,) * (4 - visible.ndim)].expand(-1, -1, n_queries, n_keys)
        return visible.tril() if self.causal else visible

    @functools.cached_property
    def sees_a_key(self) -> Any:
        """Truth values (1 or b, 1 or h, t), True if the query sees any key."""
        return self.visible.any(-1)

    @property
    def counted(self) -> Any:
        """Truth values (b, t), True if the query sees a key and is not known to be padding."""
        seeing = self.sees_a_key[:, 0].expand(self.shape[0], -1)
        return seeing if self.valid is None else seeing & self.valid

    def means(self) -> tuple[Any, ...]:
        """Return means over `counted` queries: Gram matrices and correlations (b, h, h), and weights (b, h, s)."""
        import torch

        parts, all_kept, counted = [], [], self.counted
        share = self.value.new_zeros((*self.shape[:2], self.shape[3]), dtype=torch.float64)
        for rows, weights in self.tiles():
            by_query, n_keys = weights.float().transpose(1, 2), weights.shape[-1]
            parts.append(by_query @ by_query.mT)  # (b, t, h, h)
            all_kept.append((parts[-1].diagonal(dim1=-2, dim2=-1) > 0).all(-1) & counted[:, rows])
            share[..., :n_keys] += (all_kept[-1].float()[:, None, None] @ by_query.transpose(1, 2))[..., 0, :]
        grams, kept = torch.cat(parts, 1).double(), torch.cat(all_kept, 1)
        scale = kept[..., None] / grams.diagonal(dim1=-2, dim2=-1).clamp_min(1e-300).sqrt()
        cosines = (grams * (scale[..., :, None] * scale[..., None, :])).sum(1)
        count = kept.sum(-1).clamp_min(1)[:, None, None]
        return tuple((each / count).cpu().numpy() for each in ((grams * kept[..., None, None]).sum(1), cosines, share))

    def edit(self, weights: Any) -> None:
        """Replace the output by that of other weights (b, h, t, s), with which the model goes on."""
        if not hasattr(weights, "to") or tuple(weights.shape) != self.shape:
            raise UserError(f"{self.name}: edit takes a tensor of the shape that weights() has, {self.shape}")
        self.edited = self.mix(weights)


def _by_group(by_query: Any, by_key: Any) -> Any:
    """Return the product (b, h, t, ·) of an array of all query heads with one of fewer heads of keys or values."""
    return (by_query.unflatten(1, (by_key.shape[1], -1)) @ by_key.unsqueeze(2)).flatten(1, 2)


def of_rows(tensor: Any, rows: slice) -> Any:
    """Return rows of a tensor (…, t, ·), or the tensor if it has one row for all queries."""
    return tensor[..., rows, :] if tensor.shape[-2] > 1 else tensor
