"""Arguments of each framework that bear on a step are read, or said to be left out.

Found by setting each of a framework's own arguments in a job: Megatron-LM's (2026-08), torchtitan's
(2024 to 2026), MaxText's, NeMo 1's, nanotron's and Levanter's. Expected values are worked by hand.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from chipshift.errors import InputError
from chipshift.jobs.job import TrainJob
from chipshift.jobs.read import read_job
from chipshift.models.model import MoeMlp

MEGATRON = """torchrun --nproc-per-node 8 --nnodes 8 pretrain_gpt.py --num-layers 16 \\
  --hidden-size 2048 --num-attention-heads 16 --seq-length 4096 --max-position-embeddings 4096 \\
  --micro-batch-size 1 --global-batch-size 256 --bf16 --swiglu --ffn-hidden-size 8192 \\
  --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --num-experts 64 \\
  --moe-router-topk 6 --expert-model-parallel-size 8 --use-distributed-optimizer \\
  --vocab-size 32000 --position-embedding-type rope --moe-token-dispatcher-type alltoall"""


def job(folder: Path, text: str, name: str, **overrides: str) -> TrainJob:
    file = folder / name
    file.write_text(text)
    return read_job([str(file)], overrides=overrides)


def megatron(folder: Path, more: str) -> TrainJob:
    return job(folder, f"#!/bin/bash\n{MEGATRON} {more}\n", "run.sh")


def matter(found: TrainJob) -> set[str]:
    return {entry.key for entry in found.ignored if entry.matters}


@pytest.mark.parametrize(
    "argument",
    [
        *("standalone-embedding-stage", "use-tp-pp-dp-mapping", "retro-add-retriever"),
        *("no-scatter-gather-tensors-in-pipeline", "distribute-saved-activations"),
        *("fp16-lm-cross-entropy", "moe-expert-rank-capacity-factor 2"),
    ],
)
def test_megatrons_arguments_that_are_not_counted_are_said(tmp_path: Path, argument: str) -> None:
    assert argument.split()[0] in matter(megatron(tmp_path, f"--{argument}"))


@pytest.mark.parametrize(
    "argument",
    ["first-last-layers-bf16", "fp8-dot-product-attention", "num-layers-at-start-in-bf16 2"],
)
def test_what_fp8_leaves_out_is_said_under_fp8_alone(tmp_path: Path, argument: str) -> None:
    key = argument.split()[0]
    assert key in matter(megatron(tmp_path, f"--fp8-format hybrid --{argument}"))
    assert key not in matter(megatron(tmp_path, f"--{argument}"))


@pytest.mark.parametrize(
    ("more", "master", "moments"),
    [
        # 16 bits of each master weight stand beside the bf16 weight, from which it is made
        ("--use-precision-aware-optimizer", "bf16", "fp32"),
        # the fp8 recipes but delayed scaling keep whole fp32 masters
        ("--use-precision-aware-optimizer --fp8-format e4m3 --fp8-recipe mxfp8", "fp32", "fp32"),
        ("--use-precision-aware-optimizer --main-params-dtype fp16", "fp16", "fp32"),
        ("--use-precision-aware-optimizer --exp-avg-dtype fp8 --exp-avg-sq-dtype bf16",
         "bf16", "bf16"),
        ("", "fp32", "fp32"),
    ],
)  # fmt: skip
def test_what_megatrons_precision_aware_optimizer_keeps(
    tmp_path: Path, more: str, master: str, moments: str
) -> None:
    kept = megatron(tmp_path, more).precision.value
    assert (kept.master, kept.moments) == (master, moments)


def test_recomputed_experts_in_their_older_spelling(tmp_path: Path) -> None:
    """Alone the experts' feed-forward runs again; beside selective, attention does too."""
    alone = megatron(tmp_path, "--moe-layer-recompute").plan
    assert alone is not None
    assert alone.value.remat == "custom:saved=attention_norm+qkv+attention+out_proj+mlp_norm"
    beside = megatron(tmp_path, "--moe-layer-recompute --recompute-activations").plan
    assert beside is not None
    assert beside.value.remat == "custom:saved=attention_norm+qkv+out_proj+mlp_norm"


def test_tokens_sent_to_every_device_of_ep(tmp_path: Path) -> None:
    text = MEGATRON.replace("alltoall", "allgather")
    found = job(tmp_path, text, "run.sh")
    assert "moe-token-dispatcher-type" in matter(found)
    bare = text.replace("--moe-token-dispatcher-type allgather", "")
    found = job(tmp_path, bare, "run.sh")
    assert any(what == "exchange of tokens" for what, _, _ in found.assumed)


TITAN = """[model]
name = "llama3"
flavor = "8B"
[training]
seq_len = 8192
local_batch_size = 4
{training}
[parallelism]
data_parallel_shard_degree = 8
tensor_parallel_degree = 2
{parallelism}
"""


def titan(folder: Path, training: str = "", parallelism: str = "") -> TrainJob:
    return job(folder, TITAN.format(training=training, parallelism=parallelism), "job.toml")


def test_tensor_parallelism_without_sequence_parallelism(tmp_path: Path) -> None:
    plan = titan(tmp_path, parallelism="enable_sequence_parallel = false").plan
    assert plan is not None and not plan.value.sequence_parallel


def test_ddp_of_2024_shards_nothing(tmp_path: Path) -> None:
    plan = titan(tmp_path, training='data_parallel_type = "ddp"').plan
    assert plan is not None
    assert (plan.value.dp, plan.value.fsdp) == (8, 1)


def test_a_schedule_in_a_file_of_its_own_is_said(tmp_path: Path) -> None:
    key = 'pipeline_parallel_degree = 2\npipeline_parallel_schedule_csv = "own.csv"'
    found = titan(tmp_path, parallelism=key)
    assert "parallelism.pipeline_parallel_schedule_csv" in matter(found)


TOKENS = """
from torchtitan.config import ParallelismConfig, TrainingConfig
from torchtitan.trainer import Trainer
from . import model_registry


def llama3_8b() -> Trainer.Config:
    return Trainer.Config(
        model_spec=model_registry("8B"),
        training=TrainingConfig(max_context_length=8192{tokens}),
        parallelism=ParallelismConfig(
            data_parallel_shard_degree=4, pipeline_parallel_degree=2, num_pp_microbatches=8
        ),
    )
"""


@pytest.mark.parametrize(
    ("tokens", "microbatch", "accumulation", "batch"),
    [
        # the default: 16,384 tokens a forward = 2 sequences, 8 of them a step, 4 shards
        ("", 2, 8, 64),
        (", num_tokens_per_microbatch_per_dp_rank=32768", 4, 8, 128),
        # 2 rounds of 8 microbatches of 4 sequences over 4 shards = 256 sequences
        (", num_tokens_per_microbatch_per_dp_rank=32768, num_tokens_per_train_step=256 * 8192",
         4, 16, 256),
    ],
)  # fmt: skip
def test_tokens_a_microbatch_in_a_pipeline(
    tmp_path: Path, tokens: str, microbatch: int, accumulation: int, batch: int
) -> None:
    found = job(tmp_path, TOKENS.format(tokens=tokens), "config_registry.py")
    assert found.plan is not None
    plan = found.plan.value
    assert (plan.microbatch, plan.accumulation) == (microbatch, accumulation)
    assert found.sequences_per_step.value == batch


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_tokens_per_microbatch_per_dp_rank", "'abc'"),
        ("num_tokens_per_train_step", "-5"),
        ("max_context_length", "0"),
    ],
)
def test_counts_of_tokens_that_are_none(tmp_path: Path, key: str, value: str) -> None:
    with pytest.raises(InputError, match=f"training.{key} is .*; expected a whole number of"):
        titan(tmp_path, training=f"{key} = {value}")


def test_tokens_a_microbatch_of_sequences_by_their_older_key(tmp_path: Path) -> None:
    """32,768 tokens = 4 sequences of the stated 8,192, on 8 shards."""
    tokens = "num_tokens_per_microbatch_per_dp_rank = 32768\nnum_tokens_per_train_step = -1"
    found = titan(tmp_path, training=tokens)
    assert found.plan is not None and found.plan.value.microbatch == 4
    assert found.sequences_per_step.value == 32


MAXTEXT = """base_config: base.yml
model_name: llama3.1-8b
per_device_batch_size: 2
max_target_length: 4096
ici_fsdp_parallelism: 2
"""


@pytest.mark.parametrize(
    ("more", "repeats"),
    [
        ("", 8),  # 32 layers / 4 stages, one layer a time by default
        ("num_layers_per_pipeline_stage: 4\n", 2),
        ("num_pipeline_repeats: 1\nnum_layers_per_pipeline_stage: 8\n", 1),
    ],
)
def test_maxtexts_pipeline_goes_round_its_stages(tmp_path: Path, more: str, repeats: int) -> None:
    found = job(tmp_path, f"{MAXTEXT}ici_pipeline_parallelism: 4\n{more}", "own.yml")
    assert found.plan is not None and found.plan.value.vpp == repeats


def test_maxtexts_adapters(tmp_path: Path) -> None:
    """16 × (4,096 + 4,096) for q and o each, 16 × (4,096 + 14,336) for gate, 32 layers."""
    lora = """lora:
  enable_lora: true
  lora_rank: 16
  lora_module_path: "decoder/layers/.*(self_attention/(query|out)|mlp/(wi_0))"
  lora_weight_qtype: nf4
"""
    found = job(tmp_path, MAXTEXT + "use_sft: true\n" + lora, "own.yml")
    trained = 32 * 16 * (2 * 8192 + 18_432)
    assert any(value == f"{trained:,}" for what, value, _ in found.assumed if "trained" in what)
    assert (found.task, found.precision.value.weights) == ("lora", "int4")
    found = job(tmp_path, MAXTEXT + lora.replace("nf4", "fp8"), "own.yml")
    assert found.precision.value.weights == "fp8"


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", "enable_lora is true without lora_rank; expected lora_rank, a whole number"),
        ("lora_rank: 0\n", "lora_rank is 0; expected a whole number of at least 1"),
        ("lora_rank: 8\nlora_weight_qtype: nf9\n", "qtype is nf9; expected one of int4, nf4, int8"),
    ],
)
def test_maxtexts_adapters_need_a_rank_and_a_known_type(
    tmp_path: Path, more: str, expected: str
) -> None:
    with pytest.raises(InputError, match=expected):
        job(tmp_path, f"{MAXTEXT}enable_lora: true\n{more}", "own.yml")


@pytest.mark.parametrize(
    "line",
    [
        *("logits_dot_in_fp32: true", "mhc_expansion_rate: 4"),
        *("fsdp_shard_on_exp: true", "pipeline_fsdp_ag_once: true", "moe_expert_input_dim: 512"),
        *("override_logical_axis_rules: true", "expert_shard_attention_option: context"),
    ],
)
def test_maxtexts_keys_that_are_not_counted_are_said(tmp_path: Path, line: str) -> None:
    found = job(tmp_path, MAXTEXT + line + "\n", "own.yml")
    assert line.split(":")[0] in matter(found)


def test_maxtext_that_samples_says_so(tmp_path: Path) -> None:
    found = job(tmp_path, MAXTEXT + "use_grpo: true\n", "own.yml")
    assert any("grpo" in f"{what} {value} {why}".lower() for what, value, why in found.assumed)


def test_maxtexts_tensors_of_experts_and_latents(tmp_path: Path) -> None:
    custom = "remat_policy: custom\nmoe_mlpwi_0: device\nmla_kv: offload\nkv_wa_proj: device\n"
    found = job(tmp_path, MAXTEXT + custom, "own.yml")
    assert found.plan is not None and found.plan.value.remat == "custom:saved=up,offload=qkv"
    assert "kv_wa_proj" in matter(found)


def test_maxtexts_int8_of_2023(tmp_path: Path) -> None:
    assert job(tmp_path, MAXTEXT + "int8_training: true\n", "own.yml").precision.value.compute == (
        "int8"
    )


NEMO = """trainer:
  devices: 8
  num_nodes: 4
  precision: bf16
model:
  micro_batch_size: 2
  global_batch_size: 256
  tensor_model_parallel_size: 2
  pipeline_model_parallel_size: 1
  encoder_seq_length: 8192
  num_layers: 32
  hidden_size: 4096
  ffn_hidden_size: 14336
  num_attention_heads: 32
  megatron_amp_O2: true
  tokenizer:
    type: GPT2BPETokenizer
  optim:
    name: distributed_fused_adam
"""


def nemo(folder: Path, more: str = "") -> TrainJob:
    return job(folder, NEMO + more, "own.yaml")


def test_nemos_fsdp(tmp_path: Path) -> None:
    """32 devices over tp 2: 16 shards of fp32 weights, gathered in bf16."""
    found = nemo(tmp_path, "  fsdp: true\n  fsdp_grad_reduce_dtype: bf16\n")
    assert found.plan is not None
    assert (found.plan.value.fsdp, found.plan.value.dp) == (16, 1)
    kept = found.precision.value
    assert (kept.weights, kept.gather, kept.reduce, kept.master) == ("fp32", "bf16", "bf16", "none")


def test_nemos_distributed_adam_keeps_half_of_each_master_weight(tmp_path: Path) -> None:
    kept = nemo(tmp_path).precision.value
    assert (kept.weights, kept.master, kept.moments) == ("bf16", "bf16", "fp32")


def test_nemos_window(tmp_path: Path) -> None:
    found = nemo(tmp_path, "  window_size: [4096, 0]\n")
    attention = found.model.layers[0][0].attention
    assert attention is not None and attention.window == 4097  # the token and 4,096 before it


@pytest.mark.parametrize(
    "line",
    ["num_micro_batches_with_partial_activation_checkpoints: 2", "own_expert_parallel_mode: 4"],
)
def test_nemos_keys_that_are_not_counted_are_said(tmp_path: Path, line: str) -> None:
    assert f"model.{line.split(':')[0]}" in matter(nemo(tmp_path, f"  {line}\n"))


NANOTRON = """model:
  dtype: bfloat16
  model_config:
    is_qwen2_config: true
    hidden_size: 256
    num_hidden_layers: 4
    num_attention_heads: 4
    num_key_value_heads: 4
    intermediate_size: 768
    vocab_size: 1024
    tie_word_embeddings: true
{model}parallelism: {{dp: 2, tp: 1, pp: 1}}
tokens: {{sequence_length: 4096, micro_batch_size: 2, batch_accumulation_per_replica: 1}}
optimizer: {{zero_stage: 0, accumulate_grad_in_fp32: true}}
"""


def test_nanotrons_experts(tmp_path: Path) -> None:
    """Experts in layers 1 and 3 alone; a width that is not given is nanotron's default, 1,408."""
    experts = "    moe_config: {num_experts: 8, top_k: 2, layers: [1, 3], "
    experts += "enable_shared_expert: true, shared_expert_intermediate_size: 512}\n"
    found = job(tmp_path, NANOTRON.format(model=experts), "own.yaml")
    kinds = [found.model.layers[kind][0].mlp for kind in found.model.layer_order]
    assert [isinstance(mlp, MoeMlp) for mlp in kinds] == [False, True, False, True]
    sparse = kinds[1]
    assert isinstance(sparse, MoeMlp)
    assert (sparse.experts, sparse.top_k, sparse.width) == (8, 2, 1408)
    assert (sparse.shared_width, sparse.shared_gate_params) == (512, 256)
    moved = {"model.model_config.moe_config.layers": "[0, 2]"}
    found = job(tmp_path, NANOTRON.format(model=experts), "own.yaml", **moved)
    kinds = [found.model.layers[kind][0].mlp for kind in found.model.layer_order]
    assert [isinstance(mlp, MoeMlp) for mlp in kinds] == [True, False, True, False]


@pytest.mark.parametrize(
    ("experts", "key", "expected"),
    [
        ("num_experts: 4, top_k: 99", "top_k", "a whole number from 1 to 4"),
        ("num_experts: 1", "top_k", "a whole number from 1 to 1"),
        ("layers: 2", "layers", r"\[-1\] or a list of layers from 0 to 3"),
        ("layers: [99]", "layers", r"\[-1\] or a list of layers from 0 to 3"),
        ("layers: [-1, 2]", "layers", r"\[-1\] or a list of layers from 0 to 3"),
    ],
)
def test_nanotrons_experts_that_the_model_cannot_have(
    tmp_path: Path, experts: str, key: str, expected: str
) -> None:
    text = NANOTRON.format(model=f"    moe_config: {{{experts}}}\n")
    with pytest.raises(InputError, match=f"moe_config.{key}.*; expected {expected}"):
        job(tmp_path, text, "own.yaml")


def test_nanotrons_window_but_for_layers_without_positions(tmp_path: Path) -> None:
    window = "    sliding_window_size: 1024\n    no_rope_layer: 4\n"
    found = job(tmp_path, NANOTRON.format(model=window), "own.yaml")
    layers = [found.model.layers[kind][0].attention for kind in found.model.layer_order]
    assert [one.window for one in layers if one is not None] == [1024, 1024, 1024, None]


@pytest.mark.parametrize("window", ["0", "-7", "abc"])
def test_nanotrons_window_is_a_whole_number(tmp_path: Path, window: str) -> None:
    text = NANOTRON.format(model=f"    sliding_window_size: {window}\n")
    with pytest.raises(InputError, match=f"sliding_window_size is {window}; expected a whole"):
        job(tmp_path, text, "own.yaml")


def test_nanotrons_window_of_null_is_none(tmp_path: Path) -> None:
    found = job(tmp_path, NANOTRON.format(model="    sliding_window_size: null\n"), "own.yaml")
    assert [layer.attention.window for layer, _ in found.model.layers if layer.attention] == [None]


LEVANTER = """data:
  tokenizer: meta-llama/Llama-2-7b-hf
model:
  type: llama
  seq_len: 2048
  hidden_dim: 1024
  num_layers: 4
  num_heads: 8
  num_kv_heads: 8
trainer:
  mp: p=f32,c=bfloat16
  train_batch_size: 64
"""


def test_levanters_fp8_runs_the_matmuls(tmp_path: Path) -> None:
    assert job(tmp_path, LEVANTER + "  fp8: true\n", "own.yaml").precision.value.compute == "fp8"


def test_levanter_without_an_axis_for_fsdp(tmp_path: Path) -> None:
    found = job(tmp_path, LEVANTER + "  fsdp_axis: null\n", "own.yaml")
    assert found.plan_open == "dp"


def test_levanters_model_axis_needs_axes_to_cut(tmp_path: Path) -> None:
    bare = job(tmp_path, LEVANTER + "  model_axis_size: 2\n", "own.yaml")
    assert "trainer.model_axis_size" in matter(bare)
    mesh = "  mesh:\n    axes: {data: -1, model: 4}\n"
    assert "trainer.mesh.axes.model" in matter(job(tmp_path, LEVANTER + mesh, "own.yaml"))
    cut = "  model_axis_size: 2\n  tensor_parallel_axes: [mlp, heads]\n"
    assert "trainer.model_axis_size" not in matter(job(tmp_path, LEVANTER + cut, "own.yaml"))


def test_a_revision_of_levanters_checkpoint(tmp_path: Path) -> None:
    text = LEVANTER.replace(
        "model:\n", "initialize_from_hf: mosaicml/mpt-7b@ebb47\nuse_hf_model_config: true\nmodel:\n"
    )
    assert job(tmp_path, text.replace("type: llama", "type: mpt"), "own.yaml").model.name == (
        "mpt-7b"
    )


def test_a_sweep_of_one_program_is_said(tmp_path: Path) -> None:
    """Three jobs of another batch; three whose names alone differ are one."""
    loop = "#!/bin/bash\nfor B in 1 2 4; do\n{}\ndone\n"
    run = "python3 -m MaxText.train MaxText/configs/base.yml model_name=llama2-7b run_name=a{} "
    sweep = loop.format(run.format("$B") + "per_device_batch_size=$B max_target_length=2048")
    found = job(tmp_path, sweep, "run.sh")
    said = {what: (value, why) for what, value, why in found.assumed}
    assert said["jobs of the script"][0] == "3"
    assert "per_device_batch_size" in said["jobs of the script"][1]
    ranks = (
        "torchrun --nproc_per_node 8 t.py --model_name_or_path Qwen/Qwen2.5-7B --bf16 true "
        "--per_device_train_batch_size 1 --use_lora true --lora_target_modules q_proj "
        "--model_max_length 1024 --lora_rank {}\n"
    )
    other = job(tmp_path, "".join(map(ranks.format, (8, 64))), "ranks.sh")
    assert any("lora_rank" in why for what, _, why in other.assumed if what == "jobs of the script")
    once = loop.format(run.format("$B") + "per_device_batch_size=1 max_target_length=2048")
    assert "jobs of the script" not in {what for what, _, _ in job(tmp_path, once, "r.sh").assumed}


@pytest.mark.parametrize(
    ("words", "width", "batch"),
    [
        # 12 sequences × 40 forwards; 64 × 1; the command's own batch over the former
        ("config/train_gpt2.py", 768, 480),
        ("config/train_shakespeare_char.py", 384, 64),
        ("config/train_gpt2.py --batch_size=6", 768, 240),
        ("config/own.py --n_layer=4 --n_embd=256 --n_head=4 --block_size=512 --batch_size=8", 256,
         320),
    ],
)  # fmt: skip
def test_nanogpts_own_configurations_by_their_names(
    tmp_path: Path, words: str, width: int, batch: int
) -> None:
    text = f"#!/bin/bash\ntorchrun --standalone --nproc_per_node=8 train.py {words}\n"
    found = job(tmp_path, text, "run.sh")
    assert (found.model.d_model, found.sequences_per_step.value) == (width, batch)


def test_adapters_of_megatrons_forks(tmp_path: Path) -> None:
    """Of the maps q, k, v and o, and of the gate: adapters on fewer maps train less."""
    more = "--lora-r 16 --lora-alpha 32 --lora-target-modules linear_qkv linear_proj"
    found = megatron(tmp_path, more)
    assert found.task == "lora" and found.trainable_fraction < 0.01
    wider = megatron(tmp_path, more + " linear_fc1")
    assert found.trainable_fraction < wider.trainable_fraction < 1


def test_a_rank_alone_adds_no_adapters_to_megatrons_forks(tmp_path: Path) -> None:
    found = megatron(tmp_path, "--lora-r 16")
    assert found.task != "lora" and found.trainable_fraction == 1
    assert "lora-r" in matter(found)


def test_targets_alone_add_adapters_of_the_default_rank(tmp_path: Path) -> None:
    targets = "--lora-target-modules linear_qkv"
    found = megatron(tmp_path, targets)
    assert found.task == "lora"
    assert (
        found.trainable_fraction == megatron(tmp_path, f"{targets} --lora-r 16").trainable_fraction
    )
    assert (
        found.trainable_fraction < megatron(tmp_path, f"{targets} --lora-r 32").trainable_fraction
    )
    assert not {key for key in matter(found) if key.startswith("lora")}


def test_a_target_that_megatrons_forks_do_not_name_is_said(tmp_path: Path) -> None:
    known = megatron(tmp_path, "--lora-target-modules linear_qkv")
    found = megatron(tmp_path, "--lora-target-modules linear_qkv own_map")
    assert found.trainable_fraction == known.trainable_fraction
    assert any("own_map" in entry.why for entry in found.ignored if entry.matters)


def test_a_layout_that_a_shell_would_unescape(tmp_path: Path) -> None:
    found = megatron(tmp_path, "--pipeline-model-parallel-layout 'Et*6\\|t*10L'")
    assert found.plan is not None and found.plan.value.stage_layers == (6, 10)


def test_mindspeeds_optimizer_by_its_selection(tmp_path: Path) -> None:
    found = megatron(tmp_path, "--optimizer adam --optimizer-selection muon --swap-optimizer")
    assert found.optimizer.value == "muon"
    assert any(what == "offload" for what, _, _ in found.assumed)


def test_a_tokenizer_in_a_hubs_cache(tmp_path: Path) -> None:
    """152,064 rows, a multiple of 128 × 2 already."""
    path = "/home/u/hub/models--Qwen--Qwen2.5-7B-Instruct/snapshots/a09a354"
    text = MEGATRON.replace(
        "--vocab-size 32000", f"--tokenizer-type HFTokenizer --tokenizer-model {path}"
    )
    assert job(tmp_path, text, "run.sh").model.vocab == 152_064


def test_a_flavour_that_is_a_hubs_name(tmp_path: Path) -> None:
    text = TITAN.format(training="", parallelism="").replace('"8B"', '"Qwen/Qwen3-4B"')
    assert job(tmp_path, text, "job.toml").model.name == "qwen3-4b"


@pytest.mark.parametrize(("more", "task"), [("", "sft"), ("--peft_scheme lora", "lora")])
def test_bridges_finetuning_recipes_by_their_older_name(
    tmp_path: Path, more: str, task: str
) -> None:
    text = f"#!/bin/bash\ntorchrun --nproc_per_node 8 run_recipe.py --recipe X {more}\n"
    found = job(tmp_path, text.replace("X", "llama3_8b_finetune_config"), "run.sh")
    assert found.task == task


def test_a_switch_of_kernels_is_not_said_to_matter(tmp_path: Path) -> None:
    """Two of Megatron-LM's and MindSpeed's own, whose names differ by a word."""
    more = "--no-gradient-accumulation-fusion --gemm-gradient-accumulation-fusion"
    assert matter(megatron(tmp_path, more)) == set()
