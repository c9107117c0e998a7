"""Capture of each attention that a torch model computes: queries, keys, values, scale, mask and weights.

Attention is intercepted at three places, which are restored afterwards.

1. The eager attention of a family of `transformers`, for which the library returns a wrapper.  Models run with the
   name "eager"; no new name is registered, as some families select keys only with this one.
2. `torch.nn.functional.scaled_dot_product_attention`, replaced in its module and watched by a function mode.  This
   includes `nn.MultiheadAttention`, with projected queries and keys.
3. Any other softmax over the last axis whose result multiplies values.  Only its weights are known.

Each call at places 1 and 2 is checked: weights times values must equal the output of the module.

Index legend: b sequence, h head, t query, s key.
"""

import contextlib
import functools
import importlib.util
import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any

from simstudy.errors import UserError, require_extra
from simstudy.transformers.calls import Call, of_rows

ONE_AT_A_TIME = threading.RLock()
"""Held during a capture, which replaces functions of the whole process."""
TILE = 256
"""Number of queries beyond which weights are computed in parts."""
_CHECKED = 32
"""Number of evenly spaced queries for which each call is checked."""
_EXACT, _COARSE = 1e-4, 4e-2
"""Largest difference of outputs from weights times values, over the largest value: float32 or more, and less."""
_BY_QUERY = ("position_bias", "sinks")
_PRODUCTS = ("matmul", "__matmul__", "bmm")
_MASKS = {"src_key_padding_mask", "tgt_key_padding_mask"}


@contextlib.contextmanager
def capture(model: Any, visit: Callable[[Call], None], *, tile: int = TILE) -> Iterator["Seen"]:
    """Call a function with each attention that a model computes inside the block; results of the model do not change.

    Parameters
    ----------
    model
        A `torch.nn.Module` in evaluation mode.
    visit
        Function of a `Call`.  With ``call.edit(weights)`` it changes the output of the attention.
    tile
        Queries beyond which a model of `transformers` is computed in parts, unless gradients or attentions are needed.

    Yields
    ------
    Seen
        Number of ``calls``, and the ``worst`` relative difference of outputs in the checks.

    Raises
    ------
    UserError
        If the model is in training mode, weights do not give the output of a module, or no attention is captured.
    """
    require_extra("a model", "torch", "models")
    import torch
    from torch.overrides import TorchFunctionMode

    if not isinstance(model, torch.nn.Module):
        raise UserError(f"model of type {type(model).__name__}; give a torch.nn.Module, or arrays of weights")
    if training := [name or type(model).__name__ for name, module in model.named_modules() if module.training]:
        raise UserError(f"{training[0]} is in training mode, where dropout changes attention; call model.eval() first")
    seen = Seen(visit, tile)

    class Watch(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return seen.watch(function, args, kwargs or {})

    with ONE_AT_A_TIME, contextlib.ExitStack() as undo:
        # Breaks reference cycles, so that tensors are freed at once and not by the next garbage collection.
        undo.callback(setattr, seen, "visit", None)
        seen.intercept(model, undo)
        with Watch():
            yield seen
    if not seen.calls:
        raise UserError(
            "no attention was seen: compiled, traced and exported models, softmax written by hand, and softmax over "
            "bands or blocks of keys cannot be watched; give the model as it was defined, or weights as arrays"
        )


class Seen:
    """Count of captured calls of attention, and the functions that capture them."""

    def __init__(self, visit: Callable[[Call], None], tile: int) -> None:
        self.visit, self.tile = visit, tile
        self.calls, self.worst, self._busy = 0, 0.0, False
        self._batch = 0  # length of the first axis of the input of the outermost module
        self._soft: dict[int, Any] = {}  # the last softmax and elementwise functions of it, with its shape by head
        self._inside: list[tuple[str, Any, bool]] = []  # running modules: name, padding, output_attentions

    def intercept(self, model: Any, undo: contextlib.ExitStack) -> None:
        """Intercept attention at all three places until the stack is closed."""
        import torch.nn.functional as F
        from torch.backends import mha

        base: Any = ()
        if importlib.util.find_spec("transformers") is not None:
            from transformers import PreTrainedModel
            from transformers.modeling_utils import AttentionInterface as Family

            base = PreTrainedModel
            found = _in_this_thread(lambda _, name, eager: self._wrapped(eager), Family.get_interface)
            _replace(undo, Family, "get_interface", found, Family.get_interface)
        named: dict[int, Any] = {}
        parameters = functools.cache(lambda forward: inspect.signature(forward).parameters)  # there are many modules
        for name, module in model.named_modules():
            of_library, forward = isinstance(module, base), module.forward
            masks = parameters(getattr(forward, "__func__", forward)).keys() & _MASKS
            mask = "attention_mask" if of_library else masks.pop() if len(masks) == 1 else ""
            before = functools.partial(self._enter, name, of_library, mask, mask and inspect.signature(forward))
            undo.callback(module.register_forward_pre_hook(_in_this_thread(before), with_kwargs=True).remove)
            undo.callback(module.register_forward_hook(_in_this_thread(self._leave), always_call=True).remove)
            if of_library and module._can_set_attn_implementation():
                parts = (getattr(module.config, part, None) for part in module.config.sub_configs)
                named |= {id(config): config for config in (module.config, *parts) if config is not None}
        for config in named.values():
            _replace(undo, config, "_attn_implementation_internal", "eager", config._attn_implementation)
        self._cached = [config for config in named.values() if getattr(config, "use_cache", False)]
        for config in self._cached:  # stored keys and values are not needed
            _replace(undo, config, "use_cache", False, True)
        self._product, self._of_library = F.scaled_dot_product_attention, F.multi_head_attention_forward
        products = _in_this_thread(self._scaled_products, self._product)
        _replace(undo, F, "scaled_dot_product_attention", products, self._product)
        undo.callback(mha.set_fastpath_enabled, mha.get_fastpath_enabled())
        mha.set_fastpath_enabled(False)  # it packs padded sequences, and its inside cannot be watched

    def _enter(
        self, name: str, of_library: bool, mask: str, signature: Any, module: Any, args: Any, kwargs: Any
    ) -> None:  # fmt: skip
        """Record a module that starts to run, its padding mask (False: none known), and whether it returns weights."""
        import torch

        if not self._inside:
            given = (each for each in (*args, *kwargs.values()) if torch.is_tensor(each) and each.ndim)
            self._batch = next((len(each) for each in given), 0)
        for config in self._cached if kwargs.get("position_ids") is not None else ():
            config.use_cache = True  # without it, a gap between positions would start a new text
        stated = signature.bind(*args, **kwargs).arguments.get(mask) if mask else False
        if torch.is_tensor(stated):
            stated = ((stated != 0) if of_library else (stated == 0)) if stated.ndim == 2 else None
        asked = kwargs.get("output_attentions") or (of_library and module.config.output_attentions)
        self._inside.append((name, stated, bool(asked)))

    def _leave(self, *_: Any) -> None:
        self._inside.pop()

    def watch(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Call a function of torch, and capture it if it is attention."""
        import torch

        if self._busy:
            return function(*args, **kwargs)
        if function is self._product:
            return self._scaled_products(*args, **kwargs)
        if function is self._of_library:
            bound = inspect.signature(function).bind(*args, **kwargs)
            bound.apply_defaults()
            return self._multi_head(function, bound.arguments)
        # A softmax over the last axis is tracked until it multiplies values, and captured then.
        name, out = getattr(function, "__name__", ""), function(*args, **kwargs)
        if name == "softmax" and kwargs.get("dim", args[1] if len(args) > 1 else None) in (-1, out.ndim - 1):
            self._soft = {id(out): (out, out.shape)}
        elif not self._soft or not args or not torch.is_tensor(out):
            return out
        elif name == "einsum":
            return self._summed(args, out)
        elif id(args[0]) in self._soft:
            weights, shape = self._soft[id(args[0])]
            if name in _PRODUCTS and weights.ndim > 2:
                return self._weights_alone(weights, args[1], out)
            if out.numel() == weights.numel() and out.shape[-2:] == weights.shape[-2:]:
                self._soft[id(out)] = out, out.shape if out.ndim == 4 else shape
        return out

    def _summed(self, args: Any, out: Any) -> Any:
        """Capture weights that multiply values in an `einsum` of two tensors; return its result."""
        import torch

        terms, _, result = args[0].replace(" ", "").partition("->")
        names, tensors = terms.split(","), args[1:]
        which = [place for place, each in enumerate(tensors) if id(each) in self._soft]
        if len(names) != 2 or len(which) != 1:
            return out
        of_weights, of_value = names[which[0]], names[1 - which[0]]
        *lead, query, key = of_weights
        if "." in terms:
            if key in of_value and key not in result and query in result and query not in of_value:
                raise UserError(
                    f"{self._name}: attention by einsum {args[0]!r}, whose axes of sequences and heads are not known; "
                    "name each axis, or give weights as arrays"
                )
            return out
        features = [each for each in of_value if each not in of_weights]
        if len(features) != 1 or key in result or key not in of_value or query in of_value or query not in result:
            return out
        first = "".join(each for each in lead if each in of_value)
        value = torch.einsum(f"{of_value}->{first}{key}{features[0]}", tensors[1 - which[0]])
        for place, each in enumerate(lead):
            value = value if each in of_value else value.unsqueeze(place)
        order = f"{''.join(lead)}{query}{features[0]}"
        shown = self._weights_alone(tensors[which[0]], value, torch.einsum(f"{result}->{order}", out))
        return torch.einsum(f"{order}->{result}", shown)

    def _weights_alone(self, weights: Any, value: Any, out: Any) -> Any:
        """Capture weights (…, t, s) that multiply values, without queries and keys; return the product."""
        *lead, n_queries, n_keys = self._soft[id(weights)][1]
        self._soft = {}
        value = value.expand(*weights.shape[:-2], *value.shape[-2:]).reshape(*lead, n_keys, -1)
        weights, product = weights.reshape(*lead, n_queries, n_keys), out.reshape(*lead, n_queries, -1)
        call = Call(self._name, None, None, None, self._four(value), 1.0, given=self._four(weights))
        shown, _ = self._show(call, lambda _: (self._four(product), call.given))
        return out if call.edited is None else shown.reshape(out.shape)

    def _four(self, tensor: Any) -> Any:
        """Return a tensor as (b, h, ·, ·): windows count as sequences; with three axes the first must be sequences."""
        if tensor.ndim == 2 or (tensor.ndim == 3 and len(tensor) == self._batch != tensor.shape[1]):
            return tensor.unsqueeze(-3)[(None,) * (3 - tensor.ndim)]
        if tensor.ndim == 3:
            raise UserError(
                f"{self._name}: attention of shape {tuple(tensor.shape)}, whose axes of sequences and heads are not "
                "known; let the model compute (batch, head, query, ·), or give weights as arrays"
            )
        return tensor.flatten(0, -4)

    @property
    def _name(self) -> str:
        return self._inside[-1][0] if self._inside else ""

    def _wrapped(self, eager: Callable[..., Any]) -> Callable[..., Any]:
        """Return the eager attention of a family of `transformers` with capture."""

        def attention(
            module: Any, query: Any, key: Any, value: Any, attention_mask: Any = None, scaling: Any = None,
            dropout: float = 0.0, **further: Any,
        ) -> Any:  # fmt: skip
            def compute(rows: slice) -> tuple[Any, Any]:
                def part(tensor: Any) -> Any:
                    return of_rows(tensor, rows) if getattr(tensor, "ndim", 0) == 4 else tensor

                cut = {name: part(each) if name in _BY_QUERY else each for name, each in further.items()}
                out, weights = eager(
                    module, part(query), key, value, part(attention_mask), scaling=scaling, dropout=dropout, **cut
                )
                return out.transpose(1, 2), weights

            call = Call(
                self._name, module, query, key, value,
                getattr(module, "head_dim", query.shape[-1]) ** -0.5 if scaling is None else scaling,
                mask=attention_mask, bias=further.get("position_bias"), softcap=further.get("softcap"),
                sinks=further.get("sinks") if further.get("s_aux") is None else further["s_aux"],
            )  # fmt: skip
            out, weights = self._show(call, compute, in_parts=True)
            return out.transpose(1, 2).contiguous(), weights

        return attention

    def _scaled_products(
        self, query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
        scale: float | None = None, enable_gqa: bool = False,
    ) -> Any:  # fmt: skip
        """Compute `scaled_dot_product_attention` with capture."""

        def product() -> Any:
            return self._product(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)

        if self._busy:
            return product()
        if query.is_nested:
            raise UserError(f"{self._name}: nested tensors cannot be watched; pass padded sequences with their mask")

        four, mask = self._four, attn_mask if attn_mask is None else attn_mask[(None,) * (2 - attn_mask.ndim)]
        if mask is not None and mask.ndim > 2 and query.ndim > 4:
            mask = four(mask.expand(*query.shape[:-3], *mask.shape[-3:]))
        elif mask is not None and mask.ndim == 3:
            mask = mask.unsqueeze(1 if query.ndim == 3 else 0)
        factor = query.shape[-1] ** -0.5 if scale is None else scale
        call = Call(self._name, None, four(query), four(key), four(value), factor, mask=mask, causal=is_causal)
        out, _ = self._show(call, lambda _: (four(product()), None))
        return out if query.ndim == 4 else out.reshape(*query.shape[:-1], -1)

    def _multi_head(self, function: Callable[..., Any], given: dict[str, Any]) -> Any:
        """Compute `multi_head_attention_forward` by its branch that calls `scaled_dot_product_attention`."""
        wanted, weights, visit, padding = given["need_weights"], [], self.visit, given["key_padding_mask"]

        def also(call: Call) -> None:
            if wanted:
                weights.append(call.weights())
            visit(call)

        itself = padding is not None and padding.ndim == 2 and given["query"].data_ptr() == given["key"].data_ptr()
        self._inside.append((self._name, padding == 0 if itself else False, False))
        if wanted and given["attn_mask"] is not None:
            given["is_causal"] = False  # the hint would hide added keys; the mask is equivalent
        self.visit = also
        try:
            out = function(**{**given, "need_weights": False})[0]
        finally:
            self.visit = visit
            self._inside.pop()
        if not wanted:
            return out, None
        found = weights[0].mean(1) if given["average_attn_weights"] else weights[0]
        return out, found if given["query"].ndim == 3 else found[0]

    def _show(self, call: Call, compute: Callable[[slice], tuple[Any, Any]], in_parts: bool = False) -> Any:
        """Check and visit a call; ``compute`` returns its output (b, h, t, d) and weights for some queries."""
        import torch

        self.calls += 1
        busy, self._busy = self._busy, True
        try:
            n_queries = call.shape[2]
            call.valid = self._valid(call)
            whole = torch.is_grad_enabled() or any(asked for *_, asked in self._inside)
            in_parts = in_parts and n_queries > self.tile and not whole
            step = -(-n_queries // _CHECKED)
            rows = slice((n_queries - 1) % step, None, step)
            if in_parts:
                expected, call.unmixed = compute(rows)[0], True
                out = call.value.new_empty(len(call.query), n_queries, call.shape[1], call.value.shape[-1])
                out = call.output = out.transpose(1, 2)
            else:
                out, call.given = compute(slice(None))
                self._check(call, rows, call.mix(call.weights(rows)), out[..., rows, :])
            self.visit(call)
            if in_parts:
                for _ in call.tiles() if call.unmixed else ():
                    pass
                self._check(call, rows, out[..., rows, :], expected)
        finally:
            self._busy = busy
        return (out if call.edited is None else call.edited.to(out.dtype)), call.given

    def _valid(self, call: Call) -> Any:
        """Return which queries are not padding, by the innermost module with a padding mask; else by keys none sees."""
        batch, _, n_queries, n_keys = call.shape
        stated = next((known for _, known, _ in reversed(self._inside) if known is not False), None)
        if stated is not None and stated.shape[0] == batch and stated.shape[1] in (n_queries, max(n_queries, n_keys)):
            return stated[:, -n_queries:]
        mask = call.given if call.query is None else call.mask
        if mask is not None and mask.ndim == 4 and n_queries == n_keys and len(mask) == batch:
            real = call.visible.any(2).any(1)
            return None if real.all() else real
        return None

    def _check(self, call: Call, rows: slice, found: Any, out: Any) -> None:
        """Raise UserError if the output of the weights is not that of the module."""
        import torch

        gap = (found - out).abs().nan_to_num(0.0) * call.sees_a_key[..., rows, None]  # otherwise kernels differ
        off = (gap.amax() / call.value.abs().amax().clamp_min(1e-30)).item()
        self.worst = max(self.worst, off)
        if not off <= (_EXACT if out.dtype in (torch.float32, torch.float64) else _COARSE):
            kind = f" ({type(call.module).__name__})" if call.module is not None else ""
            if off != off:  # NaN
                raise UserError(f"{call.name}{kind}: its output is not finite; mend the model, or load it in float32")
            said = f"{call.name}{kind}: the weights read do not give its output (off by {off:.1e} of the values); it "
            raise UserError(said + "computes attention in another way; give weights that it returns, as arrays")


def _replace(undo: contextlib.ExitStack, place: Any, name: str, new: Any, old: Any) -> None:
    """Replace an attribute until the stack is closed."""
    undo.callback(setattr, place, name, old)
    setattr(place, name, new)


def _in_this_thread(function: Any, elsewhere: Any = lambda *_, **__: None) -> Any:
    """Return a function that calls another one in other threads, which may run the same model."""
    thread = threading.get_ident()
    return lambda *args, **kwargs: (function if threading.get_ident() == thread else elsewhere)(*args, **kwargs)
