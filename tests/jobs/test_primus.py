"""Primus's YAML on each of its backends: overrides over trainers' and models' presets."""

from pathlib import Path

import pytest

from chipshift.errors import InputError
from chipshift.jobs.complete import resolve_machine
from chipshift.jobs.job import TrainJob
from chipshift.jobs.read import read_job
from chipshift.jobs.readers.primus import presets
from chipshift.machines.names import parse_machine
from chipshift.models.count import params

from .test_formats import value_of

MEGATRON = """
exp_name: ${PRIMUS_EXP_NAME:llama}
modules:
  pre_trainer:
    framework: megatron
    config: pre_trainer.yaml
    model: llama3.1_8B.yaml
    overrides:
      micro_batch_size: 4
      global_batch_size: ${PRIMUS_GBS:256}
      seq_length: 8192
      tensor_model_parallel_size: 1
      use_distributed_optimizer: false
      use_torch_fsdp2: true
      recompute_granularity: full
      recompute_method: uniform
      recompute_num_layers: 1
      fp8: hybrid
      save: null
"""

TITAN = """
modules:
  pre_trainer:
    framework: torchtitan
    config: pre_trainer.yaml
    model: llama3.1_8B-fp8.yaml
    overrides:
      sink_level: null
      training:
        local_batch_size: 4
        seq_len: 8192
        mock_data: true
      quantize:
        linear:
          float8:
            enable_fsdp_float8_all_gather: true
      primus_turbo:
        enable_attention_float8: false
"""

MAXTEXT = """
modules:
  pre_trainer:
    framework: maxtext
    config: pre_trainer.yaml
    model: llama3_8B.yaml
    overrides:
      base_output_directory: "./output"
      dcn_data_parallelism: -1
      ici_fsdp_parallelism: 8
      max_target_length: 8192
      per_device_batch_size: 3
      remat_policy: minimal
      quantization: "nanoo_fp8"
"""

SMALL = "extends:\n  - base.yaml\nnum_layers: 3\nffn_hidden_size: 2048\n"
BASE = (
    "hidden_size: 512\nnum_layers: 24\nnum_attention_heads: 8\nswiglu: true\n"
    "add_bias_linear: false\nnormalization: RMSNorm\nposition_embedding_type: rope\n"
    "untie_embeddings_and_output_weights: true\nvocab_size: 1024\n"
)
SMALL_PARAMS = 3 * (4 * 512 * 512 + 3 * 512 * 2048 + 2 * 512) + 2 * 1024 * 512 + 512


def read(folder: Path, files: dict[str, str], **settings: str) -> TrainJob:
    paths = []
    for name, text in files.items():
        (folder / name).write_text(text)
        paths.append(str(folder / name))
    return read_job(paths, overrides=settings)


def of(job: TrainJob, *paths: str) -> tuple[object, ...]:
    return tuple(value_of(job, path) for path in paths)


def with_(lines: str, text: str = MEGATRON) -> str:
    return text.replace("      save: null\n", lines)


def test_a_model_by_its_preset_and_megatron_overridden(tmp_path: Path) -> None:
    job = read(tmp_path, {"llama.yaml": MEGATRON})
    assert value_of(job, "model.name") == "llama-3.1-8b"
    assert of(job, "seq_len", "sequences_per_step", "plan.microbatch") == (8192, 256, 4)
    assert of(job, "plan_open", "plan.remat", "precision.compute") == ("fsdp", "full", "fp8")
    assert any(what == "bf16" and "Primus" in why for what, _, why in job.assumed)
    more = read(tmp_path, {"llama.yaml": MEGATRON}, PRIMUS_GBS="512")
    assert value_of(more, "sequences_per_step") == 512


def test_what_a_file_leaves_out_is_the_trainers_preset(tmp_path: Path) -> None:
    head, _, _ = MEGATRON.partition("    overrides:")
    job = read(tmp_path, {"a.yaml": head + "    overrides:\n      save: null\n"})
    # pre_trainer.yaml: 16 sequences of 1024, two at once, optimizer state sharded
    assert of(job, "seq_len", "sequences_per_step", "plan.microbatch") == (1024, 16, 2)
    assert of(job, "plan.optimizer_sharding", "precision.compute") == ("zero1", "bf16")
    tuned = head.replace("pre_trainer", "post_trainer").replace(
        "post_trainer.yaml", "sft_trainer.yaml"
    )
    job = read(tmp_path, {"b.yaml": tuned + "    overrides:\n      save: null\n"})
    assert of(job, "seq_len", "sequences_per_step", "plan.microbatch") == (2048, 128, 1)
    assert job.task == "sft"


def test_a_models_preset_goes_through_all_that_it_extends(tmp_path: Path) -> None:
    text = MEGATRON.replace("llama3.1_8B", "mixtral_8x7B_v0.1").replace("fp8: hybrid", "fp8: null")
    job = read(tmp_path, {"a.yaml": text})
    assert value_of(job, "model.name") == "mixtral-8x7b"
    # deepseek_v2.yaml says expert_model_parallel_size 8, which no override takes back
    text = MEGATRON.replace("llama3.1_8B", "deepseek_v2")
    assert of(read(tmp_path, {"b.yaml": text}), "plan.ep") == (8,)


def test_mock_data_train_a_vocabulary_of_their_own(tmp_path: Path) -> None:
    job = read(tmp_path, {"a.yaml": with_("      mock_data: true\n")})
    # 131,072 rows and an end of document, padded to a multiple of 128: 131,200 in place of
    # Llama 3.1's 128,256, twice (the head is its own), 4096 wide
    assert params(value_of(job, "model")) == 8_030_261_248 + 2 * (131_200 - 128_256) * 4096
    assert value_of(job, "model.name") == "llama3.1_8B"
    told = read(tmp_path, {"b.yaml": with_("      mock_data: true\n      vocab_size: 128256\n")})
    assert params(value_of(told, "model")) == 8_030_261_248


def test_files_beside_are_taken_with_what_they_extend(tmp_path: Path) -> None:
    text = MEGATRON.replace("llama3.1_8B", "small")
    job = read(tmp_path, {"run.yaml": text, "small.yaml": SMALL, "base.yaml": BASE})
    assert params(value_of(job, "model")) == SMALL_PARAMS
    assert value_of(job, "model.name") == "small"


def test_a_file_beside_wins_over_primus_own_of_that_name(tmp_path: Path) -> None:
    ours = "extends:\n  - llama3_base.yaml\nnum_layers: 2\nhidden_size: 512\n"
    ours += "ffn_hidden_size: 1024\nnum_attention_heads: 8\nnum_query_groups: 8\nvocab_size: 1024\n"
    job = read(tmp_path, {"run.yaml": MEGATRON, "llama3.1_8B.yaml": ours})
    # what it extends is not beside and is Primus's own: no biases, RMSNorm, gated, untied
    layer = 4 * 512 * 512 + 3 * 512 * 1024 + 2 * 512
    assert params(value_of(job, "model")) == 2 * layer + 2 * 1024 * 512 + 512
    trainer = "extends: trainer_base.yaml\nseq_length: 2048\nglobal_batch_size: 32\n"
    text = MEGATRON.replace("      seq_length: 8192\n", "")
    job = read(tmp_path, {"run.yaml": text, "pre_trainer.yaml": trainer})
    assert value_of(job, "seq_len") == 2048


def test_the_trainers_keys_go_before_the_models(tmp_path: Path) -> None:
    model = BASE + "seq_length: 512\nffn_hidden_size: 2048\n"
    text = MEGATRON.replace("llama3.1_8B", "small").replace("      seq_length: 8192\n", "")
    job = read(tmp_path, {"run.yaml": text, "small.yaml": model})
    assert value_of(job, "seq_len") == 1024


def test_a_trainer_that_is_not_known_is_said(tmp_path: Path) -> None:
    text = MEGATRON.replace("pre_trainer.yaml", "my_trainer.yaml")
    # without a preset nothing says bf16 any more
    job = read(tmp_path, {"a.yaml": text})
    left = next(one for one in job.ignored if one.key == "my_trainer.yaml")
    assert left.matters and "neither given beside nor one of Primus's own" in left.why


def test_a_key_that_nobody_knows_may_matter(tmp_path: Path) -> None:
    job = read(tmp_path, {"a.yaml": with_("      turbulence: true\n      eval_iters: 3\n")})
    assert [one.key for one in job.ignored if one.matters] == ["turbulence"]


def test_model_files_that_extend_each_other_are_refused(tmp_path: Path) -> None:
    files = {"run.yaml": MEGATRON.replace("llama3.1_8B", "a"), "a.yaml": "extends:\n  - a.yaml\n"}
    with pytest.raises(InputError, match="extends more than 8 files"):
        read(tmp_path, files)


def test_a_file_that_bears_its_models_name_is_not_its_own_model(tmp_path: Path) -> None:
    assert value_of(read(tmp_path, {"llama3.1_8B.yaml": MEGATRON}), "model.name") == "llama-3.1-8b"


def test_layers_of_another_kind_take_a_shipped_model_or_none(tmp_path: Path) -> None:
    job = read(tmp_path, {"a.yaml": MEGATRON.replace("llama3.1_8B", "qwen3_5_35B_A3B")})
    assert value_of(job, "model.name") == "qwen3.5-35b-a3b"
    with pytest.raises(InputError, match="trains 'zebra_llama_1B', which is not a shipped model"):
        read(tmp_path, {"b.yaml": MEGATRON.replace("llama3.1_8B", "zebra_llama_1B")})


def test_what_is_primus_alone_is_read(tmp_path: Path) -> None:
    lines = (
        "      pipeline_model_parallel_size: 2\n      patch_primus_pipeline: true\n"
        "      pp_algorithm: zero-bubble\n      enable_primus_turbo: true\n"
        "      use_turbo_attention: true\n      use_turbo_deepep: false\n"
        "      enable_fused_linear_ce: true\n"
    )
    again = "recompute_layer_ids: 0,1,2,3"
    text = with_(lines).replace("recompute_method: uniform", again)
    text = text.replace("      recompute_num_layers: 1\n", "")
    job = read(tmp_path, {"a.yaml": text})
    assert of(job, "plan.schedule", "loss_chunks") == ("zero_bubble", 2)  # 8192 by 4096
    assert value_of(job, "plan.remat") == "full:4/32"
    assert "use_turbo_attention" in {f.key for f in job.flags}
    assert "use_turbo_deepep" not in {f.key for f in job.flags}


def test_gpt_oss_sinks_and_its_window_on_every_second_layer(tmp_path: Path) -> None:
    lines = "      use_sink_attention: true\n      sink_sliding_window: {}\n"
    text = MEGATRON.replace("llama3.1_8B", "gpt_oss_20B").replace("save: null", "vocab_size: 1024")
    model = value_of(read(tmp_path, {"a.yaml": text + lines.format(128)}), "model")
    windows = [model.layers[kind][0].attention.window for kind in model.layer_order]
    assert windows == [129, None] * 12
    none = value_of(read(tmp_path, {"b.yaml": text + lines.format(0)}), "model")
    assert [layer.attention.window for layer, _ in none.layers] == [None]
    plain = value_of(read(tmp_path, {"c.yaml": text}), "model")
    # a sink for each of 64 heads in each of 24 layers
    assert params(none) == params(plain) + 24 * 64


def test_what_is_null_leaves_the_default(tmp_path: Path) -> None:
    lines = "      recompute_layer_ids: null\n      data_parallel_replicate_degree: null\n"
    assert value_of(read(tmp_path, {"a.yaml": with_(lines)}), "plan.remat") == "full"


def test_replicas_of_fsdp_groups_and_adapters(tmp_path: Path) -> None:
    lines = (
        "      data_parallel_replicate_degree: 2\n      lora:\n        enabled: true\n"
        "        dim: 8\n        target_modules: [linear_qkv, linear_proj]\n"
    )
    job = read(tmp_path, {"a.yaml": with_(lines).replace("pre_trainer:", "post_trainer:")})
    placed = resolve_machine(job, parse_machine("mi300x*16"))
    assert of(placed, "plan.dp", "plan.fsdp") == (2, 8)
    assert job.task == "lora"
    # a layer: rank 8 on q (4096 to 4096), k and v (to 1024) and o, of its weights in matmuls
    trained = 8 * ((4096 + 4096) + 2 * (4096 + 1024) + (4096 + 4096))
    whole = 4096 * (4096 + 2 * 1024 + 4096) + 3 * 4096 * 14336
    assert job.trainable_fraction == pytest.approx(trained / whole)


def test_torchtitan_with_primus_defaults(tmp_path: Path) -> None:
    job = read(tmp_path, {"run.yaml": TITAN})
    assert value_of(job, "model.name") == "llama-3.1-8b"
    assert of(job, "seq_len", "plan.microbatch", "plan_open") == (8192, 4, "fsdp")
    # torchtitan's own default is selective
    assert of(job, "plan.remat", "precision.compute", "precision.gather") == ("none", "fp8", "fp8")
    assert {"compile", "attention_kernel"} <= {flag.kind for flag in job.flags}
    assert not [one.key for one in job.ignored if one.matters]


def test_torchtitans_model_with_numbers_of_its_own(tmp_path: Path) -> None:
    cut = "    overrides:\n      model:\n        n_layers: 4\n"
    text = TITAN.replace("    overrides:\n", cut)
    job = read(tmp_path, {"run.yaml": text})
    # a layer of Llama 3.1 8B: 4096·(4096 + 2·1024 + 4096) + 3·4096·14336 + 2·4096
    layer = 4096 * (4096 + 2 * 1024 + 4096) + 3 * 4096 * 14336 + 2 * 4096
    assert params(value_of(job, "model")) == 8_030_261_248 - 28 * layer
    odd = read(tmp_path, {"odd.yaml": text.replace("n_layers: 4", "ffn_dim_multiplier: 2")})
    assert [one.key for one in odd.ignored if one.matters] == ["model.ffn_dim_multiplier"]


def test_deepseek_with_plain_attention_on_torchtitan(tmp_path: Path) -> None:
    text = TITAN.replace("llama3.1_8B-fp8", "deepseek_v3_16b")
    text += "        use_classic_attention: true\n"
    attention = value_of(read(tmp_path, {"run.yaml": text}), "model").layers[0][0].attention
    assert (attention.heads, attention.kv_heads, attention.head_dim) == (16, 16, 128)
    assert attention.kv_lora_rank is None


def test_a_torchtitan_model_that_is_not_known(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gives no model.flavor"):
        read(tmp_path, {"run.yaml": TITAN.replace("llama3.1_8B-fp8", "mine")})


def test_maxtext_too_and_slices_replicate(tmp_path: Path) -> None:
    job = read(tmp_path, {"run.yaml": MAXTEXT})
    assert value_of(job, "model.name") == "llama-3-8b"
    assert of(job, "plan.fsdp", "plan_open", "plan.remat") == (8, "dp", "minimal")
    assert of(job, "precision.weights", "precision.compute") == ("bf16", "fp8")
    assert not [one.key for one in job.ignored if one.matters]
    placed = resolve_machine(job, parse_machine("h100*64"))
    assert of(placed, "plan.dp", "plan.fsdp") == (8, 8)
    assert value_of(placed, "sequences_per_step") == 3 * 64
    grok = read(tmp_path, {"grok.yaml": MAXTEXT.replace("llama3_8B", "grok1")})
    assert value_of(grok, "model").layers[0][0].mlp.experts == 8


def test_every_preset_extends_one_that_is_there() -> None:
    for kinds in presets().values():
        for files in kinds.values():
            for name, keys in files.items():
                for parent in keys.get("extends", ()):
                    assert parent in files, (name, parent)


def test_a_file_whose_module_has_no_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no module that runs on megatron"):
        read(tmp_path, {"a.yaml": MEGATRON.replace("  pre_trainer:\n", "")})


RUN = """#!/bin/bash
#SBATCH --nodes=4
#SBATCH --gpus-per-node=8
export PRIMUS_GBS=512
srun ./primus-cli direct -- train pretrain --config conf.yaml --micro_batch_size 8
"""


def test_a_command_goes_before_the_file_that_it_runs(tmp_path: Path) -> None:
    job = read(tmp_path, {"run.sh": RUN, "conf.yaml": MEGATRON})
    assert of(job, "sequences_per_step", "plan.microbatch", "plan.fsdp") == (512, 8, 32)
    said = next(one for one in job.understood if one.key == "micro-batch-size")
    assert (said.file.rsplit("/", 1)[-1], said.line) == ("run.sh", 5)
    over = {"micro_batch_size": "2"}
    set_ = read(tmp_path, {"run.sh": RUN, "conf.yaml": MEGATRON}, **over)
    assert value_of(set_, "plan.microbatch") == 2


def test_the_older_launcher_takes_its_file_from_the_environment(tmp_path: Path) -> None:
    text = RUN.replace("srun ./primus-cli direct -- train pretrain --config conf.yaml", "bash x.sh")
    text = text.replace("bash x.sh", "EXP=examples/conf.yaml bash ./examples/run_pretrain.sh")
    job = read(tmp_path, {"run.sh": text, "conf.yaml": MEGATRON})
    assert of(job, "sequences_per_step", "plan.microbatch") == (512, 8)


def test_a_command_over_torchtitans_and_maxtexts_files(tmp_path: Path) -> None:
    text = RUN.replace("--micro_batch_size 8", "--training.local_batch_size 2")
    job = read(tmp_path, {"run.sh": text, "conf.yaml": TITAN})
    assert of(job, "plan.microbatch", "plan.fsdp", "sequences_per_step") == (2, 32, 64)
    text = RUN.replace("--micro_batch_size 8", "--per_device_batch_size 5")
    job = read(tmp_path, {"run.sh": text, "conf.yaml": MAXTEXT})
    assert value_of(job, "plan.microbatch") == 5


@pytest.mark.parametrize(("said", "even"), [("true", True), ("false", False)])
def test_a_router_that_is_forced_to_balance(tmp_path: Path, said: str, even: bool) -> None:
    job = read(tmp_path, {"a.yaml": with_(f"      moe_router_force_load_balancing: {said}\n")})
    assert ("balanced_experts" in {flag.kind for flag in job.flags}) is even
