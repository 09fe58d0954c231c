"""What launch files of further publishers showed; each file here is our own."""

from __future__ import annotations

from pathlib import Path

import pytest

from chipshift.errors import InputError
from chipshift.jobs.read import read_job
from chipshift.models.model import MoeMlp

from .test_spellings import job, plan_on


def several(tmp_path: Path, **files: str) -> list[str]:
    """Files by name, ``__`` for the point, as their paths."""
    paths = []
    for name, text in files.items():
        path = tmp_path / name.replace("__", ".")
        path.write_text(text)
        paths.append(str(path))
    return paths


OWN_WORDS = """CUDA_VISIBLE_DEVICES=0,1 accelerate launch --config_file acc.yaml \\
  train_it.py --model_name Qwen/Qwen2.5-7B-Instruct --max_length 4096 \\
  --train_batch_size 2 --accumulation_steps 8 --parallel_mode ring
"""
COPIES = "distributed_type: MULTI_GPU\nmixed_precision: bf16\nnum_machines: 1\nnum_processes: 5\n"


def test_a_scripts_own_words_for_batch_and_accumulation(tmp_path: Path) -> None:
    found = read_job(several(tmp_path, go__sh=OWN_WORDS, acc__yaml=COPIES))
    # 2 sequences a device, 8 forwards, 5 copies
    assert found.sequences_per_step.value == 2 * 8 * 5 and found.seq_len.value == 4096
    assert found.precision.value.compute == "bf16"
    said = {why for _, _, why in found.assumed}
    assert any("--train_batch_size" in why for why in said)
    assert [i.key for i in found.ignored if i.matters] == ["parallel_mode"]


def test_a_whole_batch_beside_a_smaller_one(tmp_path: Path) -> None:
    text = (
        "torchrun --nproc_per_node=4 finetune.py --base_model meta-llama/Llama-2-7b-hf "
        "--batch_size 128 --micro_batch_size 4 --max_length 512\n"
    )
    found = job(tmp_path, text, "go.sh")
    # 128 = 4 a device × 4 devices × 8 forwards
    assert found.sequences_per_step.value == 128
    assert plan_on(found, "h100*4").accumulation == 8


def test_a_slip_of_a_key_that_is_passed_over_is_no_mistake(tmp_path: Path) -> None:
    text = (
        "deepspeed --num_gpus 2 run.py --model_name_or_path meta-llama/Llama-2-7b-hf "
        "--train_files a.csv --per_device_train_batch_size 1 --block_size 2048 --bf16 "
        "--load_in_bits 4 --lora_r 8 --target_modules q_proj,v_proj\n"
    )
    found = job(tmp_path, text, "go.sh")
    assert not [i.key for i in found.ignored if i.matters]
    assert found.precision.value.weights == "int4"


TABLES = """
base_model: openai/gpt-oss-20b
max_seq_length: 1024
load_in_4bit: true
training_type: dpo
lora: {r: 8, alpha: 16, target_modules: [q_proj, v_proj]}
train: {per_device_train_batch_size: 2, gradient_accumulation_steps: 4}
"""


def test_the_trainers_keys_in_tables_of_the_files_own(tmp_path: Path) -> None:
    found = job(tmp_path, TABLES)
    plan = plan_on(found, "h100*1")
    # DPO: a pair is two sequences
    assert (plan.microbatch, plan.accumulation) == (2 * 2, 4) and found.loss == "dpo"
    assert found.task == "lora" and found.precision.value.weights == "int4"
    assert ("table of the file's own", "train") in {(what, v) for what, v, _ in found.assumed}


def test_a_tower_beside_the_model_is_said(tmp_path: Path) -> None:
    text = (
        "torchrun --nproc_per_node=8 train_mem.py --model_name_or_path Qwen/Qwen2-7B-Instruct "
        "--vision_tower openai/clip-vit-large-patch14-336 --per_device_train_batch_size 4 "
        "--model_max_length 2048 --bf16 True --deepspeed ds_z3_offload_config.json\n"
    )
    found = job(tmp_path, text, "go.sh")
    assert "vision_tower" in [i.key for i in found.ignored if i.matters]
    # the name of a DeepSpeed file that is not given tells its stage and that it offloads
    assert "cpu_offload" in {flag.kind for flag in found.flags}


NEMO = """
trainer: {devices: 4, num_nodes: 8, precision: bf16}
model:
  micro_batch_size: 16
  global_batch_size: 512
  tensor_model_parallel_size: 1
  encoder_seq_length: 1024
  num_layers: 24
  hidden_size: 1024
  ffn_hidden_size: 4096
  num_attention_heads: 16
"""


@pytest.mark.parametrize(
    ("more", "weights", "master"),
    [
        ("", "fp32", "none"),
        ("  megatron_amp_O2: false\n", "fp32", "none"),
        ("  megatron_amp_O2: true\n", "bf16", "fp32"),
    ],
)
def test_nemo_1_holds_fp32_weights_without_o2(
    tmp_path: Path, more: str, weights: str, master: str
) -> None:
    precision = job(tmp_path, NEMO + more).precision.value
    assert (precision.compute, precision.weights, precision.master) == ("bf16", weights, master)


def test_a_nemo_1_command_without_its_yaml(tmp_path: Path) -> None:
    text = """#!/bin/bash
#SBATCH --nodes=16
#SBATCH --gpus-per-node=8
CMD="python -u train_gpt_sft.py trainer.precision=bf16 trainer.num_nodes=16 trainer.devices=8 \\
  model.megatron_amp_O2=True model.restore_from_path=/m/llama-3.1-70b.nemo \\
  model.data.train_ds.micro_batch_size=1 model.data.train_ds.global_batch_size=8 \\
  model.data.train_ds.max_seq_length=8192 model.tensor_model_parallel_size=8 \\
  model.pipeline_model_parallel_size=4 +model.context_parallel_size=2"
srun singularity run x.sif $CMD
"""
    found = job(tmp_path, text, "go.sbatch")
    assert found.plan is not None and found.seq_len.value == 8192
    plan = found.plan.value
    # 128 devices / (8 · 4 · 2) = 2 replicas, 8 sequences of 1: 4 forwards
    assert (plan.dp, plan.tp, plan.pp, plan.cp, plan.accumulation) == (2, 8, 4, 2, 4)


def test_a_model_that_a_fork_of_llm_foundry_registers(tmp_path: Path) -> None:
    text = """
max_seq_len: 4096
global_train_batch_size: 32
device_train_microbatch_size: 8
precision: amp_bf16
model: {name: NAME, d_model: 2048, n_heads: 16, n_layers: 24, intermediate_size: 5504,
  vocab_size: 32000}
"""
    found = job(tmp_path, text.replace("NAME", "mosaic_llama2_1.3b"))
    # LLM-Shearing's 1.3B: 24 layers of 4·2048² + 3·2048·5504, two tables of 32,000 × 2048
    layer = 4 * 2048**2 + 3 * 2048 * 5504 + 2 * 2048
    from chipshift.models.count import params

    assert params(found.model) == 24 * layer + 2 * 32000 * 2048 + 2048
    with pytest.raises(InputError, match="trains 'flex_bert'"):
        job(tmp_path, text.replace("NAME", "flex_bert"))


def test_a_fork_of_nanogpt_with_experts_and_grouped_heads(tmp_path: Path) -> None:
    text = "block_size = 1024\nbatch_size = 3\nuse_moe = True\nnum_experts = 16\ntop_k = 2\n"
    model = job(tmp_path, text + "n_kv_head = 4\nuse_rope = True\n", "moe.py").model
    layer = model.layers[0][0]
    assert isinstance(layer.mlp, MoeMlp)
    assert (layer.mlp.experts, layer.mlp.top_k, layer.mlp.width) == (16, 2, 4 * 768)
    assert layer.mlp.router_params == 768 * 16
    assert layer.attention is not None and layer.attention.kv_heads == 4
    assert model.embedding_extra_params == 0  # no learned positions


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("llama_config_path = 'configs/llama_1b.json'", r"configs/llama_1b\.json, which it names"),
        ("block_type = 'mamba'", "a fork's model of mamba blocks"),
        ("n_kv_head = 5", "5 key/value heads do not divide n_head 12"),
    ],
)
def test_a_fork_of_nanogpt_whose_model_is_elsewhere(
    tmp_path: Path, line: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        job(tmp_path, f"block_size = 1024\nbatch_size = 3\n{line}\n", "a.py")


@pytest.mark.parametrize(
    ("key", "name", "ours"),
    [
        ("algorithm", "adam_mini", "adam_mini"),
        ("optimizer_name", "sophiag", "sophia"),
        ("optimizer_type", "AdamW", "adamw"),
    ],
)
def test_optimizers_of_forks_of_nanogpt(tmp_path: Path, key: str, name: str, ours: str) -> None:
    text = f"block_size = 1024\nbatch_size = 3\n{key} = '{name}'\n"
    assert job(tmp_path, text, "a.py").optimizer.value == ours


def test_a_part_of_a_hydra_configuration_says_what_it_lies_over(tmp_path: Path) -> None:
    text = (
        "# @package _global_\ndefaults:\n  - /experiment/base.yaml\ndatamodule: {batch_size: 4}\n"
    )
    with pytest.raises(InputError, match=r"a part of a Hydra configuration.*/experiment/base"):
        job(tmp_path, text)


def test_a_lightning_file_names_the_class_that_it_trains(tmp_path: Path) -> None:
    text = """
trainer: {devices: 1, precision: bf16-mixed, accumulate_grad_batches: 2}
model:
  class_path: mine.Classifier
  init_args:
    backbone: {class_path: mine.backbones.cell_3m}
"""
    with pytest.raises(InputError, match=r"trains 'mine\.backbones\.cell_3m'"):
        job(tmp_path, text)


TRL = """
from trl import SFTConfig, SFTTrainer
args = SFTConfig(per_device_train_batch_size=1, MORE)
trainer = SFTTrainer(model="Qwen/Qwen2.5-7B", args=args)
"""


@pytest.mark.parametrize(
    ("more", "remat", "compute"),
    [
        ("max_length=4096", "full", "bf16"),
        ("max_length=4096, gradient_checkpointing=False, fp16=True", "none", "fp16"),
        ("max_seq_length=4096", "none", "fp32"),  # a key of versions before those defaults
    ],
)
def test_trls_own_defaults(tmp_path: Path, more: str, remat: str, compute: str) -> None:
    found = job(tmp_path, TRL.replace("MORE", more), "train.py")
    assert plan_on(found, "h100*1").remat == remat
    assert found.precision.value.compute == compute


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("train.py", TRL.replace(", MORE", "")),
        ("train.py", TRL.replace(", MORE", "").replace("SFT", "DPO")),
        ("run.sh", "trl sft --model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size 1"),
        (
            "run.sh",
            "accelerate launch -m trl.scripts.kto --model_name_or_path Qwen/Qwen2.5-7B "
            "--per_device_train_batch_size 1",
        ),
    ],
)
def test_trl_cuts_samples_to_its_own_length(tmp_path: Path, file: str, text: str) -> None:
    """SFTConfig, DPOConfig and KTOConfig: max_length 1,024 by default, which is assumed."""
    found = job(tmp_path, text, file)
    assert found.seq_len.value == 1024
    assert any("TRL's default max_length" in why for _, _, why in found.assumed)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("train.py", TRL.replace("MORE", "max_length=None")),  # samples as they are
        ("train.py", TRL.replace(", MORE", "").replace("SFT", "GRPO")),  # it samples them
        ("run.sh", "torchrun sft.py --model_name_or_path Qwen/Qwen2.5-7B "
                   "--per_device_train_batch_size 1"),
    ],
)  # fmt: skip
def test_other_lengths_are_asked_for(tmp_path: Path, file: str, text: str) -> None:
    with pytest.raises(InputError, match=r"expected --set seq_len=N"):
        job(tmp_path, text, file)


def test_a_manifest_that_starts_a_script_given_beside(tmp_path: Path) -> None:
    manifest = (
        "apiVersion: batch/v1\nkind: Job\nspec:\n  template:\n    spec:\n      containers:\n"
        "      - name: trainer\n        command: [bash, /workspace/start.sh]\n"
        "        resources: {limits: {nvidia.com/gpu: 2}}\n"
    )
    start = "#!/bin/bash\nexec deepspeed --num_gpus=2 /workspace/train.py\n"
    script = (
        "import os\nfrom trl import SFTConfig, SFTTrainer\n"
        "def env(key, default):\n    return os.environ.get(key) or default\n"
        'args = SFTConfig(per_device_train_batch_size=env("MICRO", 3), max_length=2048)\n'
        'trainer = SFTTrainer(model=env("MODEL", "Qwen/Qwen3-1.7B"), args=args)\n'
    )
    found = read_job(several(tmp_path, job__yaml=manifest, start__sh=start, train__py=script))
    assert found.model.name == "qwen3-1.7b" and found.sequences_per_step.value == 3 * 2


def test_a_branch_by_what_a_name_holds_and_a_length_that_calls_disagree_on(tmp_path: Path) -> None:
    text = """
import lightning as L
data = "tsz512x4k"
name = data + "_run"
if "512x4k" in name:
    batch_size = 8
elif "1024x2k" in name:
    batch_size = 16
def loader(batch_size, block_size):
    return DataLoader(x, batch_size=batch_size)
train = loader(batch_size=batch_size, block_size=config.block_size)
val = loader(batch_size=batch_size, block_size=16384 + 1)
fabric = L.Fabric(devices=2, strategy="ddp", precision="bf16-mixed")
model = AutoModelForCausalLM.from_pretrained("gpt2")
"""
    found = job(tmp_path, text, "a.py")
    assert plan_on(found, "h100*2").microbatch == 8 and found.seq_len.value == 1024


def test_nanotron_without_the_kind_of_its_config(tmp_path: Path) -> None:
    text = """
model:
  model_config: {FIRST hidden_size: 2048, num_hidden_layers: 24, num_attention_heads: 32,
    num_key_value_heads: 32, intermediate_size: 8192, vocab_size: 50272}
parallelism: {dp: 8, tp: 1, pp: 1, moe_layer_recompute: false}
tokens: {micro_batch_size: 4, sequence_length: 2048, batch_accumulation_per_replica: 4}
"""
    found = job(tmp_path, text.replace("FIRST", ""))
    assert found.model.n_layers == 24 and found.sequences_per_step.value == 4 * 4 * 8
    assert any("is_..._config" in why for _, _, why in found.assumed)
    assert not [i.key for i in found.ignored if i.matters]
    with pytest.raises(InputError, match="is_xglm_config"):
        job(tmp_path, text.replace("FIRST", "is_xglm_config: true,"))


def test_keys_of_sampling_in_a_table_are_said(tmp_path: Path) -> None:
    text = (
        'model_name: "Qwen/Qwen3-1.7B"\nmax_seq_length: 2048\ntraining:\n'
        "  per_device_train_batch_size: 1\n  gradient_accumulation_steps: 8\n  num_generations: 8\n"
    )
    assumed = job(tmp_path, text).assumed
    assert any("num_generations is of training on answers" in why for _, _, why in assumed)


def test_a_file_that_exports_a_checkpoint_trains_nothing(tmp_path: Path) -> None:
    text = "model_name_or_path: meta-llama/Llama-3.1-8B\nfinetuning_type: lora\nexport_dir: out\n"
    with pytest.raises(InputError, match=r"job\.yaml:3: export_dir merges .* trains nothing"):
        job(tmp_path, text)


def test_a_scripts_own_global_batch_and_optimizer(tmp_path: Path) -> None:
    text = (
        "accelerate launch --num_processes 4 train.py --model Qwen/Qwen2-7B --max-length 1024 "
        "--optim name=sgd,lr=1e-4 --global_batch_size 8 --micro_batch_size 1 --bf16\n"
    )
    found = job(tmp_path, text, "go.sh")
    # 8 sequences over 4 devices, one at a time: 2 forwards
    assert found.sequences_per_step.value == 8 and found.optimizer.value == "sgd"
    assert plan_on(found, "h100*4").accumulation == 2


DS = """{"train_batch_size": BATCH, "train_micro_batch_size_per_gpu": 4,
 "gradient_accumulation_steps": 2, "zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}
"""
LAUNCH = (
    "deepspeed --hostfile hosts --num_gpus 8 train.py --model_name_or_path meta-llama/Llama-3.1-8B "
    "--bf16 --per_device_train_batch_size 4 --gradient_accumulation_steps 2 --max_length 2048 "
    "--deepspeed ds.json\n"
)


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        # 4 sequences × 2 forwards = 8; of its multiples 96 and 104 are as near, and 96 is taken
        (
            "100",
            r"per_device_train_batch_size is 4 in .*go\.sh:1.*train_batch_size is 100 in "
            r".*ds\.json:1.*96 being the nearest",
        ),
        # 128 / (4 · 2) = 16 replicas on 8 devices, which would be 64 sequences
        (
            "128",
            r"dp=16 = 16 devices, but the job runs on .*8 devices.*train_batch_size is 128 in "
            r".*ds\.json:1.*64 sequences a step is the nearest for 8 devices",
        ),
    ],
)
def test_batches_in_conflict_are_told_by_their_keys(
    tmp_path: Path, batch: str, expected: str
) -> None:
    files = several(tmp_path, go__sh=LAUNCH, ds__json=DS.replace("BATCH", batch))
    with pytest.raises(InputError, match=expected):
        plan_on(read_job(files), "h100*8")


MIXTRAL = (
    "python3 MaxText/train.py MaxText/configs/base.yml model_name=mixtral-8x7b "
    "per_device_batch_size=4 max_target_length=4096 ici_fsdp_parallelism=8 "
)


@pytest.mark.parametrize(
    ("more", "factor", "matters"),
    [
        ("capacity_factor=1.25 sparse_matmul=False", 1.25, []),
        ("capacity_factor=1.25", 0.0, []),  # sparse_matmul is on: nothing is dropped
        ("sparse_matmul=False", 0.0, ["sparse_matmul"]),
    ],
)
def test_maxtexts_places_of_experts(
    tmp_path: Path, more: str, factor: float, matters: list[str]
) -> None:
    found = job(tmp_path, MIXTRAL + more + "\n", "go.sh")
    mlp = found.model.layers[0][0].mlp
    assert isinstance(mlp, MoeMlp) and mlp.capacity_factor == factor
    assert [i.key for i in found.ignored if i.matters] == matters


def test_one_key_value_head_a_device_is_no_divisor_to_choose_from(tmp_path: Path) -> None:
    text = """torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py --num-layers 32 \\
  --hidden-size 4096 --num-attention-heads 32 --group-query-attention --num-query-groups 8 \\
  --ffn-hidden-size 14336 --seq-length 8192 --micro-batch-size 1 --global-batch-size 64 --bf16 \\
  --tensor-model-parallel-size 8 --context-parallel-size 2 --cp-comm-type a2a --swiglu \\
  --vocab-size 128256 --untie-embeddings-and-output-weights --max-position-embeddings 8192
"""
    expected = r"8 key/value heads over tp=8 leave one a device.*expected a ring.*or tp=4"
    with pytest.raises(InputError, match=expected):
        plan_on(job(tmp_path, text, "go.sh"), "h100*32")
