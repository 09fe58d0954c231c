"""What launch files that no reader had been tried on showed; each file here is our own."""

from __future__ import annotations

from pathlib import Path

import pytest

from chipshift.errors import InputError
from chipshift.jobs.read import read_job
from chipshift.jobs.unknown_keys import bears
from chipshift.models.model import MoeMlp

from .test_further_publishers import several
from .test_spellings import job, plan_on


def matter(found) -> set[str]:  # type: ignore[no-untyped-def]
    return {one.key for one in found.ignored if one.matters}


@pytest.mark.parametrize(
    ("key", "value", "does"),
    [
        ("use_quickopt", True, True),  # a fork's own switch, whatever it turns on
        ("model.use_quickopt", "true", True),
        ("use_quickopt", False, False),
        ("use_wandb", True, False),  # reports
        ("enable_progress_bar", True, False),
        ("outer-optimizer", "nesterov", True),
        ("optimizer.betas", "0.9", False),
    ],
)
def test_what_a_forks_own_key_may_bear_on(key: str, value: object, does: bool) -> None:
    assert bears(key, value) is does


def test_an_optimizer_that_a_fork_switches_on_is_said(tmp_path: Path) -> None:
    text = (
        "model_name_or_path: meta-llama/Llama-3.1-8B\nstage: sft\nfinetuning_type: full\n"
        "cutoff_len: 1024\nper_device_train_batch_size: 1\nbf16: true\nuse_quickopt: true\n"
        "quickopt_rank: 8\n"
    )
    assert matter(job(tmp_path, text)) == {"use_quickopt"}


def test_adapters_that_a_script_starts_from_are_said(tmp_path: Path) -> None:
    text = (
        "torchrun --nproc_per_node 4 own.py --model_name meta-llama/Meta-Llama-3-8B "
        "--per_device_train_batch_size 4 --max_seq_len 4096 --bf16 True --lora_path_prefix /a/b\n"
    )
    assert "lora_path_prefix" in matter(job(tmp_path, text, "go.sh"))
    off = text.replace("--bf16", "--use_peft False --bf16")
    assert "lora_path_prefix" not in matter(job(tmp_path, off, "go.sh"))


def test_another_deepspeed_file_than_the_one_named_is_said(tmp_path: Path) -> None:
    script = (
        "deepspeed --num_gpus 8 t.py --model_name_or_path meta-llama/Llama-2-7b-hf --bf16 True "
        "--per_device_train_batch_size 1 --model_max_length 2048 --deepspeed conf/stage3.json\n"
    )
    first = '{"zero_optimization": {"stage": 1}, "bf16": {"enabled": true}}'
    found = read_job(several(tmp_path, go__sh=script, zero1__json=first))
    said = [one.why for one in found.ignored if one.key == "stage3.json"]
    assert len(said) == 1 and "zero1.json" in said[0]
    same = read_job(several(tmp_path, go__sh=script, stage3__json=first))
    assert "stage3.json" not in matter(same)


CLI = """
trainer:
  strategy:
    class_path: lightning.pytorch.strategies.DeepSpeedStrategy
    init_args: {stage: 2}
  precision: bf16-true
  devices: 8
  accumulate_grad_batches: 2
model:
  class_path: own.tasks.CLM
  init_args:
    config:
      network: {hf_path: meta-llama/Llama-3.1-8B, enable_gradient_checkpointing: true}
      optim: {optimizer_class: torch.optim.SGD}
data:
  class_path: own.data.Texts
  init_args: {batch_size: 3, max_length: 4096}
"""


def test_a_module_of_lightnings_cli_in_tables_of_its_own(tmp_path: Path) -> None:
    found = job(tmp_path, CLI)
    assert found.model.name == "llama-3.1-8b" and found.seq_len.value == 4096
    plan = plan_on(found, "h100*8")
    assert (plan.microbatch, plan.accumulation, plan.remat) == (3, 2, "full")
    assert found.optimizer.value == "sgd"
    # DeepSpeed's own bf16 keeps fp32 masters under bf16-true as under bf16-mixed
    for precision in ("bf16-true", "bf16-mixed"):
        kept = job(tmp_path, CLI.replace("bf16-true", precision)).precision.value
        assert (kept.weights, kept.master, kept.compute) == ("bf16", "fp32", "bf16")
    ddp = CLI.replace("DeepSpeedStrategy", "DDPStrategy").replace("{stage: 2}", "{}")
    assert job(tmp_path, ddp).precision.value.master == "none"


def test_the_class_of_a_module_tells_its_loss(tmp_path: Path) -> None:
    found = job(tmp_path, CLI.replace("own.tasks.CLM", "own.tasks.DPO"))
    # 3 pairs a device are 6 sequences
    assert found.loss == "dpo" and plan_on(found, "h100*8").microbatch == 6


MCLI = """
name: a-run
image: some/image
compute: {gpus: 16, gpu_type: a100_80gb}
command: |
  composer train/train.py /mnt/config/parameters.yaml
parameters:
  max_seq_len: 2048
  model: {name: hf_causal_lm, pretrained_model_name_or_path: meta-llama/Llama-2-7b-hf}
  train_loader: {name: finetuning, dataset: {max_seq_len: "${max_seq_len}"}}
  optimizer: {name: decoupled_lionw}
  global_train_batch_size: 64
  device_train_microbatch_size: 2
  precision: amp_bf16
  fsdp_config: {sharding_strategy: FULL_SHARD, activation_checkpointing: true}
"""


def test_the_parameters_of_a_run_on_mosaics_platform(tmp_path: Path) -> None:
    found = job(tmp_path, MCLI)
    plan = plan_on(found, "a100*16")
    # 64 sequences over 16 devices are 2 forwards of 2
    assert (found.seq_len.value, plan.fsdp, plan.microbatch, plan.accumulation) == (2048, 16, 2, 2)
    assert found.optimizer.value == "lion" and plan.remat == "full"


def test_a_switch_before_a_variable_that_nothing_sets(tmp_path: Path) -> None:
    text = (
        "torchrun --nproc_per_node 2 t.py --model_name_or_path meta-llama/Llama-2-7b-hf "
        "--per_device_train_batch_size 1 --model_max_length 2048 --bf16 ${MORE}\n"
    )
    found = job(tmp_path, text, "go.sh")
    assert found.precision.value.compute == "bf16"
    assert any(what == "$MORE" for what, _, _ in found.assumed)
    with pytest.raises(InputError, match="MORE"):  # a file left out may set it
        job(tmp_path, "source more.env\n" + text, "go.sh")


NEMO = """
trainer:
  devices: ${oc.decode:${oc.env:GPUS,8}}
  num_nodes: ${oc.decode:${oc.env:HOSTS,1}}
  precision: bf16
model:
  micro_batch_size: ${oc.decode:${oc.env:MICRO}}
  global_batch_size: ${multiply:${oc.decode:${oc.env:SHARE}},${floor_div:${trainer.num_nodes},2}}
  tensor_model_parallel_size: ${oc.decode:${oc.env:TP}}
  pipeline_model_parallel_size: 2
  virtual_pipeline_model_parallel_size: ${oc.decode:${oc.env:STAGES,null}}
  activations_checkpoint_granularity: ${if:${lt:${oc.env:SHARE},3},null,full}
  encoder_seq_length: 2048
  num_layers: 24
  hidden_size: 2048
  ffn_hidden_size: ${multiply:4,${.hidden_size}}
  num_attention_heads: 16
  megatron_amp_O2: true
  tokenizer: {vocab_size: 50304}
"""
VARIABLES = "export HOSTS=${HOSTS:=8}\nexport MICRO=2\nexport SHARE=16\nexport TP=4\n"


def test_variables_of_the_environment_from_a_script_beside(tmp_path: Path) -> None:
    paths = several(tmp_path, nemo__yaml=NEMO, config__sh=VARIABLES)
    found = read_job(paths, overrides={"vocab-size": "50304"})
    plan = plan_on(found, "h100*64")
    # 64 devices / (tp 4 × pp 2) = 8 replicas; 16 × (8 nodes // 2) = 64 = 2 × 4 × 8
    assert (plan.tp, plan.pp, plan.dp, plan.microbatch, plan.accumulation) == (4, 2, 8, 2, 4)
    assert found.sequences_per_step.value == 64 and plan.remat == "full"
    assert plan.vpp == 1
    told = read_job(paths, overrides={"vocab-size": "50304", "MICRO": "4"})
    assert plan_on(told, "h100*64").microbatch == 4


SKY = """
num_nodes: 2
resources:
  accelerators: H100:8
envs:
  MODEL: meta-llama/Llama-3.1-8B
setup: pip install trl
run: |
  torchrun --nnodes $SKYPILOT_NUM_NODES --nproc_per_node $SKYPILOT_NUM_GPUS_PER_NODE \\
    train.py --model_name_or_path $MODEL --per_device_train_batch_size 2 --bf16 True \\
    --gradient_accumulation_steps 4 --max_seq_length 4096 --fsdp full_shard
"""
DSTACK = """
type: task
nodes: 2
resources:
  gpu: H100:80GB:8
env:
  - MODEL=meta-llama/Llama-3.1-8B
commands:
  - pip install trl
  - torchrun --nnodes $DSTACK_NODES_NUM --nproc_per_node $DSTACK_GPUS_PER_NODE train.py
    --model_name_or_path $MODEL --per_device_train_batch_size 2 --bf16 True
    --gradient_accumulation_steps 4 --max_seq_length 4096 --fsdp full_shard
"""
DETERMINED = """
name: a run
resources: {slots_per_trial: 16}
searcher: {name: single}
entrypoint: >-
  python -m determined.launch.torch_distributed
  train.py
  --model_name_or_path meta-llama/Llama-3.1-8B --per_device_train_batch_size 2 --bf16 True
  --gradient_accumulation_steps 4 --max_seq_length 4096 --fsdp full_shard
"""


@pytest.mark.parametrize("text", [SKY, DSTACK, DETERMINED])
def test_a_launchers_yaml_that_holds_the_command(tmp_path: Path, text: str) -> None:
    found = job(tmp_path, text)
    # 2 a device × 4 forwards × 16 devices
    assert found.sequences_per_step.value == 128 and found.seq_len.value == 4096
    assert found.model.name == "llama-3.1-8b"
    assert plan_on(found, "h100*16").fsdp == 16


def test_a_launchers_yaml_without_a_command_known_here(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        job(tmp_path, "resources: {accelerators: H100:8}\nrun: |\n  python serve.py --port 1\n")


def test_fast_llm_is_told_from_axolotl(tmp_path: Path) -> None:
    text = (
        "training: {train_iters: 10}\nmodel:\n  base_model:\n    decoder: {num_blocks: 2}\n"
        "  multi_stage: {zero_stage: 2}\n"
    )
    with pytest.raises(InputError, match="Fast-LLM"):
        job(tmp_path, text)


def test_lightning_run_starts_the_script_given_beside(tmp_path: Path) -> None:
    script = "lightning run model --num-nodes=2 --devices=4 pretrain/own.py --name x\n"
    python = (
        "import lightning as L\nfrom lightning.fabric.strategies import FSDPStrategy\n"
        "from transformers import AutoModelForCausalLM\nmicro_batch_size = 4\nblock_size = 2048\n"
        'fabric = L.Fabric(devices=4, strategy=FSDPStrategy(), precision="bf16-mixed")\n'
        'model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf")\n'
    )
    found = read_job(several(tmp_path, go__sh=script, own__py=python))
    assert plan_on(found, "a100*8").fsdp == 8  # 2 nodes of 4


def test_maxtexts_scale_multiplies_the_shape(tmp_path: Path) -> None:
    def model(scale: str, more: str = ""):  # type: ignore[no-untyped-def]
        command = (
            "python3 MaxText/train.py MaxText/configs/base.yml per_device_batch_size=4 "
            f"max_target_length=2048 {scale} {more}\n"
        )
        return job(tmp_path, command, "go.sh").model

    # 2 doubles heads and feed-forward; 4 the width too; 8 the layers too, and so on
    for scale, (heads, width, layers) in {2: (32, 2048, 16), 4: (32, 4096, 16), 8: (32, 4096, 32),
                                          64: (64, 8192, 64)}.items():  # fmt: skip
        found = model(f"global_parameter_scale={scale}")
        layer = found.layers[0][0]
        assert found.d_model == width and layer.attention.heads == heads
        assert sum(count for _, count in found.layers) == layers
    old = model("", "base_num_heads=8")
    assert old.layers[0][0].attention.heads == 8
    with pytest.raises(InputError, match="power of two"):
        model("global_parameter_scale=3")


QUERIED = """conf=${1:-conf/small.yaml}
layers=$(yq '.training.num_layers' $conf)
hidden=$(yq -r .training.hidden_size "$conf")
torchrun --nnodes 1 --nproc_per_node 8 pretrain_gpt.py --num-layers $layers --hidden-size $hidden \\
  --num-attention-heads 16 --seq-length $(yq .training.seq "$conf") --micro-batch-size 2 \\
  --global-batch-size 64 --max-position-embeddings 2048 --vocab-size 50304 --bf16
"""


def test_numbers_that_a_script_asks_yq_for(tmp_path: Path) -> None:
    small = "training:\n  num_layers: 6\n  hidden_size: 1024\n  seq: 2048\n"
    found = read_job(several(tmp_path, go__sh=QUERIED, small__yaml=small))
    assert found.seq_len.value == 2048 and found.model.d_model == 1024
    assert sum(count for _, count in found.model.layers) == 6
    with pytest.raises(InputError, match="yq"):  # not given: asked for
        read_job(several(tmp_path, go__sh=QUERIED))


RUN = (
    "torchrun --nproc_per_node 4 src/train_bash.py --stage sft --finetuning_type {kind} {more} "
    "--model_name_or_path meta-llama/Llama-2-7b-hf --per_device_train_batch_size 2 "
    "--cutoff_len 1024 --bf16\n"
)


def test_a_command_with_llama_factorys_arguments_has_its_defaults(tmp_path: Path) -> None:
    found = job(tmp_path, RUN.format(kind="lora", more="--lora_target all"), "go.sh")
    assert plan_on(found, "a100*4").remat == "full"
    assert found.precision.value.weights == "bf16"  # frozen weights in the compute dtype
    off = job(tmp_path, RUN.format(kind="full", more="--disable_gradient_checkpointing"), "go.sh")
    assert plan_on(off, "a100*4").remat == "none" and off.precision.value.weights == "fp32"


def test_a_module_that_a_launcher_starts_tells_the_loss_and_has_words_of_its_own(
    tmp_path: Path,
) -> None:
    text = (
        "deepspeed --num_gpus 2 --module own.trainers.text.dpo --train_batch_size 3 "
        "--model_name_or_path meta-llama/Llama-2-7b-hf --max_length 1024\n"
    )
    found = job(tmp_path, text, "go.sh")
    # 3 pairs a device are 6 sequences
    assert found.loss == "dpo" and plan_on(found, "a100*2").microbatch == 6


def test_qloras_own_words(tmp_path: Path) -> None:
    text = (
        "python qlora.py --model_name_or_path meta-llama/Llama-2-7b-hf --bits 4 --lora_r 8 {} "
        "--per_device_train_batch_size 1 --max_length 512 --bf16\n"
    )
    every = job(tmp_path, text.format("--lora_modules all"), "go.sh")
    few = job(tmp_path, text.format("--load_in_kbits 4"), "go.sh")

    def trained(found) -> int:  # type: ignore[no-untyped-def]
        told = [value for what, value, _ in found.assumed if what == "trained parameters"]
        return int(told[0].replace(",", ""))

    # a layer of width d, feed-forward f: q, k, v, o and three maps of d × f, r × (in + out) each
    d, f, r, layers = 4096, 11008, 8, 32
    assert trained(every) == layers * r * (4 * 2 * d + 3 * (d + f))
    assert trained(few) == layers * r * 2 * 2 * d  # PEFT's default, q and v


def test_json_with_a_kind_of_model_and_the_trainers_keys(tmp_path: Path) -> None:
    text = (
        '{"model_type": "causal", "model_name": "meta-llama/Llama-2-7b-hf", "trainer": '
        '{"per_device_train_batch_size": 2, "gradient_accumulation_steps": 3}, "max_length": 256}'
    )
    found = job(tmp_path, text, "conf.json")
    assert plan_on(found, "a100*1").microbatch == 2
    assert plan_on(found, "a100*1").accumulation == 3


WHOLE = """
model: {name_or_path: meta-llama/Llama-2-7b-hf, dtype: bfloat16}
training: {effective_batch_size: 64, per_device_train_batch_size: 4, bf16: true}
sft: {max_seq_length: 2048, packing: true}
deepspeed:
  bf16: {enabled: true}
  zero_optimization: {stage: 2}
  train_batch_size: auto
slurm: {num_nodes: 2, gpus_per_node: 4}
"""


def test_a_programs_own_tables_of_batch_sharding_and_scheduler(tmp_path: Path) -> None:
    found = job(tmp_path, WHOLE)
    plan = plan_on(found, "a100*8")
    # 64 sequences = 4 × 2 forwards × 8 devices
    assert (plan.dp, plan.microbatch, plan.accumulation) == (8, 4, 2)
    assert plan.optimizer_sharding == "zero2" and found.precision.value.master == "fp32"


def test_llama_factorys_file_in_a_table_of_another(tmp_path: Path) -> None:
    text = (
        "backend: llamafactory\nslurm: {num_nodes: 2, gpus_per_node: 4}\nllamafactory:\n"
        "  model_name_or_path: meta-llama/Llama-2-7b-hf\n  stage: sft\n  finetuning_type: full\n"
        "  cutoff_len: 4096\n  per_device_train_batch_size: 2\n  bf16: true\n"
    )
    found = job(tmp_path, text)
    assert found.seq_len.value == 4096 and found.sequences_per_step.value == 16


def test_one_of_two_words_by_whether_a_variable_is_set(tmp_path: Path) -> None:
    text = (
        'NODES=$([ -z "$WORLD" ] && echo -n 1 || echo -n $WORLD)\n'
        "torchrun --nnodes $NODES --nproc_per_node 8 t.py --model_name_or_path "
        "meta-llama/Llama-2-7b-hf --per_device_train_batch_size 1 --max_length 512 "
        "--gradient_accumulation_steps $((64 / (8 * $NODES)))\n"
    )
    path = several(tmp_path, go__sh=text)
    assert plan_on(read_job(path), "a100*8").accumulation == 8
    told = read_job(path, overrides={"WORLD": "4"})
    assert plan_on(told, "a100*32").accumulation == 2


def test_the_teacher_of_torchtunes_distillation(tmp_path: Path) -> None:
    text = (
        "model: {_component_: torchtune.models.llama3_2.llama3_2_1b}\n"
        "teacher_model: {_component_: torchtune.models.llama3_1.llama3_1_8b}\n"
        "teacher_checkpointer: {checkpoint_dir: /t}\ntokenizer: {max_seq_len: 1024}\n"
        "batch_size: 2\ndtype: bf16\nlayer_mapping: [[0, 0]]\n"
    )
    found = job(tmp_path, text)
    assert found.teacher is not None and found.teacher.name == "llama-3.1-8b"
    assert matter(found) == {"layer_mapping"}


def test_another_programs_words_are_not_taken_for_megatrons(tmp_path: Path) -> None:
    text = (
        "python dist_clm_train.py --model-name base --micro-batch-size 1 --num-layers 4 "
        "--pipeline-group-size 8 --seq-length 2048\n"
    )
    with pytest.raises(InputError, match="no format known"):
        job(tmp_path, text, "go.sh")


@pytest.mark.parametrize(("name", "fsdp"), [("zero-stage3.json", 8), ("ds.json", 1)])
def test_accelerate_names_a_deepspeed_file_that_was_not_given(
    tmp_path: Path, name: str, fsdp: int
) -> None:
    text = (
        "distributed_type: DEEPSPEED\nnum_processes: 8\nnum_machines: 1\n"
        f"deepspeed_config: {{deepspeed_config_file: /conf/{name}}}\n"
    )
    path = tmp_path / "acc.yaml"
    path.write_text(text)
    told = {"seq_len": "512", "sequences_per_step": "16"}
    found = read_job([str(path)], model="llama-3.1-8b", overrides=told)
    assert plan_on(found, "a100*8").fsdp == fsdp and name in matter(found)


@pytest.mark.parametrize(
    ("more", "dense"),
    [("--moe-layer-freq -1", 0), ("--moe-layer-freq 1 --first-k-dense-replace 3", 3),
     ("--moe-layer-freq -1 --first-k-dense-replace -1", 0)],
)  # fmt: skip
def test_mindspeeds_layers_of_experts(tmp_path: Path, more: str, dense: int) -> None:
    text = (
        "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 12 --hidden-size 1024 "
        "--num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 --bf16 --swiglu "
        "--micro-batch-size 1 --global-batch-size 8 --num-experts 8 --moe-router-topk 2 "
        f"--moe-ffn-hidden-size 512 --ffn-hidden-size 2816 --vocab-size 50304 {more}\n"
    )
    model = job(tmp_path, text, "go.sh").model
    experts = sum(count for one, count in model.layers if isinstance(one.mlp, MoeMlp))
    assert experts == 12 - dense
