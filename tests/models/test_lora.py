"""Adapters: what is trained, worked by hand."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chipshift.errors import InputError
from chipshift.models.count import params
from chipshift.models.hf import read_config
from chipshift.models.lora import (
    Lora,
    adapted,
    lora_params,
    matmul_share,
    read_lora,
    share,
    trainable_params,
)
from chipshift.models.preset import preset
from chipshift.models.saved import saved_beside

SMALL = read_config(
    {
        "model_type": "llama",
        "hidden_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 128,
        "vocab_size": 1000,
    }
)


def test_llama_8b_as_it_is_usually_adapted() -> None:
    # r 16 on q and v of 32 layers: q 4096 → 4096, v 4096 → 1024
    model = preset("llama-3.1-8b")
    expected = 32 * (16 * (4096 + 4096) + 16 * (4096 + 1024))
    assert trainable_params(model, Lora(rank=16)) == expected == 6_815_744
    part = share(model, Lora(rank=16))
    assert part.total == params(model) + 6_815_744
    assert part.fraction == pytest.approx(6_815_744 / 8_037_076_992)


def test_all_linear_is_everything_but_the_ends() -> None:
    # a layer: q and o 64 → 64, k and v 64 → 32, gate and up 64 → 128, down 128 → 64; r 4
    layer = 4 * (2 * 128 + 2 * 96 + 3 * 192)
    assert trainable_params(SMALL, Lora(4, ("all-linear",))) == 4 * layer
    # DoRA's magnitudes: one for each output
    outputs = 64 + 32 + 32 + 64 + 128 + 128 + 64
    assert trainable_params(SMALL, Lora(4, ("all-linear",), dora=True)) == 4 * (layer + outputs)


def test_layers_ranks_and_exclusions() -> None:
    q = 4 * (64 + 64)
    assert trainable_params(SMALL, Lora(4, ("q_proj",))) == 4 * q
    assert trainable_params(SMALL, Lora(4, ("q_proj",), layers=(0, 3))) == 2 * q
    assert trainable_params(SMALL, Lora(4, ("q_proj",), ranks=(("q_proj", 1),))) == q
    both = Lora(4, ("q_proj", "k_proj"), excluded=("k_proj",))
    assert trainable_params(SMALL, both) == 4 * q
    pattern = Lora(4, (r".*layers\.[01]\.self_attn\.q_proj",), pattern=True)
    assert trainable_params(SMALL, pattern) == 2 * q


def test_the_ends_saved_in_full() -> None:
    q = 4 * 4 * (64 + 64)
    table = 1000 * 64
    assert trainable_params(SMALL, Lora(4, ("q_proj",), saved=("embed_tokens",))) == q + table
    saved = Lora(4, ("q_proj",), saved=("embed_tokens", "lm_head"))
    assert trainable_params(SMALL, saved) == q + 2 * table
    assert trainable_params(SMALL, Lora(4, ("q_proj", "embed_tokens"))) == q + 4 * (1000 + 64)


def test_a_module_is_saved_where_its_path_ends_in_the_name_letter_by_letter() -> None:
    q, table = 4 * 4 * (64 + 64), 1000 * 64
    assert trainable_params(SMALL, Lora(4, ("q_proj",), saved=("head",))) == q + table
    assert trainable_params(SMALL, Lora(4, ("q_proj",), saved=("tokens", "head"))) == q + 2 * table
    assert matmul_share(SMALL, Lora(4, ("q_proj",), saved=("head",))).trainable == q + table
    assert saved_beside(SMALL, ("head", "tokens", "heads")) == ("heads",)


def test_experts_are_adapted_in_their_stack() -> None:
    model = preset("mixtral-8x7b")
    # down: 8 experts of 14336 → 4096
    lora = Lora(2, ("q_proj",), parameters=("mlp.experts.down_proj",))
    down = 8 * 2 * (14336 + 4096)
    assert trainable_params(model, lora) == 32 * (2 * (4096 + 4096) + down)
    # w1 and w3 are one parameter, with the rank of both: 4096 → 2 · 14336
    lora = Lora(2, ("w1", "w2", "w3"))
    assert trainable_params(model, lora) == 32 * (8 * 4 * (4096 + 2 * 14336) + down)


def test_the_formula() -> None:
    assert lora_params(8, 100, 50, 1) == 8 * 150


def test_a_file_and_its_folder(tmp_path: Path) -> None:
    keys = {
        "peft_type": "LORA",
        "r": 32,
        "target_modules": ["q_proj", "v_proj"],
        "modules_to_save": None,
        "layers_to_transform": 2,
        "rank_pattern": {"v_proj": 4},
        "bias": "none",
    }
    (tmp_path / "adapter_config.json").write_text(json.dumps(keys))
    lora = read_lora(tmp_path)
    assert lora == read_lora(tmp_path / "adapter_config.json") == read_lora(keys)
    assert lora == Lora(32, ("q_proj", "v_proj"), layers=(2,), ranks=(("v_proj", 4),))
    assert [m.name for m in adapted(SMALL, lora)] == [
        "model.layers.2.self_attn.q_proj",
        "model.layers.2.self_attn.v_proj",
    ]


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"r": 0}, "r is 0; expected a whole number from 1"),
        ({"peft_type": "IA3"}, "peft_type is 'IA3'; expected LORA"),
        ({"target_modules": 3}, "target_modules is 3; expected names of modules"),
        ({"target_modules": "(("}, "target_modules is '(('; expected a regular expression"),
        ({"target_modules": "a" * 2000}, "at most 1,000 characters"),
        ({"bias": "some"}, "bias is 'some'; expected one of none, all, lora_only"),
        ({"rank_pattern": [1]}, "rank_pattern is [1]; expected an object"),
        ({"rank_pattern": {"q_proj": -1}}, "rank_pattern.q_proj is -1"),
    ],
)
def test_a_mistake_is_one_sentence_with_its_key(keys: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        read_lora(keys)
    assert sentence in str(caught.value)


def test_targets_that_the_model_does_not_have() -> None:
    with pytest.raises(InputError, match=r"has none; did you mean 'q_proj'"):
        trainable_params(SMALL, Lora(4, ("qproj",)))
    with pytest.raises(InputError, match="no module of"):
        trainable_params(SMALL, Lora(4, ("q_proj",), layers=(9,)))
    with pytest.raises(InputError, match="expected both or neither"):
        trainable_params(preset("mixtral-8x7b"), Lora(4, ("w1",)))


MAMBA = {"model_type": "mamba", "hidden_size": 8, "num_hidden_layers": 1, "vocab_size": 9}


def test_a_family_without_usual_targets_asks_for_them() -> None:
    with pytest.raises(InputError, match="no target_modules are named, and mamba has none"):
        trainable_params(read_config(MAMBA), Lora(4))


def test_a_family_whose_modules_are_not_known_says_so() -> None:
    unknown = replace(read_config(MAMBA), architecture="bamboo")
    with pytest.raises(InputError, match="names of 'bamboo' are not known; did you mean 'bamba'"):
        trainable_params(unknown, Lora(4))


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"target_modules": "all-linear", "layers_to_transform": [1]}, "target_modules is one"),
        ({"target_modules": ["q_proj"], "layer_replication": [[0, 2], [1, 3]]}, "repeated layers"),
        ({"trainable_token_indices": 3}, "a list of tokens"),
        ({"trainable_token_indices": ["a"]}, "distinct whole numbers from 0"),
        ({"trainable_token_indices": [-1]}, "distinct whole numbers from 0"),
        ({"trainable_token_indices": [1, 1]}, "distinct whole numbers from 0"),
        ({"trainable_token_indices": {"": [1]}}, "names of tables, none of them empty"),
        ({"modules_to_save": [""]}, "names of modules, none of them empty"),
    ],
)
def test_what_peft_refuses_or_is_not_counted_is_one_sentence(
    keys: dict[str, object], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        read_lora(keys)


def test_rows_of_tables_are_trained_alone() -> None:
    def rows(value: object) -> int:
        keys = {"r": 4, "target_modules": ["q_proj"], "trainable_token_indices": value}
        return trainable_params(SMALL, read_lora(keys)) - 4 * 4 * (64 + 64)

    assert rows([0, 999]) == rows({"lm_head": [0, 999]}) == 2 * 64
    assert rows({"embed_tokens": [1], "lm_head": [2, 3]}) == 3 * 64
    gpt_2 = preset("gpt2")
    alone = trainable_params(gpt_2, read_lora({"trainable_token_indices": [1, 2]}))
    assert alone == trainable_params(gpt_2, read_lora({})) + 2 * 768
    tied = replace(SMALL, tied=True)
    lora = Lora(4, ("q_proj",), token_rows=(("embed_tokens", (1,)), ("lm_head", (1,))))
    assert trainable_params(tied, lora) == 4 * 4 * (64 + 64) + 64


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        (
            {"trainable_token_indices": {"foo": [1]}},
            "'foo'; expected model.embed_tokens or lm_head",
        ),
        ({"trainable_token_indices": [1, 1000]}, "has 1,000; expected rows of .* below 1,000"),
        (
            {"trainable_token_indices": [1], "modules_to_save": ["embed_tokens"]},
            "model.embed_tokens is among modules_to_save already",
        ),
    ],
)
def test_rows_that_the_model_does_not_have_or_trains_already(
    keys: dict[str, object], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        trainable_params(SMALL, read_lora(keys))
