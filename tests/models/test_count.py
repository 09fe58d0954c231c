"""Parameter counts, worked by hand from the published architecture numbers."""

from chipshift.models.count import layer_params, params, params_active, params_embedding
from chipshift.models.hf import read_config
from chipshift.models.model import Attention, DenseMlp, Layer, Model
from chipshift.models.preset import preset
from chipshift.worked import Worked, leaf
from chipshift.worked.leaves import with_sources

LLAMA_8B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}
MIXTRAL = {
    "model_type": "mixtral",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "vocab_size": 32000,
}
DEEPSEEK = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "n_shared_experts": 1,
    "first_k_dense_replace": 3,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129280,
}


def test_llama_8b() -> None:
    model = read_config(LLAMA_8B)
    # q and o: 4096 × 4096 each; k and v: 4096 × 1024 each
    attention = 2 * 4096 * 4096 + 2 * 4096 * 1024
    mlp = 3 * 4096 * 14336
    embedding = 128256 * 4096
    total = 32 * (attention + mlp + 2 * 4096) + 4096 + 2 * embedding
    assert total == 8_030_261_248  # Meta's "8B"
    assert params(model) == total
    assert params_embedding(model) == embedding == 525_336_576
    assert params_active(model) == total


def test_mixtral_8x7b() -> None:
    model = read_config(MIXTRAL)
    expert = 3 * 4096 * 14336
    attention = 2 * 4096 * 4096 + 2 * 4096 * 1024
    layer = attention + 8 * expert + 8 * 4096 + 2 * 4096
    total = 32 * layer + 4096 + 2 * 32000 * 4096
    assert total == 46_702_792_704  # Mistral's "46.7B"
    assert params(model) == total
    assert params_active(model) == total - 32 * 6 * expert == 12_879_925_248  # "12.9B"


def test_deepseek_v3() -> None:
    model = read_config(DEEPSEEK)
    # queries 7168 → 1536 → 128 × 192; keys and values 7168 → 512 + 64 → 128 × (128 + 128);
    # output 128 × 128 → 7168
    attention = 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168
    norms = 2 * 7168 + 1536 + 512
    expert = 3 * 7168 * 2048
    routed = attention + norms + 256 * expert + expert + 256 * 7168
    dense = attention + norms + 3 * 7168 * 18432
    total = 3 * dense + 58 * routed + 7168 + 2 * 129280 * 7168
    assert params(model) == total
    assert round(total / 1e9) == 671  # DeepSeek's "671B"
    assert params_active(model) == total - 58 * 248 * expert
    # the report's "37B active" leaves the input embedding out: 37.55e9 - 0.93e9
    assert round((params_active(model) - params_embedding(model)) / 1e9) == 37


def test_parts_of_a_layer() -> None:
    layer = Layer(
        Attention(heads=4, kv_heads=2, head_dim=16, v_head_dim=16, bias_params=128, norm_params=32),
        DenseMlp(width=256, matrices=2, bias_params=320),
        norm_params=128,
    )
    part = layer_params(layer, 64)
    assert part.attention == 64 * 64 + 64 * 32 + 64 * 32 + 64 * 64
    assert part.dense_mlp == 2 * 64 * 256
    assert part.norms == 128 + 32
    assert part.biases == 128 + 320
    assert (part.router, part.one_expert, part.experts, part.shared) == (0, 0, 0, 0)
    assert part.total == 12_288 + 32_768 + 160 + 448


def test_a_mamba_layer() -> None:
    # Mamba-2.8B: width 2560, 5120 channels inside, a state of 16, steps from rank 160, conv of 4
    model = preset("mamba-2.8b")
    maps = 2560 * 2 * 5120 + 5120 * (160 + 2 * 16) + 160 * 5120 + 5120 * 2560
    conv, decay, skip = 5120 * 4, 5120 * 16, 5120
    part = layer_params(model.layers[0][0], 2560)
    assert part.mixer == maps + conv + decay + skip
    assert part.biases == 5120 + 5120  # of the convolution and of the step
    assert part.norms == 2560
    assert params(model) == 64 * part.total + 2560 + 50280 * 2560


def test_a_layer_of_the_gated_delta_rule_and_one_of_gated_attention() -> None:
    # Qwen3-Next: 16 key and 32 value heads of 128; q and k 2048, v and z 4096, β and decay 32
    model = preset("qwen3-next-80b-a3b")
    linear = layer_params(model.layers[0][0], 2048)
    maps = 2048 * (2 * 2048 + 2 * 4096) + 2048 * 2 * 32 + 4096 * 2048
    assert linear.mixer == maps + 4 * (2 * 2048 + 4096) + 2 * 32
    # 16 heads of 256 asked twice (query and gate), 2 of keys and of values
    full = layer_params(model.layers[1][0], 2048)
    assert full.attention == 2048 * 2 * 4096 + 2 * 2048 * 512 + 4096 * 2048
    # 512 experts of 512 and one that all tokens visit, behind a gate of one channel
    assert full.one_expert == 3 * 2048 * 512
    assert full.shared == 3 * 2048 * 512 + 2048
    assert [n for _, n in model.layers] == [36, 12]


def test_a_recurrent_layer_shows_its_working() -> None:
    layer = with_sources(preset("mamba-2.8b").layers[0][0], "config")
    worked = layer_params(layer, 2560).mixer
    assert isinstance(worked, Worked)
    assert worked.value == layer_params(preset("mamba-2.8b").layers[0][0], 2560).mixer


def test_counts_show_their_working() -> None:
    width = leaf(64, "channel", "d_model", "config")
    layer = Layer(Attention(4, 4, 16, 16), DenseMlp(256), norm_params=128)
    worked = layer_params(layer, width).attention  # type: ignore[arg-type]
    assert isinstance(worked, Worked)
    assert worked.value == 4 * 64 * 64
    assert worked.name == "gqa_params"
    assert "d_model" in worked.expression


def test_a_model_without_layers_is_its_ends() -> None:
    model = Model("none", "llama", 8, 10, (), (), tied=True, final_norm_params=8)
    assert params(model) == 10 * 8 + 8
    assert params_active(model) == 88
