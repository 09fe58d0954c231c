"""The shipped models: published sizes, names and torchtitan's flavours."""

import pytest

from chipshift.errors import InputError
from chipshift.models.count import params, params_active, params_embedding
from chipshift.models.preset import FOLDER, flavour, index, names, preset

# The sizes that the publishers print, to the digits they print.
PUBLISHED = {
    "llama-2-7b": 6.74e9,  # Llama 2 paper's "7B": 6.74 billion in the checkpoint's index
    "llama-3.1-8b": 8.03e9,
    "llama-3.1-70b": 70.6e9,
    "llama-3.1-405b": 406e9,
    "llama-3.2-1b": 1.24e9,
    "llama-3.2-3b": 3.21e9,
    "mistral-7b-v0.1": 7.24e9,
    "mixtral-8x7b": 46.7e9,
    "mixtral-8x22b": 141e9,
    "qwen2.5-0.5b": 0.49e9,
    "qwen2.5-1.5b": 1.54e9,
    "qwen2.5-3b": 3.09e9,
    "qwen2.5-7b": 7.62e9,
    "qwen2.5-14b": 14.8e9,
    "qwen2.5-32b": 32.8e9,
    "qwen2.5-72b": 72.7e9,
    "qwen1.5-moe-a2.7b": 14.3e9,
    "qwen2-57b-a14b": 57.4e9,
    "qwen3-8b": 8.2e9,
    "qwen3-14b": 14.8e9,
    "qwen3-32b": 32.8e9,
    "qwen3-30b-a3b": 30.5e9,
    "qwen3-235b-a22b": 235e9,
    "gemma-2b": 2.51e9,
    "gemma-7b": 8.54e9,
    "gemma-2-9b": 9.24e9,
    "gemma-2-27b": 27.2e9,
    "deepseek-v3": 671e9,
    "deepseek-v2": 236e9,
    "deepseek-v2-lite": 15.7e9,
    "kimi-k2": 1.03e12,
    "gpt-oss-20b": 20.9e9,
    "gpt-oss-120b": 116.8e9,
    "llama-4-maverick": 400e9,
    "phi-2": 2.78e9,
    "phi-3-mini": 3.82e9,
    "phi-4": 14.7e9,
    "phi-3.5-moe": 41.9e9,
    "gpt2": 124e6,
    "gpt2-xl": 1.56e9,
    "gpt-j-6b": 6.05e9,
    "gpt-neox-20b": 20.6e9,
    "bloom-176b": 176.2e9,
    "falcon-40b": 41.3e9,
    "olmo-2-13b": 13.7e9,
    "olmoe-1b-7b": 6.92e9,
    "command-r-plus": 104e9,
    "nemotron-4-340b": 341e9,
    "qwen3-next-80b-a3b": 80e9,
    "mamba-2.8b": 2.77e9,
    "jamba-v0.1": 51.6e9,
    "tinyllama-1.1b": 1.10e9,
    "smollm2-135m": 134.5e6,
    "smollm3-3b": 3.08e9,
    "nemotron-h-8b": 8.1e9,  # Nemotron-H's paper and its cards
    "nemotron-h-47b": 46.8e9,
    "nemotron-h-56b": 56.3e9,
    "nemotron-nano-9b-v2": 8.89e9,
    "nemotron-nano-12b-v2": 12.31e9,
    "nemotron-3-nano-30b-a3b": 31.6e9,
    "nemotron-3-super-120b-a12b": 120.6e9,
    "nemotron-3-ultra-550b-a55b": 550e9,
    "qwen2.5-vl-3b": 3.75e9,  # towers too, from here to Ministral
    "qwen2.5-vl-32b": 33.5e9,
    "qwen2.5-vl-72b": 73.4e9,
    "qwen3-vl-8b": 8.77e9,
    "qwen3-vl-30b-a3b": 31.1e9,
    "qwen3-vl-235b-a22b": 236e9,
    "ministral-3-8b": 8.9e9,
    "ministral-3-14b": 13.9e9,
    "exaone-4.0-1.2b": 1.28e9,
    "k-exaone-236b-a23b": 236e9,
    "glm-4.5v": 107.7e9,  # the hub's page, tower and all
    "bert-base": 110e6,
    "minitron-4b": 4.19e9,
    "nemotron-4-15b": 15.6e9,
    "nemotron-ultra-253b": 253e9,
    "gpt3-175b": 175e9,
    "llama-3.2-90b-vision": 88.6e9,
    "kimi-linear-48b-a3b": 49.1e9,  # the hub's page
    "mimo-v2-flash": 309e9,
    "step-3.5-flash": 196e9,
    "deepseek-v4-flash": 284e9,
    "modernbert-large": 395e6,
}
ACTIVE = {  # "activated parameters", where the publisher prints them and counts both embeddings
    "mixtral-8x7b": 12.9e9,
    "mixtral-8x22b": 39e9,
    "qwen3-30b-a3b": 3.3e9,
    "qwen3-235b-a22b": 22e9,
    "deepseek-v2": 21e9,
    "llama-4-scout": 17e9,
    "llama-4-maverick": 17e9,
    "olmoe-1b-7b": 1.3e9,
    "jamba-v0.1": 12e9,
    "nemotron-3-nano-30b-a3b": 3.6e9,  # its report: 3.2 billion, 3.6 with the embeddings
    "nemotron-3-super-120b-a12b": 12.7e9,
    "k-exaone-236b-a23b": 23.6e9,  # "23 billion": 22.7 beside the embedding
    "mimo-v2-flash": 15.4e9,  # "15 billion"
    "deepseek-v4-flash": 13.8e9,  # "13 billion": 13.3 beside the embedding
    "deepseek-v4-pro": 49.8e9,  # "49 billion": 48.9 beside it
    "glm-5.1": 41.8e9,  # "40 billion" beside an embedding and a head of 0.95 each
}
EXACT = {  # printed in full
    "llama-3.2-11b-vision": 10_670_220_835,
    "nemotron-3-nano-4b": 3_973_556_832,  # Megatron-Bridge's card of its verification, 2026-07
    "qwen2.5-vl-7b": 8_292_166_656,  # tensor totals of the hub's pages, 2026
    "exaone-4.0-1.2b": 1_279_391_488,
    "glm-5.2": 743_377_000_704,  # Megatron-Bridge's card of its verification, 2026-08
}
LLAMA3 = ("debugmodel", "1B", "3B", "8B", "70B", "405B")
QWEN3 = (
    "debugmodel",
    "debugmodel_non_fused_qkv",
    "debugmodel_moe",
    "0.6B",
    "1.7B",
    "4B",
    "8B",
    "14B",
    "32B",
    "30B-A3B",
    "235B-A22B",
)
GPT_OSS = ("debugmodel", "20b", "120b")
QWEN3_5 = ("0.8B", "2B", "4B", "9B", "27B", "35B-A3B", "122B-A10B", "397B-A17B")
DEEPSEEK = ("debugmodel", "16B", "236B", "671B")


@pytest.mark.parametrize(("name", "size"), PUBLISHED.items())
def test_total_is_the_published_size(name: str, size: float) -> None:
    assert params(preset(name)) == pytest.approx(size, rel=1e-2)


@pytest.mark.parametrize(("name", "size"), EXACT.items())
def test_total_to_the_last_parameter(name: str, size: int) -> None:
    assert params(preset(name)) == size


@pytest.mark.parametrize(("name", "size"), ACTIVE.items())
def test_active_is_the_published_size(name: str, size: float) -> None:
    assert params_active(preset(name)) == pytest.approx(size, rel=2e-2)


def test_deepseek_v4_pro_rounds_to_what_its_report_prints() -> None:
    assert round(params(preset("deepseek-v4-pro")) / 1e12, 1) == 1.6


def test_qwen3_without_embeddings_as_its_card_says() -> None:
    # Qwen3-8B's card: 8.2B, of them 6.95B beside embedding and head
    model = preset("qwen3-8b")
    assert params(model) - 2 * params_embedding(model) == pytest.approx(6.95e9, rel=1e-3)


@pytest.mark.parametrize(
    ("family", "size"),
    [("llama3", s) for s in LLAMA3]
    + [("qwen3", s) for s in QWEN3]
    + [("deepseek_v3", s) for s in DEEPSEEK]
    + [("gpt_oss", s) for s in GPT_OSS]
    + [("qwen3_5", s) for s in QWEN3_5],
)
def test_every_flavour_of_torchtitan_is_shipped(family: str, size: str) -> None:
    assert params(flavour(family, size)) > 0


def test_a_shipped_config_leaves_nothing_open() -> None:
    assert all(preset(name).defaults == () for name in names())


def test_torchtitan_8b_is_llama_31_8b() -> None:
    assert flavour("llama3", "8B") is preset("llama-3.1-8b")


@pytest.mark.parametrize(
    "spelling",
    [
        "llama-3.1-8b",
        "Llama-3.1-8B",
        "meta-llama/Llama-3.1-8B",
        "meta-llama/Meta-Llama-3.1-8B-Instruct",
        "llama 3.1 8B",
        "llama3.1-8b",
    ],
)
def test_spellings_of_one_model(spelling: str) -> None:
    assert preset(spelling).name == "llama-3.1-8b"


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("google/gemma-2-9b-it", "gemma-2-9b"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b"),
        ("Qwen/Qwen3-30B-A3B-Base", "qwen3-30b-a3b"),
        ("meta-llama/Llama-2-7b-chat-hf", "llama-2-7b"),
        ("TinyLlama/TinyLlama-1.1B-Chat-v1.0", "tinyllama-1.1b"),
        ("deepseek-ai/DeepSeek-R1", "deepseek-v3"),
        ("openai/gpt-oss-20b", "gpt-oss-20b"),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "nemotron-3-nano-30b-a3b"),
        ("mistralai/Ministral-3-8B-Instruct-2512", "ministral-3-8b"),
        ("mistralai/Ministral-8B-Instruct-2410", "ministral-8b"),
        ("Qwen/Qwen3-VL-8B-Instruct", "qwen3-vl-8b"),
    ],
)
def test_a_model_trained_further_is_its_base(spelling: str, name: str) -> None:
    assert preset(spelling).name == name


def test_llama_3_and_31_are_told_apart() -> None:
    assert preset("llama3-8b").max_positions == 8192
    assert preset("llama3.1-8b").max_positions == 131072


def test_an_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(InputError, match=r"--model.*did you mean 'llama-3\.1-8b'"):
        preset("llama-3.1-9b")
    with pytest.raises(InputError, match=r"did you mean 'qwen3 32B'.*--model"):
        flavour("qwen3", "33B")


def test_every_preset_has_a_source_and_no_name_stands_for_two() -> None:
    assert sorted(f"{name}.json" for name in names()) == sorted(
        path.name for path in FOLDER.glob("*.json")
    )
    spellings = [a for e in index().values() for a in e.get("aliases", ())] + names()
    assert len({s.lower().replace(" ", "-") for s in spellings}) == len(spellings)
    for name, entry in index().items():
        assert entry["source"].count(", ") >= 2, name
        assert preset(name).name == name
