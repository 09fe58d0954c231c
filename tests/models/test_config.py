"""Reading configs: what is understood, and the one sentence for what is not."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chipshift.errors import InputError
from chipshift.models.count import params, params_active, params_embedding
from chipshift.models.hf import LARGEST_BYTES, read_config

from .diffusion_configs import COUNTED
from .reference_configs import DECODERS, DIFFUSION, GEMMA_3N, HEARING, HYBRIDS, MULTIMODAL, OTHERS

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 1000,
}


def test_a_file_and_its_folder_are_the_same_model(tmp_path: Path) -> None:
    folder = tmp_path / "my-llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    model = read_config(folder)
    assert model == read_config(folder / "config.json") == read_config(str(folder))
    assert model.name == "my-llama"
    assert (model.architecture, model.d_model, model.n_layers) == ("llama", 64, 4)


def test_what_the_config_left_open_is_listed() -> None:
    left = dict(read_config(LLAMA).defaults)
    assert left == {"attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False}


def test_the_class_name_stands_in_for_a_missing_model_type() -> None:
    values = {**LLAMA, "architectures": ["LlamaForCausalLM"]}
    del values["model_type"]
    assert read_config(values).n_layers == 4


def test_alternating_windows_are_two_runs() -> None:
    # Gemma 2 slides in its first, third, ... layer
    model = read_config(
        {**LLAMA, "model_type": "gemma2", "num_hidden_layers": 5, "sliding_window": 32}
    )
    assert [layer.attention.window for layer, _ in model.layers if layer.attention] == [32, None]
    assert [n for _, n in model.layers] == [3, 2]
    assert model.layer_order == (0, 1, 0, 1, 0)


def test_gemma3_sees_everything_in_each_sixth_layer() -> None:
    model = read_config({"model_type": "gemma3", "text_config": {**LLAMA, "num_hidden_layers": 7}})
    assert model.layer_order == (0, 0, 0, 0, 0, 1, 0)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"hidden_size": -4}, "hidden_size is -4; expected a whole number from 1"),
        ({"hidden_size": "64"}, "hidden_size is '64'; expected a whole number"),
        ({"hidden_size": True}, "hidden_size is True; expected a whole number"),
        ({"hidden_size": 10**30}, "hidden_size is 1000000"),
        ({"hidden_size": 64.5}, "hidden_size is 64.5; expected a whole number"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0; expected a whole number from 1 to 10,"),
        ({"num_key_value_heads": 3}, "num_key_value_heads is 3; expected the second to divide"),
        ({"vocab_size": float("nan")}, "vocab_size is NaN; expected a number"),
        ({"rope_theta": float("nan")}, "rope_theta is NaN; expected a number"),
        ({"vocab_size": float("inf")}, "vocab_size is inf; expected a whole number"),
        ({"attention_bias": "yes"}, "attention_bias is 'yes'; expected true or false"),
        ({"intermediate_size": None}, "intermediate_size is missing; expected a whole number"),
        ({"model_type": 7}, "model_type is 7; expected a string"),
        ({"model_type": "gemma3"}, "text_config is missing; expected an object"),
        ({"model_type": "llamma"}, "'llamma' is not known; did you mean 'llama'?"),
        ({"model_type": None}, "neither model_type nor architectures is given"),
    ],
)
def test_a_mistake_is_one_sentence_with_its_key(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        read_config({**LLAMA, **change}, "job/config.json")
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_architecture_names_the_flags_that_supply_its_numbers() -> None:
    unknown = {key: value for key, value in LLAMA.items() if key != "vocab_size"}
    with pytest.raises(InputError, match=r"; --set model.vocab_size=N reads it.*--torch"):
        read_config({**unknown, "model_type": "perceiver"})


def test_windows_named_layer_by_layer_must_be_known_names() -> None:
    kinds = ["full_attention", "sliding_atention", "full_attention", "full_attention"]
    with pytest.raises(InputError, match="did you mean 'sliding_attention'"):
        read_config({**LLAMA, "model_type": "gemma2", "layer_types": kinds})


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is not JSON at line 1"),
        (b'{"hidden_size": 1', "is not JSON at line 1"),
        (b"[1, 2]", "holds a list; expected an object"),
        (b"\xff\xfe\x00", "is not text"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"a": ' * 500 + b"1" + b"}" * 500, "nested too deeply"),
        (b'{"hidden_size": ' + b"9" * 10_000 + b"}", "a number too long"),
        (b'{"model_type": "llama", "hidden_size": NaN}', "hidden_size is NaN"),
    ],
)
def test_a_file_that_is_no_config(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_config(path)
    assert sentence in str(caught.value)
    assert str(path) in str(caught.value)


def test_paths_that_are_no_config(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is a folder without a config\.json"):
        read_config(tmp_path)
    with pytest.raises(InputError, match="no such file"):
        read_config(tmp_path / "nothing.json")
    for odd in ("a" * 5000, "a\x00b", "\udcff"):
        with pytest.raises(InputError, match="no such file"):
            read_config(odd)
    big = tmp_path / "big.json"
    with big.open("wb") as file:
        file.truncate(200 * 1024 * 1024)  # sparse: 200 MiB that take no room
    with pytest.raises(InputError, match=f"above {LARGEST_BYTES:,} is refused"):
        read_config(big)


ATOM = (
    st.integers()
    | st.integers(0, 8)
    | st.floats()
    | st.sampled_from([None, True, False, "", "a\nb", "full_attention", "sliding_attention", {}])
)
JSON = ATOM | st.lists(ATOM, max_size=5) | st.just([[["global", "local"], 2]])
EVERY = [c for _, c in (*DECODERS, *HYBRIDS, *DIFFUSION, *COUNTED)] + [
    c for _, c, _ in OTHERS + MULTIMODAL
]
EVERY += [GEMMA_3N, *(c for _, c, _ in HEARING)]
TOP = st.sampled_from(sorted({key for config in EVERY for key in config}))
PARTS = st.sampled_from(["text_config", "vision_config", "audio_config"])


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    config=st.sampled_from(EVERY),
    change=st.dictionaries(TOP, JSON, max_size=3),
    part=PARTS,
    inner=st.dictionaries(TOP, JSON, max_size=2),
)
def test_any_values_give_a_model_or_one_sentence(
    config: dict[str, Any], change: dict[str, Any], part: str, inner: dict[str, Any]
) -> None:
    mixed = {**config, **change}
    if isinstance(mixed.get(part), dict):
        mixed[part] = {**mixed[part], **inner}
    try:
        model = read_config(mixed)
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert sum(n for _, n in model.layers) == model.n_layers == len(model.layer_order)
        assert 0 <= params_embedding(model) <= params(model)
        assert params_active(model) <= params(model)


@pytest.mark.parametrize("kind", ["gemma3", "llama4"])
def test_a_tower_that_the_config_does_not_tell_is_said_to_be_left_out(kind: str) -> None:
    text = {**LLAMA, "num_hidden_layers": 1, "num_local_experts": 2, "intermediate_size_mlp": 128}
    model = read_config({"model_type": kind, "text_config": text})
    assert model.towers == () and model.architecture == kind
    assert dict(model.defaults)["vision_config"] == "none, the language model alone"


OLD_LLAVA: dict[str, Any] = {
    # liuhaotian/llava-v1.5-7b: Vicuna's keys at the top, its tower by name
    "architectures": ["LlavaLlamaForCausalLM"],
    "model_type": "llava",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "vocab_size": 32000,
    "tie_word_embeddings": False,
    "mm_hidden_size": 1024,
    "mm_projector_type": "mlp2x_gelu",
    "mm_vision_tower": "openai/clip-vit-large-patch14-336",
}


def test_llavas_own_config_names_its_tower() -> None:
    # Vicuna 7B; maps 1024 → 4096 → 4096 with biases; CLIP ViT-L/14 at 336 pixels: 577 positions
    # and a class token of 1024, patches of 3 · 14², 24 layers of 12 · 1024² + 13 · 1024, two norms
    tower = 577 * 1024 + 1024 + 3 * 14**2 * 1024 + 24 * (12 * 1024**2 + 13 * 1024) + 4 * 1024
    maps = 1024 * 4096 + 4096 + 4096**2 + 4096
    model = read_config(OLD_LLAVA)
    assert tower == 303_507_456
    assert params(model) == 6_738_415_616 + maps + tower
    assert model.towers[0].tokens == 577


def test_llavas_own_config_over_other_language_models() -> None:
    mistral = {**OLD_LLAVA, "model_type": "llava_mistral", "num_key_value_heads": 8}
    mistral |= {"architectures": ["LlavaMistralForCausalLM"], "intermediate_size": 14336}
    mistral |= {"mm_patch_merge_type": "spatial_unpad", "mm_projector_type": "linear"}
    # Mistral 7B with 32,000 words; one map with its bias; a vector for the end of a row of patches
    expected = 7_241_732_096 + (1024 * 4096 + 4096) + 4096 + 303_507_456
    assert params(read_config(mistral)) == expected
    small = {**OLD_LLAVA, "mm_vision_tower": "openai/clip-vit-large-patch14"}
    # 256 patches of an image of 224 pixels in place of 576
    assert params(read_config(OLD_LLAVA)) - params(read_config(small)) == (576 - 256) * 1024


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("mm_vision_tower", "google/siglip-so400m-patch14-384", "clip-vit-large-patch14-336"),
        ("mm_projector_type", "cabstractor", "linear or mlp2x_gelu"),
    ],
)
def test_llavas_other_towers_are_named(key: str, value: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        read_config({**OLD_LLAVA, key: value})
    assert f"{key} is '{value}'" in str(caught.value) and said in str(caught.value)


REFINED_WEB: dict[str, Any] = {
    # tiiuae/falcon-7b before transformers knew it; the 40B says n_head_kv too
    "architectures": ["RWForCausalLM"],
    "model_type": "RefinedWebModel",
    "hidden_size": 4544,
    "n_layer": 32,
    "n_head": 71,
    "multi_query": True,
    "parallel_attn": True,
    "bias": False,
    "alibi": False,
    "vocab_size": 65024,
}


def test_falcon_under_its_first_name() -> None:
    # 32 layers of queries and output 2 · 4544², one key and value head of 64, a feed-forward of
    # 8 · 4544² and one norm; the last norm; words
    layer = 2 * 4544**2 + 2 * 64 * 4544 + 8 * 4544**2 + 2 * 4544
    small = 32 * layer + 2 * 4544 + 65024 * 4544
    assert params(read_config(REFINED_WEB)) == small == 6_921_720_704
    large = {"hidden_size": 8192, "n_layer": 60, "n_head": 128, "n_head_kv": 8}
    # 8 key and value heads of 64, two norms side by side
    layer = 2 * 8192**2 + 2 * 8 * 64 * 8192 + 8 * 8192**2 + 4 * 8192
    whole = 60 * layer + 2 * 8192 + 65024 * 8192
    assert params(read_config({**REFINED_WEB, "model_type": "RefinedWeb", **large})) == whole
    unnamed = {k: v for k, v in REFINED_WEB.items() if k != "model_type"}
    assert params(read_config(unnamed)) == small


def test_an_unknown_architectures_numbers_are_found_under_text_config() -> None:
    text = {key: LLAMA[key] for key in LLAMA if key not in ("model_type", "vocab_size")}
    with pytest.raises(InputError) as caught:
        read_config({"model_type": "gemma9", "text_config": text})
    assert "; --set model.vocab_size=N reads" in str(caught.value)


def test_exaone4_says_its_windows_by_letters() -> None:
    # EXAONE-4.0-32B: three sliding layers, then one that sees everything
    exaone = {**LLAMA, "model_type": "exaone4", "sliding_window": 32, "num_hidden_layers": 6}
    lettered = read_config({**exaone, "sliding_window_pattern": "LLLG"})
    numbered = read_config({**exaone, "sliding_window_pattern": 4})
    assert lettered.layers == numbered.layers and lettered.layer_order == (0, 0, 0, 1, 0, 0)
    windows = [layer.attention.window for layer, _ in lettered.layers if layer.attention]
    assert windows == [32, None]
    with pytest.raises(InputError, match="sliding_window_pattern is 'LXG'; expected a number, or"):
        read_config({**exaone, "sliding_window_pattern": "LXG"})


@pytest.mark.parametrize(
    ("kind", "keys", "sentence"),
    [
        (
            "Lumina2Transformer2",
            {"num_kv_heads": 7},
            "num_kv_heads is 7; expected a divisor of the 24",
        ),
        (
            "Lumina2Transformer2",
            {"hidden_size": 16},
            "24 attention heads do not divide the width 16",
        ),
        (
            "ZImageTransformer2",
            {"dim": 100, "n_heads": 30},
            "30 attention heads do not divide the width 100",
        ),
        ("WanTransformer3", {"patch_size": [1, 2]}, "expected a list of 3 whole numbers$"),
        (
            "SanaTransformer2",
            {"sample_size": 1, "patch_size": 2},
            "sample_size is 1; expected a whole number",
        ),
    ],
)
def test_a_diffusion_transformer_that_cannot_be_built(
    kind: str, keys: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        read_config({"_class_name": f"{kind}DModel", **keys})
