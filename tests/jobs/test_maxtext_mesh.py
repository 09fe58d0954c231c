"""MaxText's axes of -1, inside a slice and across slices, filled by the machine."""

from pathlib import Path

import pytest

from chipshift.errors import InputError
from chipshift.jobs.complete import resolve_machine
from chipshift.jobs.job import TrainJob
from chipshift.jobs.read import read_job
from chipshift.jobs.write import to_toml
from chipshift.machines.names import parse_machine

from .test_formats import value_of

DENSE = "model_name: llama3.1-8b\nper_device_batch_size: 2\nmax_target_length: 4096\n"
SPARSE = DENSE.replace("llama3.1-8b", "mixtral-8x7b")


def read(folder: Path, text: str, name: str = "job.yml", **settings: str) -> TrainJob:
    (folder / name).write_text(text)
    return read_job([str(folder / name)], overrides=settings)


def on(job: TrainJob, machine: str, *degrees: str) -> tuple[object, ...]:
    placed = resolve_machine(job, parse_machine(machine))
    return tuple(value_of(placed, f"plan.{degree}") for degree in degrees)


def test_slices_replicate_and_fsdp_takes_what_a_slice_has(tmp_path: Path) -> None:
    job = read(tmp_path, DENSE)
    assert (job.plan_open, job.slices_open) == ("fsdp", "dp")
    assert on(job, "v6e:16x16", "dp", "fsdp") == (1, 256)
    assert on(job, "v6e:16x16*2", "dp", "fsdp") == (2, 256)
    placed = resolve_machine(job, parse_machine("v6e:16x16*2"))
    assert placed.sequences_per_step.value == 2 * 512


def test_nodes_of_gpus_are_slices(tmp_path: Path) -> None:
    assert on(read(tmp_path, DENSE), "h100*16", "dp", "fsdp") == (2, 8)


def test_degrees_across_slices_are_taken_out_of_them(tmp_path: Path) -> None:
    job = read(tmp_path, DENSE + "dcn_fsdp_parallelism: 2\n")
    # four slices: two of them shard together, twice; 256 chips shard in each
    assert on(job, "v6e:16x16*4", "dp", "fsdp") == (2, 512)
    with pytest.raises(InputError, match="multiply to 2, which does not divide the 3"):
        on(job, "v6e:16x16*3", "dp")


def test_experts_take_the_rest_as_a_part_of_fsdp(tmp_path: Path) -> None:
    job = read(tmp_path, SPARSE + "ici_fsdp_parallelism: 4\nici_expert_parallelism: -1\n")
    assert job.plan_open == "ep"
    # 32 chips: fsdp 4 × expert 8, all of which shard weights here
    assert on(job, "v6e:4x8", "fsdp", "ep") == (32, 8)
    assert on(job, "v6e:4x8*2", "dp", "fsdp", "ep") == (2, 32, 8)
    assert resolve_machine(job, parse_machine("v6e:4x8")).sequences_per_step.value == 2 * 32
    told = read(tmp_path, SPARSE + "ici_fsdp_parallelism: 4\nici_expert_parallelism: -1\n", ep="8")
    assert on(told, "v6e:4x8*2", "dp", "fsdp", "ep") == (2, 32, 8)


def test_a_replica_of_more_devices_runs_more_sequences(tmp_path: Path) -> None:
    job = read(tmp_path, DENSE + "ici_fsdp_parallelism: 4\nici_tensor_parallelism: -1\n")
    # 2 sequences on each of 8 devices of a replica
    assert on(job, "v6e:4x8", "fsdp", "tp", "microbatch") == (4, 8, 16)
    told = read(tmp_path, DENSE + "ici_fsdp_parallelism: 4\nici_tensor_parallelism: -1\n", tp="8")
    assert on(told, "v6e:4x8", "fsdp", "tp", "microbatch") == (4, 8, 16)
    context = read(tmp_path, DENSE + "ici_fsdp_parallelism: 8\nici_context_parallelism: -1\n")
    assert on(context, "v6e:4x8", "fsdp", "cp", "microbatch") == (8, 4, 8)


def test_stages_across_slices(tmp_path: Path) -> None:
    text = DENSE + "dcn_data_parallelism: 1\ndcn_pipeline_parallelism: -1\n"
    # four slices are four stages, which cut the batch into as many microbatches of 2 × 256
    job = read(tmp_path, text)
    assert on(job, "v6e:16x16*4", "pp", "fsdp", "microbatch", "accumulation") == (4, 256, 2, 4)
    with pytest.raises(InputError, match="num_pipeline_microbatches is 8; expected -1 beside"):
        read(tmp_path, text + "num_pipeline_microbatches: 8\n")


def test_two_axes_of_one_network_cannot_both_take_the_rest(tmp_path: Path) -> None:
    text = SPARSE + "ici_tensor_parallelism: -1\nici_expert_parallelism: -1\n"
    with pytest.raises(InputError, match="ici_expert_parallelism is -1 and so is ici_tensor"):
        read(tmp_path, text)
    # the default's -1 gives way to one that the file states, and that is said
    job = read(tmp_path, SPARSE + "ici_expert_parallelism: -1\n")
    assert job.plan_open == "ep"
    assert any(what == "ici_fsdp_parallelism" for what, _, _ in job.assumed)


def test_slices_that_the_launch_tells(tmp_path: Path) -> None:
    command = (
        "xpk workload create --tpu-type=v6e-256 --num-slices=2 --command "
        '"python3 MaxText/train.py MaxText/configs/base.yml model_name=llama3.1-8b '
        'per_device_batch_size=2 max_target_length=4096"\n'
    )
    job = read(tmp_path, command, "run.sh")
    assert (value_of(job, "plan.dp"), value_of(job, "plan.fsdp")) == (2, 256)
    keys = read(tmp_path, DENSE + "num_slices: 2\n")
    assert on(keys, "v6e:16x16*2", "dp", "fsdp") == (2, 256)


@pytest.mark.parametrize("more", ["", "ici_fsdp_parallelism: 4\nici_tensor_parallelism: -1\n"])
def test_the_native_file_leaves_the_same_axes_open(tmp_path: Path, more: str) -> None:
    job = read(tmp_path, DENSE + more)
    again = read(tmp_path, to_toml(job), "again.toml")
    names = ("dp", "fsdp", "tp", "microbatch")
    assert (again.plan_open, again.slices_open) == (job.plan_open, job.slices_open)
    assert on(again, "v6e:4x8*2", *names) == on(job, "v6e:4x8*2", *names)


def test_a_custom_mesh_of_rings(tmp_path: Path) -> None:
    mesh = "ici_fsdp_parallelism: 64\nici_tensor_parallelism: 4\ncustom_mesh: hybrid_ring_64x4\n"
    job = read(tmp_path, DENSE + mesh)
    assert on(job, "v6e:16x16", "fsdp", "tp", "rings") == (64, 4, 4)
    (tmp_path / "native.toml").write_text(to_toml(job))
    again = read_job([str(tmp_path / "native.toml")])
    assert on(again, "v6e:16x16", "fsdp", "tp", "rings") == (64, 4, 4)
    assert on(read(tmp_path, DENSE + "custom_mesh: ''\n"), "v6e:16x16", "rings") == (0,)
    with pytest.raises(InputError, match="hybrid_ring_64x4"):
        read(tmp_path, DENSE + mesh.replace("64x4", "64x5"))
