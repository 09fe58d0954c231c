"""Launch files of publishers that no reader had been tried on, in small: llm.c, Determined, MaxText
with a model of a fork's own, Levanter's kinds of model."""

from pathlib import Path

import pytest

from chipshift.errors import InputError
from chipshift.jobs.job import TrainJob
from chipshift.jobs.plan import Plan
from chipshift.jobs.read import read_job
from chipshift.models.count import params


def job(folder: Path, **files: str) -> TrainJob:
    paths = []
    for name, text in files.items():
        path = folder / name.replace("__", ".")
        path.write_text(text)
        paths.append(str(path))
    return read_job(paths)


def plan(read: TrainJob) -> Plan:
    assert read.plan is not None
    return read.plan.value


def matter(read: TrainJob) -> dict[str, str]:
    return {one.key: one.why for one in read.ignored if one.matters}


LLMC = """
#SBATCH -N 1
#SBATCH --gpus-per-node=4
MODEL=d36
srun --ntasks=4 bash -c "
  ./train_gpt2cu -i 'train_*.bin' -e $MODEL -b 8 -t 1024 -d 524288 -r 1 -z 1 -n 1000 -pi mpi
"
"""


def test_llm_c_keeps_bf16_weights_and_shards_their_fp32_copies(tmp_path: Path) -> None:
    """524288 tokens of 1024 are 512 sequences: 8 on each of 4 GPUs, 16 times."""
    read = job(tmp_path, a__sh=LLMC)
    assert (plan(read).dp, plan(read).microbatch, plan(read).accumulation) == (4, 8, 16)
    assert plan(read).optimizer_sharding == "zero1"
    assert (read.precision.value.weights, read.precision.value.master) == ("bf16", "fp32")
    # 36 layers of 12 · 1280² + 13 · 1280, tables of 50304 and 1024 rows of 1280, a last norm
    count = 36 * (12 * 1280**2 + 13 * 1280) + (50304 + 1024) * 1280 + 2 * 1280
    assert round(params(read.model)) == count


def test_llm_cs_script_runs_under_autocast_and_takes_tokens_a_step(tmp_path: Path) -> None:
    """32 · 1024 tokens on each of 16 GPUs, four times: 2097152."""
    command = (
        "torchrun --nnodes=2 --nproc-per-node=8 train_gpt2.py --model d12 --batch_size 32 "
        "--sequence_length 1024 --total_batch_size 2097152 --dtype bfloat16\n"
    )
    read = job(tmp_path, a__sh=command)
    assert (plan(read).dp, plan(read).microbatch, plan(read).accumulation) == (16, 32, 4)
    assert (read.precision.value.compute, read.precision.value.weights) == ("bf16", "fp32")


DETERMINED = """
name: sft
resources:
  slots_per_trial: 2
hyperparameters:
  model: "google/gemma-2b"
  max_seq_length: 4096
  training_args:
    per_device_train_batch_size: 1
    gradient_accumulation_steps: 8
    bf16: true
    deepspeed: "ds_configs/ds.json"
entrypoint: >-
  python -m determined.launch.deepspeed
  python tune.py
"""
DS = '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}}'
TUNE = (
    "from transformers import TrainingArguments\nimport determined as det\n"
    "hparams = det.get_cluster_info().trial.hparams\n"
    "args = TrainingArguments(**hparams['training_args'])\n"
    "trainer = SFTTrainer(args=args, max_seq_length=hparams['max_seq_length'])\n"
)


def test_determineds_hyperparameters_are_the_programs_settings(tmp_path: Path) -> None:
    read = job(tmp_path, job__yaml=DETERMINED, tune__py=TUNE, ds__json=DS)
    assert read.devices is not None and read.devices.value == 2
    assert read.seq_len.value == 4096 and plan(read).accumulation == 8
    assert plan(read).optimizer_sharding == "zero2" and read.model.name == "gemma-2b"


WIDTH = """
base_emb_dim: 3072
base_num_query_heads: 32
base_num_kv_heads: 8
base_num_decoder_layers: 32
base_mlp_dim: 9216
head_dim: 128
vocab_size: 128256
"""
MAXTEXT = (
    "python3 -m MaxText.train MaxText/configs/base.yml model_name=l3-4b-width steps=5 "
    "per_device_batch_size=2 gradient_accumulation_steps=4 max_target_length=8192 use_kd=true\n"
)


def test_a_model_of_a_fork_of_maxtext_is_its_file_given_beside(tmp_path: Path) -> None:
    """A layer: (32 + 2 · 8) · 128 and back from 32 · 128, three maps to 9216, two norms of 3072."""
    (tmp_path / "l3-4b-width.yml").write_text(WIDTH)
    (tmp_path / "a.sh").write_text(MAXTEXT)
    read = read_job([str(tmp_path / "a.sh"), str(tmp_path / "l3-4b-width.yml")])
    layer = 3072 * 48 * 128 + 32 * 128 * 3072 + 3 * 3072 * 9216 + 2 * 3072
    assert round(params(read.model)) == 32 * layer + 2 * 128256 * 3072 + 3072
    assert (plan(read).microbatch, plan(read).accumulation) == (2, 4)
    assert not any("microbatch" in key for key in matter(read))
    assert "use_kd" in matter(read)  # a fork's own teacher


def test_maxtexts_own_keys_are_passed_over_or_said(tmp_path: Path) -> None:
    command = (
        "python3 -m MaxText.train base.yml model_name=llama2-7b mscale=0.7 scan_layers=false "
        "mtp_num_layers=1 activations_in_float32=true\n"
    )
    said = matter(job(tmp_path, a__sh=command))
    assert {"mtp_num_layers", "activations_in_float32"} <= said.keys()
    assert not {"mscale", "scan_layers"} & said.keys()


LEVANTER = """
model:
  type: {kind}
  num_layers: 2
{more}trainer:
  train_batch_size: 64
  mp: p=f32,c=bfloat16
"""


def test_levanters_kinds_of_model_have_their_own_defaults(tmp_path: Path) -> None:
    gemma = job(tmp_path, a__yaml=LEVANTER.format(kind="gemma", more="  head_dim: 128\n"))
    # 8 heads and one of keys and values of 128, 16384 wide, 2048 across, tied
    layer = 2048 * (8 + 2) * 128 + 8 * 128 * 2048 + 3 * 2048 * 16384 + 2 * 2048
    assert round(params(gemma.model)) == 2 * layer + 256_000 * 2048 + 2048
    assert gemma.seq_len.value == 8192
    mistral = job(tmp_path, b__yaml=LEVANTER.format(kind="mistral", more=""))
    layer = 4096 * (32 + 16) * 128 + 4096 * 4096 + 3 * 4096 * 14336 + 2 * 4096
    assert round(params(mistral.model)) == 2 * layer + 2 * 32000 * 4096 + 4096


ENDLESS = """
make train_gpt2cu USE_CUDNN=1
while true; do
    if [ -f "log/DONE" ]; then
        echo "exists. Exiting the loop."
        break
    fi
    mpirun -np 8 ./train_gpt2cu -b 32 -t 2048 -d 524288 -r 0 -e "gpt3:c768"
    sleep 1
done
"""


def test_a_file_that_would_end_the_script_is_taken_as_not_there(tmp_path: Path) -> None:
    """GPT-3's 125M has 2048 positions; 524288 tokens are 256 sequences, 32 on each of 8."""
    read = job(tmp_path, a__sh=ENDLESS)
    assert (plan(read).dp, plan(read).microbatch, plan(read).accumulation) == (8, 32, 1)
    assert read.model.max_positions == 2048


SEARCHED = """
hyperparameters:
  model: "mistralai/Mistral-7B-v0.1"
  lora: true
  r:
    type: categorical
    vals: [2, 8, 32]
  training_args:
    per_device_train_batch_size: 4
    bf16: true
resources:
  slots_per_trial: 2
entrypoint: python -m determined.launch.torch_distributed python tune.py
"""


def test_a_searched_hyperparameter_is_its_first_value_and_said(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SEARCHED)
    read = read_job([str(tmp_path / "a.yaml")], overrides={"seq_len": "2048"})
    # rank 2 on queries (4096 + 4096) and values (4096 + 1024) of 32 layers
    count = 32 * 2 * (4096 + 4096 + 4096 + 1024)
    assumed = {what: value for what, value, _ in read.assumed}
    assert assumed["trained parameters"] == f"{count:,}"
    assert assumed["searched hyperparameters"] == "the first"


WRITTEN = """
#SBATCH --nodes=4
#SBATCH --gres=gpu:8
worker=$(cat <<- EOM
  cd /opt/Megatron-Bridge ;
  nice -10 \\
  python scripts/performance/run_script.py \\
    --gpu h100 --model_recipe_name llama3_70b --num_gpus 32 --compute_dtype fp8_cs \\
    --global_batch_size 1024 --micro_batch_size 1 --tensor_model_parallel_size 2
EOM
)
echo "$worker" > worker.sh
torchrun --nproc-per-node=8 --nnodes=4 --no-python bash worker.sh
"""


def test_a_script_that_echo_writes_starts_bridges_benchmark(tmp_path: Path) -> None:
    read = job(tmp_path, a__sh=WRITTEN)
    assert read.model.name == "llama-3-70b" and read.sequences_per_step.value == 1024
    assert (plan(read).tp, plan(read).microbatch) == (2, 1)


def test_words_with_dots_lie_over_the_file_that_a_command_names(tmp_path: Path) -> None:
    """Levanter's draccus takes ``--model.num_layers 3``, apart from its value."""
    text = LEVANTER.format(kind="llama", more="  hidden_dim: 1024\n  num_heads: 8\n")
    (tmp_path / "a.yaml").write_text(text + "  fsdp_axis: embed\n")
    (tmp_path / "go.sh").write_text(
        "#!/bin/bash\nsrun --nodes=2 --gpus-per-node=8 run.sh python -m levanter.main.train_lm "
        "--config_path config/a.yaml --model.num_layers 3 --trainer.train_batch_size 128 "
        "--model.num_kv_heads 8 --trainer.mp p=f32,c=f32\n"
    )
    read = read_job([str(tmp_path / "go.sh"), str(tmp_path / "a.yaml")])
    assert (read.model.n_layers, read.sequences_per_step.value) == (3, 128)
    assert read.precision.value.compute == "fp32"


def test_a_levanter_command_alone_asks_for_the_model_of_its_yaml(tmp_path: Path) -> None:
    (tmp_path / "go.sh").write_text(
        "python levanter/src/levanter/main/train_lm.py --config_path a.yaml --model.num_layers 3 "
        "--model.num_kv_heads 8 --trainer.train_batch_size 128\n"
    )
    with pytest.raises(InputError, match="the model of a YAML that is not given"):
        read_job([str(tmp_path / "go.sh")])


OWN = (
    "torchrun --nproc_per_node=4 --nnodes=8 main.py --model gpt2 --optim adamw {words} "
    "--input_bin 'data/*.bin'\n"
)


def test_a_device_batch_beside_the_whole_one(tmp_path: Path) -> None:
    """128 sequences of all 32 GPUs, 2 on each: twice."""
    words = "--batch_size 128 --device_batch_size 2 --sequence_length 1024"
    read = job(tmp_path, a__sh=OWN.format(words=words))
    assert (plan(read).microbatch, plan(read).accumulation, plan(read).dp) == (2, 2, 32)
    # in tokens, as nanochat has it: 524288 are 256 sequences of 2048, 8 on each of 32
    words = "--device-batch-size 4 --total-batch-size 524288 --max-seq-len 2048"
    read = job(tmp_path, b__sh=OWN.format(words=words))
    assert (plan(read).microbatch, plan(read).accumulation) == (4, 2)


NANOGPT = (
    "batch_size = 4\nblock_size = 1024\ngradient_accumulation_steps = 8\nn_layer = 2\n"
    "n_head = 4\nn_embd = 512\n"
)


def test_how_forks_of_nanogpt_shard(tmp_path: Path) -> None:
    read = job(tmp_path, a__py=NANOGPT + "use_fsdp = True\n")
    assert read.plan_open == "fsdp" and read.precision.value.gather == "bf16"
    read = job(tmp_path, b__py=NANOGPT + "deepspeed = True\nzero_stage = 2\n")
    assert plan(read).optimizer_sharding == "zero2"
    assert (read.precision.value.weights, read.precision.value.master) == ("bf16", "fp32")


def test_a_forks_experts_have_a_width_of_their_own(tmp_path: Path) -> None:
    """Experts of 3 · 512 · 160, one more that every token visits, a router of 512 · 16."""
    more = (
        "use_moe = True\nnum_experts = 16\nmoe_router_topk = 8\nmoe_ffn_hidden_size = 160\n"
        "moe_shared_expert_hidden_size = 160\nuse_swiglu = True\nkv_channels = 64\n"
        "n_kv_head = 2\nvocab_size_override = 1000\nuse_rope = True\ntie_embeddings = False\n"
    )
    read = job(tmp_path, a__py=NANOGPT + more)
    layer = 512 * (4 + 2 * 2) * 64 + 4 * 64 * 512 + 17 * 3 * 512 * 160 + 512 * 16 + 2 * 512
    assert round(params(read.model)) == 2 * layer + 2 * 1000 * 512 + 512


def test_a_commands_words_lie_over_every_key_of_a_nanogpt_config(tmp_path: Path) -> None:
    """Not over those of the shape alone: a fork's switch and train.py's dtype too."""
    (tmp_path / "c.py").write_text(NANOGPT + "use_swiglu = False\ndtype = 'bfloat16'\n")
    (tmp_path / "go.sh").write_text(
        "for gated in True False; do\n  torchrun --nproc_per_node=8 train.py config/c.py "
        "--use_swiglu=$gated --dtype=float16\ndone\n"
    )
    read = read_job([str(tmp_path / "go.sh"), str(tmp_path / "c.py")])
    assert read.precision.value.compute == "fp16"
    # three maps of 512 · 2048 in each layer, 4 · 512² of attention, tables of 50304 and 1024
    layer = 4 * 512**2 + 3 * 512 * 2048 + 2 * 512
    assert round(params(read.model)) == 2 * layer + (50304 + 1024) * 512 + 512
    assert "several commands" in matter(read)["c.py"]


def test_a_checkpoint_of_levanters_own_choice(tmp_path: Path) -> None:
    text = (
        "model:\n  type: mpt\ninitialize_from_hf: true\nuse_hf_model_config: true\n"
        "trainer:\n  train_batch_size: 64\n  mp: p=f32,c=bfloat16\n"
    )
    read = job(tmp_path, a__yaml=text)
    assert read.model.name == "mpt-7b" and read.seq_len.value == 2048
