"""Tiny random models of transformers by the name of their family, what they take, and their own attention.

The configuration of a family is its default with small sizes, and weights are scaled up, so that attention is far from
uniform.  Of two texts one is padded.
"""

import numpy as np
import torch
import transformers
from scipy.optimize import linear_sum_assignment

from simstudy.transformers.capture import capture

_NAMES_OF_SIZES = {
    32: "hidden_size d_model n_embd dim embed_dim emb_dim model_dim embedding_size",
    4: "num_attention_heads n_head num_heads n_heads encoder_attention_heads decoder_attention_heads num_experts "
    "num_local_experts n_routed_experts moe_num_experts",
    2: "num_key_value_heads num_hidden_layers n_layer num_layers n_layers encoder_layers decoder_layers "
    "num_decoder_layers num_experts_per_tok",
    48: "intermediate_size n_inner ffn_dim d_ff encoder_ffn_dim decoder_ffn_dim moe_intermediate_size "
    "shared_expert_intermediate_size",
    99: "vocab_size",
    8: "head_dim d_kv global_head_dim qk_nope_head_dim qk_rope_head_dim v_head_dim patch_size",
    16: "q_lora_rank kv_lora_rank",
    128: "max_position_embeddings n_positions n_ctx max_source_positions max_target_positions",
    5: "sliding_window",
}
SIZES = {name: size for size, names in _NAMES_OF_SIZES.items() for name in names.split()}
SIZES |= {"image_size": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
SIZES |= {"n_group": 1, "topk_group": 1, "n_shared_experts": 1, "first_k_dense_replace": 1}


def _small(config):
    known = config.to_dict()
    return {name: size for name, size in SIZES.items() if isinstance(known.get(name), (int, float))}


def tiny(family, attention="eager", **options):
    """Return a random model of two layers, or one of each kind of layer that its family has."""
    kind = transformers.CONFIG_MAPPING[family]
    default = kind()
    sizes = _small(default)
    for name in kind.sub_configs:
        if getattr(default, name, None) is not None:
            sizes[name] = _small(getattr(default, name))
    if layers := getattr(default, "layer_types", None):
        kinds = list(dict.fromkeys(layers))
        sizes["layer_types"] = (kinds * 2)[: max(len(kinds), 2)]
        sizes["num_hidden_layers"] = len(sizes["layer_types"])
    torch.manual_seed(0)
    model = transformers.AutoModel.from_config(kind(**(sizes | options)), attn_implementation=attention).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(6.0)
    return model


def inputs_of(model):
    """Return what a model takes, by name: two texts of 12 tokens of which one has 9, or two pictures."""
    torch.manual_seed(1)
    config = model.config
    if model.main_input_name == "pixel_values":
        return {"pixel_values": torch.randn(2, config.num_channels, config.image_size, config.image_size)}
    if model.main_input_name == "input_features":
        given = {"input_features": torch.randn(2, config.num_mel_bins, 2 * config.max_source_positions)}
    else:
        mask = torch.ones(2, 12, dtype=torch.long)
        mask[1, 9:] = 0
        given = {"input_ids": torch.randint(3, 90, (2, 12)), "attention_mask": mask}
    if config.is_encoder_decoder:
        given["decoder_input_ids"] = torch.randint(3, 90, (2, 7))
    return given


def gram(weights):
    """Return the Gram (b, t, h, g) of weights (b, h, t, s), in double precision."""
    by_query = weights.detach().double().swapaxes(1, 2)
    return by_query @ by_query.mT


def own_attentions(model, inputs):
    """Return the attentions of a model, as it returns them itself."""
    with torch.no_grad():
        out = model(**inputs, output_attentions=True)
    names = ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions")
    return [each for name in names for each in out.get(name) or ()]


def captured(model, inputs, **how):
    """Return the calls with queries and keys, those of which weights alone are seen, and what saw them."""
    calls = []
    with torch.no_grad(), capture(model, calls.append, **how) as seen:
        model(**inputs)
    return *[[call for call in calls if (call.query is None) == alone] for alone in (False, True)], seen


def distance(own, weights):
    """Return the largest difference of Grams, each attention of its own to another one that was captured."""
    captured_grams = [gram(each) for each in weights]
    gaps = np.full((len(own), max(len(own), len(weights))), 1e9)  # where shapes differ or nothing was captured
    for place, other in np.ndindex(len(own), len(weights)):
        if (one := gram(own[place])).shape == captured_grams[other].shape:
            gaps[place, other] = (one - captured_grams[other]).abs().max()
    return gaps[linear_sum_assignment(gaps)].max()
