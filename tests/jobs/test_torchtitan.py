"""torchtitan's job files are read the way torchtitan documents its keys."""

from pathlib import Path

import pytest

from chipshift.errors import InputError
from chipshift.jobs.complete import resolve_machine
from chipshift.jobs.job import Assumed, Given, TrainJob
from chipshift.jobs.read import read_job
from chipshift.machines.names import parse_machine

EXAMPLE = "examples/llama3-8b-torchtitan.toml"

BASE = """
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 2
seq_len = 8192
[parallelism]
tensor_parallel_degree = 1
"""


def job(tmp_path: Path, text: str, **settings: str) -> TrainJob:
    file = tmp_path / "job.toml"
    file.write_text(text)
    return read_job([str(file)], overrides=settings)


def test_the_example_is_llama_8b_on_all_128_devices_once_the_machine_is_named() -> None:
    read = read_job([EXAMPLE])
    assert (read.format, read.stack.value, read.machine) == ("torchtitan", "torchtitan", None)
    assert read.plan_open == "fsdp" and read.batch_open
    on = resolve_machine(read, parse_machine("h100*128"))
    assert on.plan is not None
    assert (on.plan.value.fsdp, on.plan.value.devices) == (128, 128)
    # 2 sequences a device × 128 devices, no accumulation
    assert on.sequences_per_step.value == 256
    assert on.plan.value.accumulation == 1


def test_values_carry_file_and_line() -> None:
    read = read_job([EXAMPLE])
    lines = Path(EXAMPLE).read_text().split("\n")
    assert isinstance(read.seq_len, Given)
    assert read.seq_len.line is not None and "seq_len" in lines[read.seq_len.line - 1]
    for entry in read.understood:
        assert entry.line is not None
        assert entry.key.rsplit(".", 1)[-1] in lines[entry.line - 1]


def test_every_key_of_the_file_is_accounted_for_once() -> None:
    read = read_job([EXAMPLE])
    accounted = [entry.key for entry in read.understood] + [entry.key for entry in read.ignored]
    keys = [line for line in Path(EXAMPLE).read_text().split("\n") if " = " in line]
    assert len(accounted) == len(set(accounted)) == len([k for k in keys if k[0] != "#"])


def test_mixed_precision_keeps_fp32_shards_and_gathers_bf16(tmp_path: Path) -> None:
    read = job(tmp_path, BASE)
    precision = read.precision.value
    assert isinstance(read.precision, Assumed)
    assert (precision.weights, precision.gather, precision.compute) == ("fp32", "bf16", "bf16")
    assert (precision.gradients, precision.moments, precision.master) == ("fp32", "fp32", "none")


def test_training_dtype_bfloat16_puts_everything_in_bf16(tmp_path: Path) -> None:
    precision = job(tmp_path, BASE + "[training2]\nx=1\n".replace("2", "_x")).precision.value
    assert precision.weights == "fp32"
    text = BASE.replace("seq_len = 8192", 'seq_len = 8192\ndtype = "bfloat16"')
    precision = job(tmp_path, text).precision.value
    assert (precision.weights, precision.gradients, precision.moments) == ("bf16", "bf16", "bf16")


def test_old_spellings_of_2024(tmp_path: Path) -> None:
    read = job(
        tmp_path,
        """
[model]
name = "llama3"
flavor = "8B"
[training]
batch_size = 1
seq_len = 4096
data_parallel_replicate_degree = 2
data_parallel_shard_degree = 16
tensor_parallel_degree = 4
compile = true
[experimental]
context_parallel_degree = 1
pipeline_parallel_degree = 1
enable_async_tensor_parallel = true
[activation_checkpoint]
mode = 'full'
[float8]
enable_float8_linear = true
enable_fsdp_float8_all_gather = true
""",
    )
    assert read.plan is not None
    plan = read.plan.value
    assert (plan.dp, plan.fsdp, plan.tp, plan.devices) == (2, 16, 4, 128)
    assert plan.remat == "full"
    # 1 sequence × 2 × 16 replicas
    assert read.sequences_per_step.value == 32
    assert (read.precision.value.compute, read.precision.value.gather) == ("fp8", "fp8")
    assert {flag.kind for flag in read.flags} == {"compile", "tp_overlap", "fp8_recipe"}


def test_a_global_batch_means_accumulation(tmp_path: Path) -> None:
    text = BASE.replace("seq_len = 8192", "seq_len = 8192\nglobal_batch_size = 1024")
    on = resolve_machine(job(tmp_path, text), parse_machine("h100*64"))
    assert on.plan is not None
    # 1024 = 2 × 64 × 8
    assert (on.plan.value.accumulation, on.sequences_per_step.value) == (8, 1024)


def test_a_global_batch_that_does_not_divide_is_refused(tmp_path: Path) -> None:
    text = BASE.replace("seq_len = 8192", "seq_len = 8192\nglobal_batch_size = 200")
    with pytest.raises(InputError, match="200 sequences is not a multiple of microbatch 2 × 64"):
        resolve_machine(job(tmp_path, text), parse_machine("h100*64"))


def test_within_a_pipeline_the_local_batch_is_the_microbatches(tmp_path: Path) -> None:
    text = BASE.replace("local_batch_size = 2", "local_batch_size = 16").replace(
        "tensor_parallel_degree = 1",
        'pipeline_parallel_degree = 4\npipeline_parallel_schedule = "Interleaved1F1B"',
    )
    on = resolve_machine(job(tmp_path, text), parse_machine("h100*64"))
    assert on.plan is not None
    plan = on.plan.value
    assert (plan.pp, plan.vpp, plan.schedule, plan.fsdp) == (4, 2, "interleaved", 16)
    # microbatches of one sequence: 16 forwards a step; 16 × 16 replicas
    assert (plan.microbatch, plan.accumulation) == (1, 16)
    assert on.sequences_per_step.value == 256


@pytest.mark.parametrize(
    ("mode", "option", "remat"),
    [
        ("none", "op", "none"),
        ("selective", "op", "selective_op"),
        ("selective", "1", "full"),
        ("selective", "2", "full:1/2"),
        ("full", "op", "full"),
    ],
)
def test_activation_checkpointing_spellings(
    tmp_path: Path, mode: str, option: str, remat: str
) -> None:
    text = BASE + f'[activation_checkpoint]\nmode = "{mode}"\nselective_ac_option = "{option}"\n'
    read = job(tmp_path, text)
    assert read.plan is not None and read.plan.value.remat == remat


def test_expert_parallelism_means_nothing_to_a_dense_model(tmp_path: Path) -> None:
    read = job(tmp_path, BASE + "expert_parallel_degree = 8\n")
    assert read.plan is not None and read.plan.value.ep == 1


def test_deepseek_v3_with_experts_over_tp(tmp_path: Path) -> None:
    text = BASE.replace("llama3", "deepseek_v3").replace("8B", "671B") + (
        "expert_parallel_degree = 64\nexpert_tensor_parallel_degree = 1\n"
    )
    on = resolve_machine(job(tmp_path, text), parse_machine("h100*512"))
    assert on.plan is not None
    assert (on.plan.value.ep, on.plan.value.etp, on.plan.value.fsdp) == (64, 1, 512)


def test_set_lays_over_the_files_own_keys(tmp_path: Path) -> None:
    read = job(tmp_path, BASE, **{"training.seq_len": "4096", "tp": "8"})
    assert read.seq_len == Given(4096, "--set")
    assert read.plan is not None and read.plan.value.tp == 8


def test_tp_of_the_node_is_flagged(tmp_path: Path) -> None:
    text = BASE.replace("tensor_parallel_degree = 1", "tensor_parallel_degree = 8")
    read = job(tmp_path, text)
    (flag,) = [flag for flag in read.flags if flag.kind == "node_of_8"]
    assert flag.line == 9


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("local_batch_size = 2", "local_batch_size = 0", "job.toml:6: .*is 0; expected a whole"),
        ("local_batch_size = 2", "local_batch_size = nan", "is nan; expected a whole number"),
        ("seq_len = 8192", "seq_len = -1", "seq_len is -1; expected"),
        ("seq_len = 8192", "seq_len = 1e300", "seq_len is 1e\\+300; expected"),
        ("seq_len = 8192", 'seq_len = "long"', "seq_len is long; expected a whole number"),
        ('"8B"', '"9B"', "job.toml:4: model.flavor: .*9B.*did you mean.*--model"),
        ("degree = 1", "degree = 3", "32 attention heads cannot be cut over tp=3"),
        ("degree = 1", "degree = 16", "8 key/value heads cannot be cut over tp=16"),
        ("[training]", "[training", "is not valid TOML"),
    ],
)
def test_each_mistake_is_one_sentence(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        job(tmp_path, BASE.replace(old, new))
    assert "\n" not in str(caught.value)


def test_a_misspelt_key_is_refused_and_one_farther_off_is_said_to_matter(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"job.toml:10: .*did you mean .*pipeline_parallel_degree"):
        job(tmp_path, BASE + "pipeline_paralel_degree = 4\n")
    read = job(tmp_path, BASE + "pipelin_paralel_degree = 4\n")  # two letters are lost
    (entry,) = [entry for entry in read.ignored if "paralel" in entry.key]
    assert entry.matters and "parallelism.pipeline_parallel_degree" in entry.why


def test_degrees_must_multiply_to_the_machine(tmp_path: Path) -> None:
    text = BASE + "data_parallel_shard_degree = 32\n"
    with pytest.raises(InputError, match=r"fsdp=32 = 32 devices, but the job runs on .*128"):
        resolve_machine(job(tmp_path, text), parse_machine("h100*128"))
    with pytest.raises(InputError, match=r"tp=8 = 8 does not divide .*; expected degrees"):
        text = BASE.replace("tensor_parallel_degree = 1", "tensor_parallel_degree = 8")
        resolve_machine(job(tmp_path, text), parse_machine("h100*4"))


def run_job(tmp_path: Path, script: str, *files: str, **settings: str) -> TrainJob:
    (tmp_path / "run.sh").write_text(script)
    for name in files:
        (tmp_path / name).write_text(BASE)
    paths = [str(tmp_path / name) for name in ("run.sh", *files)]
    return read_job(paths, overrides=settings)


def test_a_command_lines_minus_one_is_the_rest_as_in_the_file(tmp_path: Path) -> None:
    script = (
        "torchrun --nnodes 2 --nproc_per_node 8 -m torchtitan.train --job.config_file a.toml"
        " --parallelism.data_parallel_shard_degree=-1 --training.global_batch_size -1\n"
    )
    read = run_job(tmp_path, script, "a.toml")
    assert read.plan is not None and read.plan.value.fsdp == 16
    assert read.sequences_per_step.value == 2 * 16


def test_hyphens_and_no_are_spellings_of_the_command_line(tmp_path: Path) -> None:
    script = (
        "torchrun --nnodes 1 --nproc_per_node 8 -m torchtitan.train --job.config_file a.toml"
        " --training.local-batch-size 4 --parallelism.tensor-parallel-degree=2"
        " --compile.enable --compile.no-enable\n"
    )
    read = run_job(tmp_path, script, "a.toml")
    assert read.plan is not None
    plan = read.plan.value
    assert (plan.microbatch, plan.tp, plan.fsdp) == (4, 2, 4)
    assert "compile" not in {flag.kind for flag in read.flags}


def test_the_one_job_file_given_stands_in_for_the_scripts_own(tmp_path: Path) -> None:
    script = 'CONFIG_FILE=${CONFIG_FILE:-"./debug_model.toml"}\n'
    script += "torchrun --nproc_per_node=8 train.py --job.config_file ${CONFIG_FILE}\n"
    read = run_job(tmp_path, script, "a.toml")
    assert read.model.name == "llama-3.1-8b"
    said = {what: (value, why) for what, value, why in read.assumed}
    assert said["config file"][0] == "a.toml" and "debug_model.toml" in said["config file"][1]
    with pytest.raises(InputError, match="expected that file beside it"):
        run_job(tmp_path, script, "a.toml", "b.toml")


def test_moments_of_a_fork_have_their_own_dtype(tmp_path: Path) -> None:
    read = job(tmp_path, BASE + '[optimizer]\nname = "AdamW"\nstate_dtype = "bfloat16"\n')
    precision = read.precision.value
    assert (precision.moments, precision.weights) == ("bf16", "fp32")
