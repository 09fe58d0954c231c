"""Megatron-Bridge recipes that stand in the library: what a script says by naming one."""

from pathlib import Path

import pytest

from chipshift.errors import InputError
from chipshift.jobs.complete import resolve_machine
from chipshift.jobs.job import TrainJob
from chipshift.jobs.read import read_job
from chipshift.jobs.readers.bridge_library import library, perf_library
from chipshift.machines.names import parse_machine
from chipshift.models.count import params
from chipshift.models.preset import keys_of

IMPORTED = """from megatron.bridge.recipes.llama import llama3_8b_pretrain_config as pretrain_config
from megatron.bridge.training.pretrain import pretrain


def main() -> None:
    cfg = pretrain_config()
    cfg.train.global_batch_size = 64
    cfg.model.tensor_model_parallel_size = 2
    pretrain(config=cfg)
"""
COMMAND = """#!/bin/bash
#SBATCH --nodes=4
#SBATCH --gpus-per-node=h100:8
TP=${TP:-2}
srun torchrun --nproc-per-node=8 --nnodes=4 scripts/training/run_recipe.py \\
  --recipe llama3_8b_pretrain_config -gb 256 \\
  model.tensor_model_parallel_size=$TP model.seq_length=4096 train.train_iters=1000
"""


def job(folder: Path, text: str, name: str, **settings: str) -> TrainJob:
    file = folder / name
    file.write_text(text)
    return read_job([str(file)], overrides=settings)


def test_the_script_s_own_settings_lie_over_the_library_s(tmp_path: Path) -> None:
    read = job(tmp_path, IMPORTED, "train.py")
    # the null tokenizer's vocabulary, 32000, is a multiple of 128 × tp
    assert read.model.name == "llama-3-8b-altered" and read.model.vocab == 32000
    assert read.sequences_per_step.value == 64  # the script's; the library's is 512
    on = resolve_machine(read, parse_machine("h100*16"))
    assert on.plan is not None
    plan = on.plan.value
    # tp is the script's, cp = 2 the library's; 16 / (2 · 2) replicas
    assert (plan.tp, plan.cp, plan.dp, plan.microbatch) == (2, 2, 4, 1)
    assert read.seq_len.value == 8192


def test_a_recipe_alone_says_its_devices_too(tmp_path: Path) -> None:
    text = IMPORTED.replace("    cfg.model.tensor_model_parallel_size = 2\n", "")
    read = job(tmp_path, text, "train.py")
    assert read.machine is not None and read.machine.value == "h100*2"  # ..._2gpu_h100_...


def test_the_runner_s_options_and_pairs(tmp_path: Path) -> None:
    read = job(tmp_path, COMMAND, "run.sh")
    assert read.plan is not None and read.machine is not None
    plan = read.plan.value
    assert (plan.tp, plan.cp, plan.dp) == (2, 2, 8) and read.machine.value == "h100*32"
    assert (read.sequences_per_step.value, read.seq_len.value) == (256, 4096)
    read = job(tmp_path, COMMAND, "run.sh", TP="4")
    assert read.plan is not None and read.plan.value.tp == 4


def test_fields_are_set_as_bridge_spells_them(tmp_path: Path) -> None:
    read = job(tmp_path, IMPORTED, "train.py", **{"train.global_batch_size": "128"})
    assert read.sequences_per_step.value == 128
    with pytest.raises(InputError, match=r"train.globl_batch_size: .* did you mean"):
        job(tmp_path, IMPORTED, "train.py", **{"train.globl_batch_size": "128"})


def test_an_unknown_recipe_names_the_nearest(tmp_path: Path) -> None:
    text = COMMAND.replace("llama3_8b_pretrain_config", "llama3_8b_pretrian_config")
    with pytest.raises(InputError, match=r"run.sh:6: --recipe .* did you mean 'llama3_8b_pretrain"):
        job(tmp_path, text, "run.sh")


def test_peft_recipes_train_adapters(tmp_path: Path) -> None:
    text = "from megatron.bridge.recipes.qwen import qwen3_8b_peft_config\n"
    read = job(tmp_path, text + "cfg = qwen3_8b_peft_config(peft_scheme='lora')\n", "train.py")
    # rank 32 on q, k, v, o, gate, up, down of 36 layers, D = H·h = 4096, K·h = 1024, F = 12288
    adapters = 36 * 32 * (8192 + 2 * 5120 + 8192 + 3 * 16384)
    assert read.task == "lora"
    assert ("trained parameters", f"{adapters:,}") in [row[:2] for row in read.assumed]


SHIPPED = sorted({recipe.name for recipe in library().values()} - perf_library().keys())
BENCHMARKS = sorted(perf_library())


@pytest.mark.parametrize("name", SHIPPED)
def test_every_recipe_is_read_or_its_model_asked_for(tmp_path: Path, name: str) -> None:
    text = f"from megatron.bridge.recipes import {name}\ncfg = {name}()\n"
    try:
        read = job(tmp_path, text, "train.py")
    except InputError as error:
        assert "which is not a shipped model; expected --model" in str(error)
        assert library()[name].model in str(error)
        if "pipeline_model_parallel_layout" in library()[name].settings:
            return  # it is of that model's layers alone
        read = read_job([str(tmp_path / "train.py")], model="deepseek-v3")
    assert read.sequences_per_step.value == int(library()[name].settings["global_batch_size"])


ASKED_FOR = {  # as docs/jobs.md counts them: no numbers here, or an architecture that is not read
    "LGAI-EXAONE/K-EXAONE-2.0-750B-A37B",
    "nvidia/NVIDIA-Nemotron-Nano-12B-v2-VL-BF16",
    "nvidia/Nemotron-3-Nano-Omni-30B-A3B-Reasoning-BF16",
    "stepfun-ai/Step-3.7-Flash",
}


def test_only_these_models_are_asked_for() -> None:
    models = {recipe.model for recipe in [*library().values(), *perf_library().values()]}
    assert {model for model in models if not _shipped(model)} == ASKED_FOR


def _shipped(model: str) -> bool:
    try:
        keys_of(model)
    except InputError:
        return model in ("", "model")  # the row has its numbers
    return True


@pytest.mark.parametrize(
    ("name", "total"),
    [
        # tensor totals of the hub's pages: tower, merger and language model
        ("qwen25_vl_7b_sft_2gpu_h100_bf16_config", 8_292_166_656),
        ("nemotron_nano_9b_v2_sft_2gpu_h100_bf16_config", 8_888_227_328),
    ],
)
def test_a_model_is_counted_whole(tmp_path: Path, name: str, total: int) -> None:
    text = f"from megatron.bridge.recipes import {name}\ncfg = {name}()\n"
    read = job(tmp_path, text, "train.py")
    assert params(read.model) == total and read.task == "sft"


@pytest.mark.parametrize("name", BENCHMARKS[::9])
def test_every_benchmark_is_read_or_its_model_asked_for(tmp_path: Path, name: str) -> None:
    recipe = perf_library()[name]
    try:
        read = job(tmp_path, PERF.format(name), "train.py")
    except InputError as error:
        assert f"trains '{recipe.model}', which is not a shipped model" in str(error)
        return
    assert read.sequences_per_step.value == int(recipe.settings["global_batch_size"])


FAMILY = """from megatron.bridge.recipes.llama import llama3_8b_pretrain_config
from megatron.bridge.perf_recipes.llama.common import _perf_precision, _with_global_batch_size


def _optimizer(cfg):
    cfg.optimizer.exp_avg_dtype = "bf16"
    cfg.optimizer.exp_avg_sq_dtype = "bf16"


def llama3_8b_pretrain_8gpu_b200_bf16_config():
    cfg = llama3_8b_pretrain_config()
    cfg.mixed_precision = _perf_precision("bf16")
    cfg.model.tensor_model_parallel_size = 2
    cfg.model.context_parallel_size = 1
    cfg.train.global_batch_size = 128
    _optimizer(cfg)
    return cfg


def llama3_8b_pretrain_64gpu_b200_bf16_config():
    cfg = _with_global_batch_size(llama3_8b_pretrain_8gpu_b200_bf16_config(), 1024)
    return cfg
"""


@pytest.mark.parametrize(("devices", "batch"), [(8, 128), (64, 1024)])
def test_a_recipe_is_what_it_is_built_on_and_its_own_name(
    tmp_path: Path, devices: int, batch: int
) -> None:
    """The base is a library recipe for 2 H100s; a helper of the file sets the moments' dtype."""
    recipe = f"llama3_8b_pretrain_{devices}gpu_b200_bf16_config"
    read = job(tmp_path, FAMILY, "llama3.py", recipe=recipe)
    assert read.machine is not None and read.machine.value == f"b200*{devices}"
    assert read.sequences_per_step.value == batch
    assert read.plan is not None and read.plan.value.tp == 2
    precision = read.precision.value
    assert (precision.moments, precision.gradients, precision.reduce) == ("bf16", "bf16", "bf16")


def test_helpers_are_no_recipes(tmp_path: Path) -> None:
    text = FAMILY.split("def llama3_8b_pretrain_64gpu")[0]
    assert job(tmp_path, text, "llama3.py").sequences_per_step.value == 128
    with pytest.raises(InputError, match=r"holds 2 recipes \(llama3_8b_pretrain_8gpu"):
        job(tmp_path, FAMILY, "llama3.py")


OVERRIDES = """
model:
  seq_length: 2048
  tensor_model_parallel_size: 4
train:
  global_batch_size: 32
  micro_batch_size: 2
ddp:
  grad_reduce_in_fp32: false
logger:
  log_interval: 10
"""
LAUNCHER = """#!/bin/bash
#SBATCH --nodes=4
#SBATCH --gres=gpu:4
export CONFIG=conf/over.yaml
srun bash -c 'torchrun --nproc_per_node 4 --nnodes 4 train.py --config-file $CONFIG'
"""


@pytest.mark.parametrize("order", [("train.py", "over.yaml"), ("over.yaml", "train.py")])
@pytest.mark.parametrize("launched", [False, True])
def test_yaml_is_laid_over_the_recipe(
    tmp_path: Path, order: tuple[str, str], launched: bool
) -> None:
    (tmp_path / "train.py").write_text(IMPORTED)
    (tmp_path / "over.yaml").write_text(OVERRIDES)
    (tmp_path / "run.sh").write_text(LAUNCHER)
    names = ("run.sh", *order) if launched else order
    read = read_job([str(tmp_path / name) for name in names])
    assert (read.sequences_per_step.value, read.seq_len.value) == (32, 2048)
    assert read.plan is not None
    assert (read.plan.value.tp, read.plan.value.microbatch) == (4, 2)
    # the recipe names a mixed precision, which is written over what DDP's own section says
    assert (read.precision.value.gradients, read.precision.value.master) == ("fp32", "fp32")
    assert [one.matters for one in read.ignored if one.key == "ddp.grad_reduce_in_fp32"] == [False]


def test_a_variable_s_default_is_its_value_and_a_layout_is_not_even(tmp_path: Path) -> None:
    """61 layers over 8 stages, as the library's layout has them."""
    text = """import os
from megatron.bridge import AutoBridge
from megatron.bridge.recipes.common import _sft_common
from megatron.bridge.recipes.deepseek.deepseek_v3 import (
    set_deepseek_v3_pipeline_model_parallel_layout,
)

TENSOR = int(os.environ.get("TENSOR", "8"))
MODEL = os.getenv("MODEL", "moonshotai/Kimi-K2-Base")


def kimi_sft_config():
    cfg = _sft_common()
    cfg.model = AutoBridge.from_hf_pretrained(MODEL).to_megatron_provider()
    cfg.model.tensor_model_parallel_size = TENSOR
    cfg.model.pipeline_model_parallel_size = 8
    cfg.model.seq_length = 4096
    set_deepseek_v3_pipeline_model_parallel_layout(cfg.model)
    cfg.train.global_batch_size = 64
    cfg.train.micro_batch_size = 1
    return cfg
"""
    read = job(tmp_path, text, "kimi.py")
    assert (read.model.name, read.task) == ("kimi-k2", "sft")
    assert read.plan is not None
    assert (read.plan.value.tp, read.plan.value.pp) == (8, 8)


def test_modules_named_for_recomputing_are_recomputed(tmp_path: Path) -> None:
    """The granularity may stand in a helper of another file."""
    text = IMPORTED.replace(
        "    pretrain(", '    cfg.model.recompute_modules = ["core_attn"]\n    pretrain('
    )
    read = job(tmp_path, text, "train.py")
    assert ("recompute_granularity", "selective") in [(a, b) for a, b, _ in read.assumed]
    assert read.plan is not None and read.plan.value.remat == "selective"


PERF = "from megatron.bridge.perf_recipes.llama import {0}\ncfg = {0}()\n"


def test_a_benchmark_s_recipe_is_known_by_name(tmp_path: Path) -> None:
    # perf_recipes/llama/h100/llama3.py: Llama 3 70B on 64 H100, fp8 with current scaling
    text = PERF.format("llama3_70b_pretrain_64gpu_h100_fp8cs_config")
    read = job(tmp_path, text, "train.py")
    assert read.plan is not None and read.machine is not None
    plan = read.plan.value
    assert (plan.tp, plan.pp, plan.cp, plan.vpp) == (4, 8, 1, 5)
    assert read.sequences_per_step.value == 256 and read.seq_len.value == 8192
    assert read.machine.value == "h100*64" and read.precision.value.compute == "fp8"
    assert read.precision.value.reduce == "bf16"  # benchmarks reduce gradients in bf16
    # Et*2|(t*2|)*34,t*3|(t*2|)*3,tL is 2 and 34 × 2, 3, 3 × 2, 1 layers: 80 in 40 chunks
    assert read.model.n_layers == 80 and plan.stage_layers is not None
    assert plan.stage_layers[35] == 3 and plan.stage_layers[-1] == 1
    assert read.model.vocab == 128256  # the model's own, no tokenizer's


def test_of_two_recipes_of_a_name_the_package_says_which(tmp_path: Path) -> None:
    name = "deepseek_v3_pretrain_1024gpu_h100_bf16_config"
    bench = job(tmp_path, PERF.format(name), "train.py")
    own = job(tmp_path, PERF.format(name).replace("perf_recipes", "recipes"), "train.py")
    # global batches of perf_recipes/deepseek/h100 and of recipes/deepseek/h100
    assert (bench.sequences_per_step.value, own.sequences_per_step.value) == (16384, 4096)


def test_a_layout_of_other_stages_is_not_kept(tmp_path: Path) -> None:
    name = "deepseek_v3_pretrain_1024gpu_h100_bf16_config"
    text = PERF.format(name).replace("perf_recipes", "recipes")
    text += "cfg.model.pipeline_model_parallel_size = 8\n"
    read = job(tmp_path, text, "train.py")
    assert read.plan is not None
    assert read.plan.value.pp == 8 and not read.plan.value.stage_layers


NULL = "from megatron.bridge.recipes.llama import llama32_1b_pretrain_config as r\ncfg = r()\n"


@pytest.mark.parametrize(
    ("more", "vocab"),
    [
        ("", 32000),  # 250 × 128 rows
        ("cfg.model.tensor_model_parallel_size = 4\n", 32256),  # the next multiple of 4 × 128
        ("cfg.tokenizer.vocab_size = 50000\n", 50048),  # 391 × 128
        ("cfg.tokenizer.use_tokenizer_vocab_size = False\n", 128256),
        ("cfg.tokenizer.tokenizer_type = 'HuggingFaceTokenizer'\n", 128256),
        ("cfg.tokenizer = TokenizerConfig('NullTokenizer', vocab_size=9)\n", 128256),
    ],
)
def test_the_null_tokenizer_s_vocabulary_is_the_model_s(
    tmp_path: Path, more: str, vocab: int
) -> None:
    assert job(tmp_path, NULL + more, "train.py").model.vocab == vocab
    assert job(tmp_path, NULL.replace("pretrain", "sft"), "train.py").model.vocab == 128256


def test_a_gpt_3_of_the_recipe_s_own_numbers(tmp_path: Path) -> None:
    text = "from megatron.bridge.recipes.gpt import gpt3_175b_pretrain_config as r\ncfg = r()\n"
    read = job(tmp_path, text, "train.py")
    # 96 layers of 12·D² + 13·D, D = 12288; positions 2048·D; 32256 rows (63 × 4 × 128) tied; 2·D
    width = 12288
    assert params(read.model) == (
        96 * (12 * width**2 + 13 * width) + (2048 + 32256) * width + 2 * width
    )


@pytest.mark.parametrize(
    ("name", "said", "kept"),
    [
        ("llama3_70b_pretrain_64gpu_h100_fp8cs_config", "", ["fp8cs"]),
        ("llama3_70b_pretrain_64gpu_h100_fp8cs_config", "fp8_param_gather = False", []),
        ("llama3_70b_pretrain_64gpu_h100_fp8cs_config", "fp8_param = False", []),
        ("llama3_70b_pretrain_64gpu_h100_bf16_config", "", []),
        # this benchmark takes back what its precision turns on, and the recipe by blocks does not
        ("kimi_k2_pretrain_256gpu_gb200_fp8mx_config", "", []),
        ("kimi_k2_pretrain_1024gpu_h100_fp8sc_config", "", []),
        ("deepseek_v3_pretrain_256gpu_gb200_fp8mx_config", "", ["fp8mx"]),
    ],
)
def test_weights_that_a_precision_keeps_in_8_bits(
    tmp_path: Path, name: str, said: str, kept: list[str]
) -> None:
    text = PERF.format(name) + (f"cfg.mixed_precision.{said}\n" if said else "")
    read = job(tmp_path, text, "train.py")
    assert [flag.value for flag in read.flags if flag.kind == "fp8_params"] == kept


@pytest.mark.parametrize(
    ("module", "name", "kind"),
    [
        ("recipes.qwen", "qwen3_8b_sft_8gpu_h100_bf16_32k_config", "all_to_all"),
        ("perf_recipes.glm_moe_dsa", "glm52_sft_192gpu_gb200_bf16_config", "allgather"),
        ("perf_recipes.llama", "llama31_405b_pretrain_1024gpu_h100_fp8cs_config", "ring"),
    ],
)
def test_the_exchange_that_a_recipe_names(
    tmp_path: Path, module: str, name: str, kind: str
) -> None:
    text = f"from megatron.bridge.{module} import {name}\ncfg = {name}()\n"
    read = job(tmp_path, text, "train.py")
    assert read.plan is not None and read.plan.value.cp_kind == kind and read.plan.value.cp > 1
