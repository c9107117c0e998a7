"""Families of transformers: attention is that of the model whatever its configuration says, or it is refused.

In a whole verification 95 families are captured, and weights of adapters and of eight bits where libraries have them.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from families import captured, distance, inputs_of, own_attentions, tiny  # noqa: E402

from simstudy.errors import UserError  # noqa: E402
from simstudy.transformers.capture import capture  # noqa: E402

FAMILIES = "bart bert bloom gemma2 gpt2 gpt_oss inkling2_text llama modernbert qwen3 t5 vit whisper"
OPTIONS = [  # where attention rebuilt from weights by the name of the family would be another
    ("qwen2", {"is_causal": False}), ("mistral", {"is_causal": False, "sliding_window": 3}),
    ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}}),
    ("gpt_neox", {}), ("stablelm", {}), ("phi", {}), ("gemma2", {"query_pre_attn_scalar": 5}),
    ("qwen3", {"rms_norm_eps": 0.1}), ("bert", {"position_embedding_type": "relative_key"}),
    ("albert", {"inner_group_num": 2}), ("gpt2", {"scale_attn_by_inverse_layer_idx": True}),
    ("opt", {"do_layer_norm_before": False}), ("llama", {"attention_bias": True}),
]  # fmt: skip
PROJECTED = """
afmoe albert apertus arcee aria_text bart beit bert bert-generation biogpt bitnet blenderbot blenderbot-small
camembert clip_text_model clip_vision_model cohere cohere2 data2vec-text deit diffllama dinov2 dinov2_with_registers
dinov3_vit distilbert doge electra ernie ernie4_5 eurobert exaone4 flex_olmo gemma gemma2 gemma3_text glm glm4
glm4_moe gpt-sw3 gpt2 gpt_bigcode gpt_neox gpt_oss granite granitemoe granitemoeshared helium hy_v3 ijepa jetmoe
layoutlm lfm2 llama llama4_text m2m_100 marian mbart mimo_v2_flash minimax_m2 ministral3 mistral mixtral
mlcd_vision_model mobilebert modernbert modernbert-decoder moshi mt5 nanochat nllb-moe nomic_bert olmo olmo2 olmo3
olmoe opt pegasus persimmon phi phi3 phimoe pixtral plbart qwen2 qwen2_moe qwen3 qwen3_moe roberta
roberta-prelayernorm seed_oss siglip_vision_model smollm3 splinter stablelm starcoder2 switch_transformers t5 t5gemma
umt5 vaultgemma vit vit_msn whisper xlm-roberta xlm-roberta-xl
"""
BY_SOFTMAX = """
bloom canine data2vec-vision deberta deberta-v2 falcon flaubert gpt_neox_japanese ibert imagegpt megatron-bert mpnet
mpt openai-gpt rembert roformer tapas visual_bert xlm xlnet
"""  # with eager attention, queries and keys of these are not seen
OTHERS = [each for each in (PROJECTED + BY_SOFTMAX).split() if each not in FAMILIES.split()]
ALL = [*((each, {}) for each in FAMILIES.split()), *OPTIONS]
ALL += [pytest.param(each, {}, marks=pytest.mark.rare) for each in OTHERS]


@pytest.mark.parametrize(("family", "options"), ALL)
def test_weights__are_those_that_the_model_returns_also_where_some_queries_are_checked(family, options, monkeypatch):
    monkeypatch.setattr("simstudy.transformers.capture._CHECKED", 5)
    inputs = inputs_of(model := tiny(family, **options))
    own = own_attentions(model, inputs)
    for tile in (1024, 4):
        calls, others, seen = captured(model, inputs, tile=tile)
        if "attention_mask" in inputs:  # padding is known wherever queries are those of the mask
            known = [call for call in calls + others if call.shape[2] == call.shape[3] == 12]
            assert all(torch.equal(call.valid, inputs["attention_mask"] == 1) for call in known)
        gap = distance(own, [call.weights() for call in calls + others])
        print(f"{family}: {len(calls)} calls, {len(others)} by softmax, Grams {gap:.0e}, outputs {seen.worst:.0e}")
        assert len(own) > 1 and gap <= 2e-6 and seen.worst < 1e-5 and bool(calls) == (family not in BY_SOFTMAX.split())


@pytest.mark.parametrize("family", ["llama", "bert", "gpt2", "t5"])
def test_attention_of_another_kind__is_the_same_and_padding_known_before_texts(family):
    eager, other = tiny(family), tiny(family, attention="sdpa")
    inputs = {name: each.flip(-1) for name, each in inputs_of(eager).items()}
    with torch.no_grad():
        before = other(**inputs).last_hidden_state
    calls, _, _ = captured(other, inputs)
    known = [call for call in calls if call.shape[2] == call.shape[3] == 12]
    assert len(known) == 2 and all(torch.equal(call.valid, inputs["attention_mask"] == 1) for call in known)
    assert distance(own_attentions(eager, inputs), [call.weights() for call in calls]) <= 2e-6
    with torch.no_grad(), ThreadPoolExecutor(1) as pool, capture(other, lambda _: None) as seen:
        pool.submit(other, **inputs).result()
        other(**inputs)
    assert seen.calls == len(calls) and other.config._attn_implementation == "sdpa"
    with torch.no_grad():
        assert torch.equal(other(**inputs).last_hidden_state, before)


def test_sinks_and_differences__are_in_the_weights_that_give_the_output():
    for family in ("gpt_oss", "granite_swa"):
        inputs = inputs_of(model := tiny(family))
        calls, _, seen = captured(model, inputs)
        assert not any(call.plain for call in calls) and calls[0].weights()[0].sum(-1).max() < 1.0
        parts = [torch.nn.functional.pad(part, (0, 12 - part.shape[-1])) for _, part in calls[0].tiles(5)]
        assert torch.allclose(torch.cat(parts[::-1], 2), calls[0].weights(), atol=1e-6)
        gap = distance(own_attentions(model, inputs), [call.weights() for call in calls])
        assert seen.worst < 1e-5 and (gap > 0.1) == (family == "granite_swa")  # which returns weights without sinks
    calls, _, _ = captured(model := tiny("diffllama"), inputs_of(model))
    assert [call.name for call in calls] == [f"layers.{layer}.self_attn" for layer in (0, 0, 1, 1)]


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of the name of what is stored
def test_padding__is_known_of_the_last_tokens_where_others_are_stored_and_of_decoders_not_that_of_the_encoder():
    model = tiny("llama")
    ids, mask = torch.randint(3, 90, (2, 12)), torch.ones(2, 12, dtype=torch.long)
    mask[0, :3], mask[1, 9] = 0, 0
    with torch.no_grad():
        stored = model(input_ids=ids[:, :8], attention_mask=mask[:, :8]).past_key_values
    calls, _, _ = captured(model, {"input_ids": ids[:, 8:], "attention_mask": mask, "past_key_values": stored})
    assert len(calls) == 2 and all(torch.equal(call.valid, mask[:, 8:] == 1) for call in calls)
    apart = {"input_ids": ids, "position_ids": 2 * torch.arange(12)[None]}  # without a mask, or what would be stored
    assert distance(own_attentions(model, apart), [call.weights() for call in captured(model, apart)[0]]) <= 2e-6
    calls, _, _ = captured(model := tiny("bart"), inputs_of(model))
    by_name = {call.name: call for call in calls}
    assert all(by_name[f"decoder.layers.0.{kind}_attn"].valid is None for kind in ("encoder", "self"))
    assert by_name["encoder.layers.0.self_attn"].valid.sum(1).tolist() == [12, 9]
    for name in ("decoder.layers.0.encoder_attn", "encoder.layers.0.self_attn"):  # theory is of keys that are seen
        assert by_name[name].visible.any((1, 2)).sum(1).tolist() == [12, 9]


@pytest.mark.parametrize("tile", [1024, 4])
def test_masks_of_truth_values_that_eager_attention_adds__are_refused_by_the_name_of_the_module(tile):
    model = tiny("llama")
    inputs = inputs_of(model) | {"attention_mask": torch.ones(12, 12).tril().bool().expand(2, 1, 12, 12)}
    with pytest.raises(UserError, match=r"layers\.0\.self_attn \(LlamaAttention\): the weights read do not give"):
        captured(model, inputs, tile=tile)


def test_half_precision__is_in_the_attention():
    half = tiny("llama").to(torch.bfloat16)
    inputs = inputs_of(half)
    weights = [call.weights().to(torch.bfloat16) for call in captured(half, inputs)[0]]
    assert distance(own_attentions(half, inputs), weights) <= 2e-2


@pytest.mark.rare
@pytest.mark.filterwarnings("ignore::FutureWarning")  # of peft
def test_adapters__are_in_the_attention():
    peft, model = pytest.importorskip("peft"), tiny("llama")
    inputs = inputs_of(model)
    plain = own_attentions(model, inputs)
    adapted = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj", "k_proj"], init_lora_weights=False))
    adapted = adapted.eval()
    own = own_attentions(adapted, inputs)
    assert distance(own, plain) > 0.01
    assert distance(own, [call.weights() for call in captured(adapted, inputs)[0]]) <= 2e-6
    assert distance(own, [call.weights() for call in captured(adapted.merge_and_unload(), inputs)[0]]) <= 1e-4


@pytest.mark.rare
def test_eight_bit_weights__are_those_of_the_model_and_not_their_codes():
    pytest.importorskip("torchao")
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    model = tiny("llama")
    inputs = inputs_of(model)
    plain = own_attentions(model, inputs)
    quantize_(model, Int8WeightOnlyConfig())
    own = own_attentions(model, inputs)
    assert distance(own, plain) > 1e-5
    assert distance(own, [call.weights() for call in captured(model, inputs)[0]]) <= 2e-6
