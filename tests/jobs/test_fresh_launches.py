"""What fresh public launch files of Megatron, torchtitan, NeMo and Bridge showed to be wrong.

The files are written anew from their facts; each class of them stands by one or two.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from chipshift.errors import InputError
from chipshift.jobs.job import TrainJob
from chipshift.jobs.plan import Plan
from chipshift.jobs.read import read_job
from chipshift.models.count import params

GPT = (
    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 8 --hidden-size 1024 "
    "--num-attention-heads 16 --seq-length 2048 --micro-batch-size 1 --global-batch-size 64 "
    "--vocab-size 32000 --bf16 "
)


def job(folder: Path, files: dict[str, str], first: str = "", **overrides: str) -> TrainJob:
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    named = [str(folder / name) for name in files]
    model = overrides.pop("model", None)
    return read_job([first, *named] if first else named, model=model, overrides=overrides)


def plan(read: TrainJob) -> Plan:
    assert read.plan is not None
    return read.plan.value


def mattering(read: TrainJob) -> set[str]:
    return {entry.key for entry in read.ignored if entry.matters}


BRANCHES = """#!/bin/bash
OFFLOAD=$1
if [ $OFFLOAD = true ]; then
    extra=" --recompute-granularity full"
    layers=4
fi
[ $OFFLOAD = true ] && more="--fp16"
"""


def test_a_variable_of_a_branch_not_taken_is_empty(tmp_path: Path) -> None:
    text = BRANCHES + GPT + "--pipeline-model-parallel-size 2 $extra $more\n"
    read = job(tmp_path, {"a.sh": text}, args="false")
    assert (plan(read).pp, plan(read).remat) == (2, "none")
    assert plan(job(tmp_path, {"a.sh": text}, args="true")).remat == "full"


def test_a_branch_by_an_argument_that_is_not_given_decides_nothing(tmp_path: Path) -> None:
    text = BRANCHES + GPT.replace("--num-layers 8", "--num-layers $layers") + "\n"
    with pytest.raises(InputError, match="the script's own arguments"):
        job(tmp_path, {"a.sh": text})


def test_a_variable_that_nothing_sets_after_a_value_is_left_out_and_said(tmp_path: Path) -> None:
    read = job(tmp_path, {"a.sh": "#!/bin/bash\n" + GPT + "--tensor-model-parallel-size 2 $MORE\n"})
    assert plan(read).tp == 2
    assert any(what.startswith("$MORE") for what, _, _ in read.assumed)


OWN = "bash submissions/submit.sh 390 --nodes 2 $*\n"
SUBMIT = (
    "if [[ $1 -eq 390 ]]; then LAYERS=8; fi\nshift\n"
    "while [[ $# -gt 0 ]]; do\n  case $1 in\n    --nodes) NODES=$2; shift 2;;\n  esac\ndone\n"
    + 'CMD="'
    + GPT.replace("torchrun --nproc_per_node 8", "python").replace("layers 8", "layers $LAYERS")
    + '"\n'
    + """cat > $ROOT/job.sbatch <<- EOM
#!/bin/bash
#SBATCH --nodes=$NODES
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
srun bash -c "
  export RANK=\\$SLURM_PROCID
  $CMD
"
EOM
sbatch $ROOT/job.sbatch
"""
)


def test_a_script_that_starts_another_which_writes_its_job(tmp_path: Path) -> None:
    # 2 nodes of 4 devices; 64 sequences of 1 over 8 replicas are 8 forwards
    read = job(tmp_path, {"own.sh": OWN, "submit.sh": SUBMIT})
    assert read.devices is not None and read.devices.value == 8
    assert (plan(read).dp, plan(read).accumulation, read.model.n_layers) == (8, 8, 8)


@pytest.mark.parametrize(
    ("launcher", "devices"),
    [
        ("aprun -n 16 -N 4", 16),
        ("mpirun -np 16 -N 4", 16),
        ("mpiexec -n 8 -ppn 4", 8),
        ("jsrun -n 4 -r 1 -a 6 -g 6", 24),
    ],
)
def test_launchers_of_mpi_count_processes(tmp_path: Path, launcher: str, devices: int) -> None:
    text = GPT.replace("torchrun --nproc_per_node 8", f"{launcher} python")
    text = text.replace("--global-batch-size 64", "--global-batch-size 48" * (devices == 24))
    read = job(tmp_path, {"a.sh": f"#!/bin/bash\n{text}\n"})
    assert read.devices is not None and read.devices.value == devices


def test_a_forks_own_arguments_are_said_and_megatrons_are_not(tmp_path: Path) -> None:
    own = "--swap-attention --reuse-fp32-param --moe-zerc --trigger-path x --tokenizer-padding left"
    quiet = " --moe-router-dtype fp32 --log-throughput --eod-mask-loss --use-fused-rmsnorm"
    read = job(tmp_path, {"a.sh": f"#!/bin/bash\n{GPT} {own}{quiet}\n"})
    assert mattering(read) == {"swap-attention", "reuse-fp32-param", "moe-zerc"}


def test_arguments_of_megatrons_that_change_its_layers_are_said(tmp_path: Path) -> None:
    read = job(tmp_path, {"a.sh": f"#!/bin/bash\n{GPT} --moe-latent-size 512 --grpo-kl-beta 0.1\n"})
    assert mattering(read) == {"moe-latent-size", "grpo-kl-beta"}


def test_an_absent_deepspeed_file_is_said(tmp_path: Path) -> None:
    text = f"#!/bin/bash\n{GPT} --deepspeed --deepspeed_config=$D/ds.json --zero-stage=1\n"
    assert mattering(job(tmp_path, {"a.sh": text})) == {"ds.json"}


def test_parts_of_a_model_on_devices_of_their_own_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="MegatronMIMO"):
        job(tmp_path, {"a.sh": f"#!/bin/bash\n{GPT} --component images=tp=1,dp=1,rank_offset=8\n"})


TOML = """
[model]
name = "llama3"
flavor = "%s"
[optimizer]
early_step_in_backward = true
swap_optimizer = true
[training]
local_batch_size = 2
seq_len = 4096
"""
TABLE = """
llama3_args = {
    "8B": TransformerModelArgs(dim=4096, n_layers=32, n_heads=32, n_kv_heads=8),
    "30b": TransformerModelArgs(dim=6144, n_layers=60, n_heads=48, n_kv_heads=8,
                                ffn_dim_multiplier=1.3125, multiple_of=128),
}
"""


def test_a_forks_flavour_by_its_table(tmp_path: Path) -> None:
    # 8/3 × 6144 = 16384, × 1.3125 = 21504; q and o 6144², k and v 6144 × 1024, gated feed-forward,
    # two norms a layer and one after; both ends of 128256 rows
    layer = 2 * 6144**2 + 2 * 6144 * 1024 + 3 * 6144 * 21504 + 2 * 6144
    read = job(tmp_path, {"a.toml": TOML % "30b", "__init__.py": TABLE})
    assert params(read.model) == 60 * layer + 6144 + 2 * 128256 * 6144
    assert mattering(read) == {"optimizer.early_step_in_backward", "optimizer.swap_optimizer"}
    with pytest.raises(InputError, match="flavour '30b' of 'llama3' is not a shipped model"):
        job(tmp_path, {"a.toml": TOML % "30b"})


def test_a_forks_flavour_of_deepseek_by_its_table(tmp_path: Path) -> None:
    table = (
        'configs = {"tiny": DeepSeekV3ModelArgs(dim=1024, inter_dim=4096, moe_inter_dim=512, '
        "n_layers=4, n_dense_layers=1, n_heads=8, vocab_size=32000, moe_args=MoEArgs("
        "num_experts=16, num_shared_experts=2, top_k=4))}\n"
    )
    read = job(
        tmp_path,
        {"a.toml": (TOML % "tiny").replace("llama3", "deepseek_v3"), "__init__.py": table},
    )
    # q 1024 × 8·192, kv down 1024 × 576, kv up 512 × 8·256, o 8·128 × 1024, a norm of 512
    attention = 1024 * 1536 + 1024 * 576 + 512 * 2048 + 1024 * 1024 + 512
    sparse = 18 * 3 * 1024 * 512 + 16 * 1024  # 16 experts, two shared ones, the router
    dense = 3 * 1024 * 4096
    whole = 4 * (attention + 2048) + 3 * sparse + dense + 1024 + 2 * 32000 * 1024
    assert params(read.model) == whole


RUN_TRAIN = """#!/bin/bash
NGPU=4 CONFIG_FILE="./torchtitan/models/llama3/train_configs/llama3_8b.toml" ./run_train.sh \\
  --training.seq_len 4096 --parallelism.tensor_parallel_degree 2
"""


def test_torchtitans_own_job_files_are_carried(tmp_path: Path) -> None:
    # one sequence a replica, 4 devices / tp 2
    read = job(tmp_path, {"run.sh": RUN_TRAIN})
    assert (read.model.name, read.seq_len.value, read.sequences_per_step.value) == (
        *("llama-3.1-8b", 4096, 2),
    )
    assert (plan(read).fsdp, plan(read).tp, plan(read).remat) == (2, 2, "selective_op")
    bare = job(tmp_path, {"run.sh": "#!/bin/bash\n./run_train.sh --training.seq_len 1024\n"})
    assert (bare.model.name, bare.devices and bare.devices.value) == ("llama3-debugmodel", 8)
    with pytest.raises(InputError, match="expected that file beside it"):
        job(tmp_path, {"run.sh": RUN_TRAIN.replace("llama3_8b.toml", "mine.toml")})


def test_stages_are_counted_by_the_model_that_is_named(tmp_path: Path) -> None:
    # 32 layers and a layer's weight for each end, 1 a virtual stage: 34 / 8 → 4; none: 32 / 8
    text = (
        "#!/bin/bash\ntorchrun --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint=localhost:0 "
        "-m torchtitan.train --module fork --config mine --parallelism.pipeline_parallel_degree 8 "
        "--parallelism.pipeline_parallel_schedule Interleaved1F1B "
        "--parallelism.pipeline_parallel_first_stage_less_layers 0 "
        "--parallelism.pipeline_parallel_last_stage_less_layers 0 "
        "--parallelism.pipeline_parallel_layers_per_stage 1\n"
    )
    read = job(tmp_path, {"run.sh": text}, model="llama-3.1-8b")
    assert (plan(read).vpp, read.devices and read.devices.value) == (4, 8)


NEMO = """
import nemo_run as run
from nemo.collections import llm
recipe = llm.llama31_8b.pretrain_recipe(num_nodes=1)
recipe.model = run.Config(llm.LlamaModel, run.Config(llm.Llama3Config8B, seq_length=1024))
"""


@pytest.mark.parametrize(
    ("data", "vocab"),
    [
        ("", 393 * 128),  # GPT-2's 50257, padded to a multiple of 128
        ('(get_nmt_tokenizer, library="null", model_name="N", vocab_size=128256)', 1003 * 128),
        ('(AutoTokenizer, pretrained_model_name="Qwen/Qwen3-8B")', 1187 * 128),
    ],
)
def test_nemo_2_trains_the_vocabulary_and_length_of_its_data(
    tmp_path: Path, data: str, vocab: int
) -> None:
    line = f"recipe.data.tokenizer = run.Config{data}\n" if data else ""
    read = job(tmp_path, {"a.py": NEMO + line})
    assert (read.model.vocab, read.seq_len.value) == (vocab, 8192)


CONTAINER = """
_target_: megatron.bridge.training.config.ConfigContainer
model:
  _target_: megatron.bridge.models.qwen.qwen_provider.Qwen3ModelProvider
  num_layers: 4
  hidden_size: 1024
  ffn_hidden_size: 4096
  num_attention_heads: 16
  num_query_groups: 8
  kv_channels: 128
  gated_linear_unit: true
  add_bias_linear: false
  normalization: RMSNorm
  position_embedding_type: rope
  qk_layernorm: true
  share_embeddings_and_output_weights: true
  vocab_size: 32000
  should_pad_vocab: false
  seq_length: 4096
  tensor_model_parallel_size: 2
  params_dtype: {_target_: torch.bfloat16, _call_: false}
ddp: {use_distributed_optimizer: true, grad_reduce_in_fp32: false}
mixed_precision: {bf16: true, fp8: null, grad_reduce_in_fp32: true}
optimizer: {optimizer: adam, use_precision_aware_optimizer: false}
peft: null
train: TRAIN
"""


def test_bridges_whole_configuration_as_a_run_keeps_it(tmp_path: Path) -> None:
    text = CONTAINER.replace("TRAIN", "{micro_batch_size: 2, global_batch_size: 64}")
    read = job(tmp_path, {"run_config.yaml": text})
    layer = 2 * 1024 * 2048 + 2 * 1024 * 1024 + 3 * 1024 * 4096 + 2 * 1024 + 2 * 128
    assert params(read.model) == 4 * layer + 1024 + 32000 * 1024
    assert (plan(read).tp, plan(read).microbatch, read.sequences_per_step.value) == (2, 2, 64)
    assert read.precision.value.reduce == "fp32"  # the mixed precision's own, over ddp's
    with pytest.raises(InputError, match=r"without train\.micro_batch_size"):
        job(tmp_path, {"run_config.yaml": CONTAINER.replace("TRAIN", "null")})


def test_a_configuration_laid_over_another_names_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"laid over ../base/default.yaml"):
        job(tmp_path, {"a.yaml": "defaults: ../base/default.yaml\nrun: {env: {mounts: []}}\n"})


def test_nemos_launcher_names_the_file_that_it_trains(tmp_path: Path) -> None:
    text = "#!/bin/bash\npython3 main.py stages=[training] training=gpt3/5b training.trainer.x=1\n"
    with pytest.raises(InputError, match=r"5b.yaml, which it names, beside it"):
        job(tmp_path, {"a.sh": text})


SED = f"""#!/bin/bash
stage=2
config="ds_gbs64.json"
sed "s/GBSIZE/64/" ds_TEMPLATE.json \\
  | sed "s/ZERO_STAGE/${{stage}}/" \\
  > ${{config}}
{GPT} --deepspeed --deepspeed_config ${{config}} --zero-stage 1
"""
TEMPLATE = '{"train_batch_size": GBSIZE, "zero_optimization": {"stage": ZERO_STAGE}}'


def test_a_deepspeed_file_that_sed_makes_of_a_template(tmp_path: Path) -> None:
    read = job(tmp_path, {"a.sh": SED, "ds_TEMPLATE.json": TEMPLATE})
    assert (plan(read).optimizer_sharding, read.sequences_per_step.value) == ("zero2", 64)
    assert "ds_gbs64.json" in mattering(job(tmp_path, {"b.sh": SED}))


def test_what_is_made_before_the_recipe_lies_over_it_where_it_is_put_in(tmp_path: Path) -> None:
    text = """
import nemo_run as run
from nemo.collections import llm
data = run.Config(Own, seq_length=1024, micro_batch_size=2, global_batch_size=8)
data.global_batch_size = 16
recipe = llm.llama3_8b.finetune_recipe(num_nodes=1, num_gpus_per_node=8, peft_scheme="none")
recipe.data = data
"""
    read = job(tmp_path, {"a.py": text})
    assert (read.seq_len.value, plan(read).microbatch, read.sequences_per_step.value) == (
        *(1024, 2, 16),
    )


def test_places_without_a_layer(tmp_path: Path) -> None:
    # 8 places over pp 2 × 2 virtual stages are 2 each; 1 and 7 are empty
    own = "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 2"
    read = job(tmp_path, {"a.sh": f"#!/bin/bash\n{GPT} {own} --noop-layers 1,7\n"})
    assert (read.model.n_layers, plan(read).vpp) == (6, 2)
    assert plan(read).stage_layers == (1, 2, 2, 1)


def test_a_forks_accumulation_of_gradients(tmp_path: Path) -> None:
    text = (TOML % "8B").replace("[training]", "[training]\ngradient_accumulation_steps = 4")
    run = "#!/bin/bash\ntorchrun --nproc_per_node 8 --nnodes 1 train.py --job.config_file a.toml\n"
    read = job(tmp_path, {"run.sh": run, "a.toml": text})
    assert read.sequences_per_step.value == 8 * 2 * 4


def test_a_script_that_is_started_and_not_given_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"train_llama\.sh, which it names, beside it"):
        job(tmp_path, {"a.sh": "#!/bin/bash\nSIZE=70B\nbash train_llama.sh $SIZE bf16\n"})


def test_the_fsdp2_trainer_of_mindspeed_is_not_taken_for_another(tmp_path: Path) -> None:
    text = "model: {model_id: x}\nparallel:\n  fsdp_modules: [a]\ndata:\n  cutoff_len: 4096\n"
    with pytest.raises(InputError, match="MindSpeed-LLM's FSDP2 trainer"):
        job(tmp_path, {"a.yaml": text}, model="qwen3-8b")


def test_gpt2s_own_vocabulary_goes_before_that_of_a_model_of_the_same_shape(tmp_path: Path) -> None:
    # OPT 13B's shape, whose 50272 rows it would take; 50257 padded to a multiple of 128
    text = GPT.replace("--num-layers 8 --hidden-size 1024 --num-attention-heads 16", "")
    text = text.replace("--vocab-size 32000", "--vocab-file /data/gpt2-vocab.json --merge-file m")
    own = "--num-layers 40 --hidden-size 5120 --num-attention-heads 40"
    assert job(tmp_path, {"a.sh": f"#!/bin/bash\n{text} {own}\n"}).model.vocab == 393 * 128


LLM = """#!/bin/bash
torchrun --nproc_per_node 8 --nnodes 1 finetune.py --tensor_model_parallel_size 4 \\
  --pipeline_model_parallel_size 2 --model_name llama2 --bf16 --global_batch_size 64 \\
  --micro_batch_size 2 --seq_length 4096 --use_checkpoint_args --glu_activation swiglu \\
  --use_rms_norm --sequence_parallel --recompute_granularity selective
"""


def test_megatron_llm_spells_with_underscores(tmp_path: Path) -> None:
    # 8 devices / (4 × 2): one replica, 64 / 2 forwards
    read = job(tmp_path, {"a.sh": LLM}, model="llama-2-7b")
    found = plan(read)
    assert (found.tp, found.pp, found.dp, found.accumulation, found.remat) == (
        *(4, 2, 1, 32, "selective"),
    )
    assert (read.precision.value.weights, found.sequence_parallel) == ("bf16", True)
    with pytest.raises(InputError, match="--use-checkpoint-args takes --num-layers"):
        job(tmp_path, {"a.sh": LLM})


def test_several_jobs_of_a_script_are_counted(tmp_path: Path) -> None:
    text = f"#!/bin/bash\nfor TP in 1 2 4; do\n  {GPT} --tensor-model-parallel-size $TP\ndone\n"
    read = job(tmp_path, {"a.sh": text})
    assert plan(read).tp == 4
    assert ("jobs of the script", "3") in [(what, value) for what, value, _ in read.assumed]


def test_a_script_behind_nohup_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"train\.sh, which it names"):
        job(tmp_path, {"a.sh": "N=8\nnohup X=4 bash train.sh dsw $N > log 2>&1 &\n"})


BRIDGE = """
import argparse, importlib
from megatron.bridge.recipes.llama import llama3_8b_pretrain_config, llama3_70b_pretrain_config
from megatron.bridge.recipes import llama as recipes
from megatron.bridge.training.pretrain import pretrain
%s
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", default="8b")
    args = parser.parse_args()
    %s
    cfg = make()
    cfg.train.global_batch_size = 64
    pretrain(config=cfg, forward_step_func=step)
if __name__ == "__main__":
    main()
"""
FUNCTIONS = 'T = {"8b": llama3_8b_pretrain_config, "70b": llama3_70b_pretrain_config}'


@pytest.mark.parametrize(
    ("table", "chosen"),
    [
        (FUNCTIONS, "make = T.get(args.size)"),
        ("", "make = getattr(recipes, 'llama3_' + args.size + '_pretrain_config', None)"),
        (
            "M = importlib.import_module('m.llama')",
            "make = getattr(M, f'llama3_{args.size}_pretrain_config')",
        ),
        (
            'T = {"70b": lambda: llama3_70b_pretrain_config()}',
            "make = T.get(args.size, llama3_8b_pretrain_config)",
        ),
    ],
)
def test_a_recipe_that_an_argument_chooses(tmp_path: Path, table: str, chosen: str) -> None:
    program = BRIDGE % (table, chosen)
    assert job(tmp_path, {"train.py": program}).model.n_layers == 32
    run = "#!/bin/bash\ntorchrun --nproc_per_node 8 --nnodes 4 train.py --size 70b\n"
    read = job(tmp_path, {"run.sh": run, "train.py": program})
    assert (read.model.n_layers, read.devices and read.devices.value) == (80, 32)


def test_mindspeed_counts_shared_experts(tmp_path: Path) -> None:
    words = (
        "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --vocab-size 128 "
        "--max-position-embeddings 64 --micro-batch-size 1 --global-batch-size 8 --bf16 --swiglu "
        "--ffn-hidden-size 128 --num-experts 4 --moe-router-topk 2 --moe-ffn-hidden-size 32 "
    )
    run = "#!/bin/bash\ntorchrun --nproc_per_node 8 pretrain_gpt.py " + words
    read = job(tmp_path, {"b.sh": run + "--n-shared-experts 2\n"})
    assert [getattr(layer.mlp, "shared_width", None) for layer, _ in read.model.layers] == [64]
