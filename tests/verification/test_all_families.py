"""Attention of families of transformers, captured, against what they return themselves."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers")
sys.path.insert(0, str(Path(__file__).parents[1] / "transformers"))

from families import captured, distance, inputs_of, own_attentions, tiny
from test_families import (
    test_adapters_and_half_precision__are_in_the_attention,  # noqa: F401
    test_eight_bit_weights__are_those_of_the_model_and_not_their_codes,  # noqa: F401
)

pytestmark = pytest.mark.rare
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


@pytest.mark.parametrize("family", (PROJECTED + BY_SOFTMAX).split())
def test_family__has_the_attention_that_it_returns(family):
    model = tiny(family)
    inputs = inputs_of(model)
    (calls, others, seen), (*_, in_parts) = (captured(model, inputs, tile=tile) for tile in (1000, 4))
    gap = distance(own_attentions(model, inputs), [call.weights() for call in calls + others])
    print(f"{family}: {len(calls)} calls, {len(others)} by softmax alone, Grams {gap:.0e}, outputs {seen.worst:.0e}")
    assert bool(calls) == (family in PROJECTED.split())
    assert gap <= 2e-6 and max(seen.worst, in_parts.worst) < 1e-5


def test_number_of_families():
    assert len({*PROJECTED.split(), *BY_SOFTMAX.split()}) >= 95
