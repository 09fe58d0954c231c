"""Megatron-LM launch scripts are read the way Megatron documents its arguments."""

from pathlib import Path

import pytest

from chipshift.errors import InputError
from chipshift.jobs.complete import resolve_machine
from chipshift.jobs.job import Assumed, Given, TrainJob
from chipshift.jobs.read import read_job
from chipshift.machines.names import parse_machine
from chipshift.models.count import params
from chipshift.models.model import MoeMlp
from chipshift.models.preset import preset

SCRIPT = """#!/bin/bash
export NCCL_IB_TIMEOUT=22
NNODES=4
ARGS=(
    --num-layers 32
    --hidden-size 4096
    --ffn-hidden-size 14336
    --num-attention-heads 32
    --group-query-attention
    --num-query-groups 8
    --seq-length 8192
    --position-embedding-type rope
    --normalization RMSNorm
    --swiglu
    --disable-bias-linear
    --untie-embeddings-and-output-weights
    --vocab-size 128256
    --tensor-model-parallel-size 2
    --pipeline-model-parallel-size 2
    --sequence-parallel
    --use-distributed-optimizer
    --micro-batch-size 1
    --global-batch-size 128
    --bf16
)
torchrun --nproc_per_node 8 --nnodes $NNODES pretrain_gpt.py ${ARGS[@]} --lr 1e-4
"""


def job(tmp_path: Path, text: str, **settings: str) -> TrainJob:
    file = tmp_path / "job.sh"
    file.write_text(text)
    return read_job([str(file)], overrides=settings)


def swap(old: str, new: str) -> str:
    assert old in SCRIPT
    return SCRIPT.replace(old, new)


def test_a_plain_script(tmp_path: Path) -> None:
    read = job(tmp_path, SCRIPT)
    assert read.plan is not None and read.devices is not None
    plan = read.plan.value
    # 4 nodes × 8; dp = 32 / (2 × 2) = 8; 128 sequences / (1 × 8) = 16 forwards
    assert (read.devices.value, plan.dp, plan.tp, plan.pp) == (32, 8, 2, 2)
    assert (plan.microbatch, plan.accumulation) == (1, 16)
    assert (plan.optimizer_sharding, plan.remat, plan.schedule) == ("zero1", "none", "1f1b")
    assert plan.sequence_parallel
    precision = read.precision.value
    assert (precision.weights, precision.gradients, precision.master) == ("bf16", "fp32", "fp32")
    assert [flag.key for flag in read.flags if flag.kind == "nccl"] == ["NCCL_IB_TIMEOUT"]


def test_arguments_make_the_model_they_describe(tmp_path: Path) -> None:
    read = job(tmp_path, SCRIPT)
    shipped = preset("llama-3.1-8b")
    assert read.model.layers == shipped.layers
    assert params(read.model) == params(shipped)


def test_gpt3_has_learned_positions_biases_and_layer_norms(tmp_path: Path) -> None:
    text = """torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 2 --hidden-size 64 \\
      --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32 --vocab-size 100 \\
      --micro-batch-size 1 --fp16
    """
    read = job(tmp_path, text)
    # a layer: qkv 3·64² + 3·64, out 64² + 64, up 64·256 + 256, down 256·64 + 64, 2 norms of 2·64
    layer = 3 * 64**2 + 3 * 64 + 64**2 + 64 + 64 * 256 + 256 + 256 * 64 + 64 + 4 * 64
    # tokens: 100 rows padded to 128 (head tied), positions 32·64, last norm 2·64
    assert params(read.model) == 2 * layer + 128 * 64 + 32 * 64 + 2 * 64
    assert read.precision.value.compute == "fp16"
    assert "loss_scaler" in {flag.kind for flag in read.flags}
    # without a global batch it is microbatch × dp, and dp waits for the machine
    assert read.batch_open
    assert resolve_machine(read, parse_machine("h100*16")).sequences_per_step.value == 16


@pytest.mark.parametrize(
    ("path", "model", "devices", "degrees"),
    [
        ("examples/llama3-70b-megatron.sh", "llama-3-70b", 512, (16, 8, 4, 4, 1)),
        ("examples/mixtral-8x7b-megatron.sh", "mixtral-8x7b", 128, (32, 1, 4, 2, 8)),
        ("examples/deepseek-v3-megatron.sh", "deepseek-v3", 1024, (64, 1, 16, 1, 64)),
    ],
)
def test_shipped_scripts(
    path: str, model: str, devices: int, degrees: tuple[int, int, int, int, int]
) -> None:
    read = read_job([path])
    assert read.plan is not None
    plan = read.plan.value
    assert (plan.dp, plan.tp, plan.pp, plan.vpp, plan.ep) == degrees
    assert read.machine is not None and read.machine.value == f"h100*{devices}"
    own = preset(model)
    # the vocabulary is padded to a multiple of 128 × tp, in the embedding and in the head:
    # 128,256 at tp = 8 is 125.25 × 1,024 and becomes 126 × 1,024; the others are such multiples
    rows = {"llama-3-70b": 126 * 1024 - 128256}.get(model, 0)
    assert params(read.model) == params(own) + 2 * rows * own.d_model
    assert not [entry for entry in read.ignored if entry.matters]


def test_a_default_of_the_environment_leaves_the_machine_open(tmp_path: Path) -> None:
    read = job(tmp_path, swap("NNODES=4", "NNODES=${SLURM_NNODES:-1}"))
    assert isinstance(read.devices, Assumed) and read.plan_open == "dp"
    on = resolve_machine(read, parse_machine("h100*64"))
    assert on.plan is not None and on.plan.value.dp == 16


def test_a_machine_that_contradicts_the_script_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"job.sh:3 puts the job on 32 devices, but h100.*64"):
        resolve_machine(job(tmp_path, SCRIPT), parse_machine("h100*64"))
    read = job(tmp_path, SCRIPT, NNODES="8")
    assert resolve_machine(read, parse_machine("h100*64")).plan_open == ""


def test_slurm_directives_give_nodes_and_chip(tmp_path: Path) -> None:
    head = "#!/bin/bash\n#SBATCH -N 8\n#SBATCH --gres=gpu:h200:8\n"
    read = job(tmp_path, head + swap("NNODES=4", "NNODES=$SLURM_JOB_NUM_NODES"))
    assert read.machine == Given("h200*64", str(tmp_path / "job.sh"), 3)


@pytest.mark.parametrize(
    ("arguments", "remat"),
    [
        ("", "none"),
        ("--recompute-activations", "selective"),
        ("--recompute-granularity selective", "selective"),
        (
            "--recompute-granularity selective --recompute-modules layernorm moe_act",
            "custom:saved=qkv+attention+out_proj+up",
        ),
        (
            "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
            "full",
        ),
        # 32 layers over 2 stages = 16 a stage
        ("--recompute-granularity full --recompute-method block --recompute-num-layers 16", "full"),
        (
            "--recompute-granularity full --recompute-method block --recompute-num-layers 6",
            "full:6/16",
        ),
        # and 2 chunks of 8 layers a stage, of each of which 3 run again
        (
            "--num-layers-per-virtual-pipeline-stage 8 --recompute-granularity full "
            "--recompute-method block --recompute-num-layers 3",
            "full:3/8",
        ),
        ("--recompute-granularity full --recompute-method block --recompute-num-layers 0", "none"),
    ],
)
def test_recompute_spellings(tmp_path: Path, arguments: str, remat: str) -> None:
    read = job(tmp_path, swap("--bf16", f"--bf16 {arguments}"))
    assert read.plan is not None and read.plan.value.remat == remat


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("--fp8-format hybrid", ("fp8", "", "fp32", "fp32")),
        ("--fp8-format hybrid --fp8-param-gather", ("fp8", "fp8", "fp32", "fp32")),
        # by way of the gradients' buffer, whatever the weights are kept in
        (
            "--fp8-format e4m3 --fp8-recipe mxfp8 --fp8-param-gather",
            ("fp8", "bf16", "fp32", "fp32"),
        ),
        ("--grad-reduce-in-bf16", ("bf16", "", "bf16", "fp32")),
        (
            "--use-precision-aware-optimizer --main-grads-dtype bf16 --exp-avg-dtype bf16 "
            "--exp-avg-sq-dtype bf16",
            ("bf16", "", "bf16", "bf16"),
        ),
        # the second moment stays fp32: the wider is taken for both
        ("--use-precision-aware-optimizer --exp-avg-dtype bf16", ("bf16", "", "fp32", "fp32")),
    ],
)
def test_precision_spellings(
    tmp_path: Path, arguments: str, expected: tuple[str, str, str, str]
) -> None:
    precision = job(tmp_path, swap("--bf16", f"--bf16 {arguments}")).precision.value
    found = (precision.compute, precision.gather, precision.gradients, precision.moments)
    assert found == expected


@pytest.mark.parametrize(
    ("arguments", "axis", "sharding"),
    [
        ("--use-torch-fsdp2", "fsdp", "none"),
        (
            "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params",
            "fsdp",
            "none",
        ),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads", "dp", "zero2"),
    ],
)
def test_sharding_spellings(tmp_path: Path, arguments: str, axis: str, sharding: str) -> None:
    read = job(tmp_path, swap("--use-distributed-optimizer", arguments))
    assert read.plan is not None
    assert getattr(read.plan.value, axis) == 8
    assert read.plan.value.optimizer_sharding == sharding


def test_fully_shard_reduces_gradients_as_the_weights_are(tmp_path: Path) -> None:
    # Megatron gives PyTorch's fully_shard no mixed-precision policy
    read = job(tmp_path, swap("--use-distributed-optimizer", "--use-torch-fsdp2"))
    precision = read.precision.value
    found = (precision.weights, precision.gradients, precision.reduce, precision.master)
    assert found == ("bf16", "bf16", "bf16", "fp32")


def test_virtual_stages_in_both_spellings(tmp_path: Path) -> None:
    # 32 layers over 2 stages = 16 a stage; 4 layers a chunk = 4 chunks
    for arguments in (
        "--num-layers-per-virtual-pipeline-stage 4",
        "--num-virtual-stages-per-pipeline-rank 4",
    ):
        read = job(tmp_path, swap("--bf16", f"--bf16 {arguments}"))
        assert read.plan is not None
        assert (read.plan.value.vpp, read.plan.value.schedule) == (4, "interleaved")


def test_key_value_heads_are_copied_where_tp_is_a_multiple_of_them(tmp_path: Path) -> None:
    text = swap("--tensor-model-parallel-size 2", "--tensor-model-parallel-size 16")
    read = job(tmp_path, text)
    assert read.plan is not None and read.plan.value.dp == 1


def test_a_file_of_settings_without_a_command_is_read(tmp_path: Path) -> None:
    text = SCRIPT[: SCRIPT.index("torchrun")]
    read = job(tmp_path, text)
    assert read.plan_open == "dp" and read.model.n_layers == 32


def test_crlf_tabs_and_a_byte_order_mark_change_nothing(tmp_path: Path) -> None:
    file = tmp_path / "job.sh"
    file.write_bytes(b"\xef\xbb\xbf" + SCRIPT.replace("    ", "\t").replace("\n", "\r\n").encode())
    assert read_job([str(file)]).plan == job(tmp_path, SCRIPT).plan


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("--num-layers 32", "--num-layers $L", r"job.sh:5: num-layers is \$L, which nothing sets"),
        ("--num-layers 32", "--num-layers -3", r"num-layers is -3; expected a whole number"),
        ("--num-layers 32", "", r"gives no --num-layers; expected it, --set num-layers=N"),
        ("--vocab-size 128256", "--vocab-size nan", r"vocab-size is nan; expected a whole"),
        ("--micro-batch-size 1", "--micro-batch-size 3", r"128 sequences is not a multiple of"),
        ("-size 2\n    --seq", "-size 3\n    --seq", r"tp=3 × pp=2 = 6 does not divide 32"),
        ("--pipeline-model-parallel-size 2", "--pipeline-model-parallel-size 5", r"layers cannot"),
        ("--swiglu", "--swiglu --num-experts 4 --moe-layer-freq [0]*99", r"moe-layer-freq is"),
    ],
)
def test_each_mistake_is_one_sentence(tmp_path: Path, old: str, new: str, message: str) -> None:
    old = "--tensor-model-parallel-size 2" if old.startswith("-size") else old
    new = "--tensor-model-parallel-size 3" if new.startswith("-size") else new
    if "tp=3" in message:
        message = r"32 attention heads|does not divide"
    if "layers cannot" in message:
        message = r"layers cannot|does not divide"
    with pytest.raises(InputError, match=message) as caught:
        job(tmp_path, swap(old, new))
    assert "\n" not in str(caught.value)


PATCHED = """MODEL_SIZE=$1
TP=$2
if [ $MODEL_SIZE = 0.5B ]; then
  LAYERS=24; EXTRA=293
elif [ $MODEL_SIZE = 7B ]; then
  LAYERS=28; EXTRA=421
fi
torchrun --nproc_per_node 8 pretrain_qwen.py --num-layers $LAYERS --hidden-size 3584 \\
  --num-attention-heads 28 --num-query-groups 4 --group-query-attention --ffn-hidden-size 18944 \\
  --swiglu --normalization RMSNorm --disable-bias-linear --add-qkv-bias --seq-length 2048 \\
  --position-embedding-type rope --untie-embeddings-and-output-weights --micro-batch-size 1 \\
  --tensor-model-parallel-size $TP --extra-vocab-size $EXTRA --bf16 --global-batch-size 64 \\
  --patch-tokenizer-type Qwen2Tokenizer --max-position-embeddings 32768
"""


def test_a_scripts_own_arguments_are_asked_for_and_taken(tmp_path: Path) -> None:
    file = tmp_path / "run.sh"
    file.write_text(PATCHED)
    with pytest.raises(InputError, match=r"--set args='\.\.\.', .*\(\$1 is MODEL_SIZE\)"):
        read_job([str(file)])
    job = read_job([str(file)], overrides={"args": "7B 4"})
    # Qwen2's tokenizer has 151643 entries; 421 rows are added
    assert (job.model.n_layers, job.model.vocab) == (28, 151643 + 421)
    plan = resolve_machine(job, parse_machine("h100*8")).plan
    assert plan is not None and (plan.value.tp, plan.value.dp) == (4, 2)


def test_layers_of_a_hybrid_are_refused_by_their_own_key(tmp_path: Path) -> None:
    file = tmp_path / "run.sh"
    file.write_text(
        "python pretrain_hybrid.py --hybrid-layer-pattern M-M* --hidden-size 64 --seq-length 8 \\\n"
        "  --num-attention-heads 4 --micro-batch-size 1\n"
    )
    with pytest.raises(InputError, match=r"run\.sh:1: --hybrid-layer-pattern lays out state-space"):
        read_job([str(file)])


def test_a_vision_towers_key_is_no_misspelt_one(tmp_path: Path) -> None:
    file = tmp_path / "run.sh"
    file.write_text(PATCHED.replace("--bf16", "--bf16 --patch-size 16"))
    job = read_job([str(file)], overrides={"args": "7B 1"})
    assert any(entry.key == "patch-size" and entry.matters for entry in job.ignored)


FORK = """#!/bin/bash
ZERO=1
config_json="ds.$SLURM_JOBID.json"
cat <<EOT > $config_json
{"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": $ZERO}}
EOT
ARGS="--num-layers 4 --hidden-size 64 --num-attention-heads 4 --num-key-value-heads 2 \\
  --seq-length 128 --max-position-embeddings 128 --vocab-file v.json --micro-batch-size 2 \\
  --global-batch-size 32 --fp16 --checkpoint-activations EXPERTS"
srun bash -c 'python -m torch.distributed.launch --nproc_per_node 8 --nnodes 1 pretrain_gpt.py \\
  $ARGS --deepspeed --deepspeed_config $config_json --zero-stage 0'
"""


def fork(folder: Path, experts: str = "", text: str = FORK) -> TrainJob:
    file = folder / "run.sh"
    file.write_text(text.replace("EXPERTS", experts))
    return resolve_machine(read_job([str(file)]), parse_machine("a100*8"))


def test_megatron_deepspeed_keeps_to_its_deepspeed_file(tmp_path: Path) -> None:
    job = fork(tmp_path)
    assert job.plan is not None
    # the file that the script writes says stage 1; the argument's 0 is only a default
    assert (job.plan.value.optimizer_sharding, job.plan.value.dp) == ("zero1", 8)
    assert job.plan.value.remat == "full"  # each layer whole, as --checkpoint-activations was
    kinds = {flag.kind for flag in job.flags}
    assert "deepspeed" in kinds and "transformer_engine" not in kinds
    whole = fork(tmp_path, text=FORK.replace("ZERO=1", "ZERO=3"))
    assert whole.plan is not None and (whole.plan.value.fsdp, whole.plan.value.dp) == (8, 1)


def test_megatron_deepspeeds_experts_sit_in_every_second_layer(tmp_path: Path) -> None:
    sparse = fork(tmp_path, "--num-experts 8 --moe-expert-parallel-size 4")
    kinds = [layer.mlp for layer, count in sparse.model.layers for _ in range(count)]
    routed = [mlp for mlp in kinds if isinstance(mlp, MoeMlp)]
    assert len(routed) == 2 and routed[0].experts == 8 and routed[0].top_k == 1
    assert sparse.plan is not None and sparse.plan.value.ep == 4
    attention = sparse.model.layers[0][0].attention
    assert attention is not None and attention.kv_heads == 2
    dense = fork(tmp_path, "--num-experts 1 --moe-loss-coeff 0.01 --moe-expert-parallel-size 1")
    assert not any(isinstance(layer.mlp, MoeMlp) for layer, _ in dense.model.layers)
    mixed = fork(tmp_path, "--num-experts 8 16 --mlp-type residual")
    told = {entry.key: entry.why for entry in mixed.ignored if entry.matters}
    assert "8, 16 experts" in told["num-experts"] and "mlp-type" in told


def test_a_language_models_own_length_beside_an_image_encoders(tmp_path: Path) -> None:
    text = SCRIPT.replace("--seq-length 8192", "--seq-length 576 --decoder-seq-length 2048")
    assert job(tmp_path, text).seq_len.value == 2048


def test_tasks_of_a_bert_and_programs_that_do_not_train(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="trains 'BERT for MNLI'"):
        job(tmp_path, SCRIPT.replace("pretrain_gpt.py", "tasks/main.py --task MNLI"))
    found = job(tmp_path, SCRIPT.replace("pretrain_gpt.py", "tools/text_generation_server.py"))
    assert any(one.matters and "trains nothing" in one.why for one in found.ignored)
    assert not [one for one in job(tmp_path, SCRIPT).ignored if "trains nothing" in one.why]


def test_deepspeeds_sequence_parallelism_cuts_sequences(tmp_path: Path) -> None:
    more = "--ds-sequence-parallel-size 4 --deepspeed --zero-stage 1 --lr 1e-4"
    found = job(tmp_path, SCRIPT.replace("--lr 1e-4", more))
    assert found.plan is not None and found.plan.value.cp == 4
    assert found.plan.value.cp_kind == "all_to_all"


@pytest.mark.parametrize(
    ("skip", "near"),
    [("", 32), ("--window-attn-skip-freq 4", 24), ("--window-attn-skip-freq ([1,0]*16)", 16)],
)
def test_windows_of_some_layers_and_sinks(tmp_path: Path, skip: str, near: int) -> None:
    more = f"--lr 1e-4 --window-size '(128, 0)' {skip.replace('(', chr(92) + '(')} "
    more = more.replace("*16)", "*16" + chr(92) + ")") + "--softmax-type learnable"
    found = job(tmp_path, SCRIPT.replace("--lr 1e-4", more)).model
    windows = [layer.attention.window for layer, count in found.layers for _ in range(count)]
    # 128 keys before its own; every fourth layer sees all, or every second one of the list
    assert (windows.count(129), windows.count(None)) == (near, 32 - near)
    # a sink a head in each of 32 layers
    assert params(found) == params(preset("llama-3.1-8b")) + 32 * 32
    if near == 24:
        order = [found.layers[kind][0].attention.window for kind in found.layer_order]
        assert order[:5] == [129, 129, 129, None, 129]


def test_a_list_of_windows_of_another_length_is_refused(tmp_path: Path) -> None:
    more = "--lr 1e-4 --window-size 128,0 --window-attn-skip-freq [1,0]"
    with pytest.raises(InputError, match="expected a number, or a list of 32 zeros and ones"):
        job(tmp_path, SCRIPT.replace("--lr 1e-4", more))


def test_the_null_tokenizer_has_one_row_more_than_it_is_told(tmp_path: Path) -> None:
    """128,256 and the end of document: 128,257, padded to 502 × 128 × tp = 128,512."""
    plain = job(tmp_path, SCRIPT).model
    null = job(tmp_path, swap("--lr 1e-4", "--lr 1e-4 --tokenizer-type NullTokenizer")).model
    assert (plain.vocab, null.vocab) == (128_256, 128_512)
    assert plain.name == null.name


def test_a_static_loss_scale_is_not_called_dynamic(tmp_path: Path) -> None:
    scalers = {}
    for flags in ("--fp16", "--fp16 --loss-scale 1024"):
        read = job(tmp_path, swap("--bf16", flags))
        scalers[flags] = [f.value for f in read.flags if f.kind == "loss_scaler"]
    assert scalers["--fp16"] == ["dynamic"]
    assert len(scalers["--fp16 --loss-scale 1024"]) == 1
    assert str(scalers["--fp16 --loss-scale 1024"][0]) == "1024"
