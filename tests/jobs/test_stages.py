"""Pipelines whose stages hold different numbers of layers, as Megatron and torchtitan cut them."""

from pathlib import Path

import pytest

from chipshift.errors import InputError
from chipshift.jobs.job import TrainJob
from chipshift.jobs.plan import Plan
from chipshift.jobs.read import read_job
from chipshift.jobs.stages import of_layout, of_rows, of_splits, of_torchtitan, told, with_ends
from chipshift.jobs.stages import with_places as places

SCRIPT = """torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers {layers} --hidden-size 64 \\
  --num-attention-heads 4 --seq-length 32 --vocab-size 128 --micro-batch-size 1 \\
  --global-batch-size 64 --bf16 --use-rotary-position-embeddings \\
  --pipeline-model-parallel-size {pp} {more}
"""


def plan_of(folder: Path, layers: int, pp: int, more: str) -> Plan:
    file = folder / "run.sh"
    file.write_text(SCRIPT.format(layers=layers, pp=pp, more=more))
    plan = read_job([str(file)]).plan
    assert plan is not None
    return plan.value


def test_a_layout_is_unrolled_as_megatron_unrolls_it() -> None:
    # its own example: E and three layers; 29 times two; the multi-token layer; the loss
    assert of_layout("Ettt|(tt|)*29,m|L") == (3, *[2] * 29, 0, 0)
    assert of_layout("Et*3|(tt|)*29m|L") == (3, *[2] * 29, 0, 0)
    assert of_layout("E|t|t*2,L") == (0, 1, 2)
    assert of_rows([["embedding", "decoder"], ["decoder", "decoder", "loss"]]) == (1, 2)


@pytest.mark.parametrize("text", ["", "tt|tt", "Et|x|tL", "E(t|)*999999999|L", "E((t)*9)*9L", "9"])
def test_what_is_no_layout_is_none(text: str) -> None:
    assert of_layout(text) is None


def test_the_ends_are_as_stated_and_the_rest_is_even() -> None:
    assert with_ends(10, 4, 1, 2, 2) == (2, 3, 3, 2)
    assert with_ends(11, 4, 1, 2, None) == (2, 3, 3, 3)
    assert with_ends(12, 4, 1, 2, 3) is None  # 7 do not spread over 2
    # stages of 4, 8, 8, 4 in two chunks each
    assert with_ends(24, 4, 2, 4, 4) == (2, 4, 4, 2) * 2


def test_embedding_and_loss_take_a_layer_s_place() -> None:
    assert places(14, 4, 1, 1, 1) == (3, 4, 4, 3)
    assert places(15, 4, 1, 0, 1) == (4, 4, 4, 3)
    assert places(14, 2, 2, 1, 1) == (3, 4, 4, 3)  # the first and the last of four chunks


def test_torchtitan_lets_embedding_and_head_weigh_a_layer_each() -> None:
    # 32 + 1 + 1 over 8: 4 each and 2 left over for the first two; the ends give one away
    assert of_torchtitan(32, 8, 1, 1) == (4, 5, 4, 4, 4, 4, 4, 3)
    assert of_torchtitan(32, 8, 0, 0) == (4,) * 8
    assert of_splits(8, ["layers.3", "layers.6"]) == (3, 3, 2)
    assert of_splits(8, ["layers.6", "layers.3"]) is None


def test_a_table_shows_layers_by_stage() -> None:
    assert told((3, 2, 2, 0), 2) == "5 2"  # chunks 0 and 2 on the first stage, 1 and 3 on the last
    assert told((2, 3, 3, 2), 4) == "2 3×2 2"


@pytest.mark.parametrize(
    ("layers", "pp", "more", "chunks", "vpp"),
    [
        (10, 4, "--decoder-first-pipeline-num-layers 2 --decoder-last-pipeline-num-layers 2",
         (2, 3, 3, 2), 1),
        (14, 4, "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split",
         (3, 4, 4, 3), 1),
        (7, 2, "--pipeline-model-parallel-layout 'Ett|(tt|)*2,t|L'", None, 0),
        (9, 2, "--pipeline-model-parallel-layout 'Ettt|(tt|)*2,ttL'", (3, 2, 2, 2), 2),
        (8, 2, "--pipeline-model-parallel-layout 'E(tt|)*3ttL'", (), 2),
    ],
)  # fmt: skip
def test_megatron_scripts(
    tmp_path: Path, layers: int, pp: int, more: str, chunks: tuple[int, ...] | None, vpp: int
) -> None:
    if chunks is None:  # five chunks are no multiple of two stages
        with pytest.raises(InputError, match=r"pipeline-model-parallel-layout is .* multiple of 2"):
            plan_of(tmp_path, layers, pp, more)
        return
    plan = plan_of(tmp_path, layers, pp, more)
    assert (plan.stage_layers, plan.vpp) == (chunks, vpp)


def test_a_split_that_megatron_refuses_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="12 layers cannot be cut over pp=4"):
        plan_of(tmp_path, 12, 4, "--decoder-first-pipeline-num-layers 2 "
                "--decoder-last-pipeline-num-layers 3")  # fmt: skip
    with pytest.raises(InputError, match="expected 9 layers t; it has 8"):
        plan_of(tmp_path, 9, 2, "--pipeline-model-parallel-layout 'Etttt|ttttL'")


TITAN = """[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 8
seq_len = 64
[parallelism]
pipeline_parallel_degree = 8
"""


def titan(folder: Path, more: str) -> TrainJob:
    file = folder / "job.toml"
    file.write_text(TITAN + more)
    return read_job([str(file)])


@pytest.mark.parametrize(
    ("more", "chunks"),
    [
        ("", (4, 5, 4, 4, 4, 4, 4, 3)),
        ("pipeline_parallel_first_stage_less_layers = 0\n"
         "pipeline_parallel_last_stage_less_layers = 0\n", ()),
        ("pipeline_parallel_split_points = ['layers.1', 'layers.5', 'layers.9', 'layers.13',"
         " 'layers.17', 'layers.21', 'layers.25']\n", (1, 4, 4, 4, 4, 4, 4, 7)),
        ("module_fqns_per_model_part = [['tok_embeddings', 'layers.0'], "
         + ", ".join(str([f"layers.{n}" for n in range(1 + 4 * i, 5 + 4 * i)]) for i in range(6))
         + f", {[f'layers.{n}' for n in range(25, 32)]}]\n", (1, 4, 4, 4, 4, 4, 4, 7)),
    ],
    ids=["default", "no weights", "split points", "module names"],
)  # fmt: skip
def test_torchtitan_files(tmp_path: Path, more: str, chunks: tuple[int, ...]) -> None:
    plan = titan(tmp_path, more).plan
    assert plan is not None and plan.value.stage_layers == chunks


def test_a_native_file_says_it_too(tmp_path: Path) -> None:
    from chipshift.jobs.write import to_toml

    job = titan(tmp_path, "")
    native = tmp_path / "native.toml"
    native.write_text(to_toml(job))
    again = read_job([str(native)])
    assert again.plan is not None and again.plan.value.stage_layers == (4, 5, 4, 4, 4, 4, 4, 3)
    native.write_text(to_toml(job).replace("[4, 5,", "[4, 4,"))
    with pytest.raises(InputError, match="stage_layers gives 31 layers in 8 chunks; expected 32"):
        read_job([str(native)])


def test_weights_that_are_never_resharded_are_zero_2(tmp_path: Path) -> None:
    text = TITAN.replace("pipeline_parallel_degree = 8", "fsdp_reshard_after_forward = 'never'")
    file = tmp_path / "job.toml"
    file.write_text(text + "data_parallel_shard_degree = 8\n")
    job = read_job([str(file)])
    assert job.plan is not None
    plan, dtypes = job.plan.value, job.precision.value
    assert (plan.dp, plan.fsdp, plan.optimizer_sharding) == (8, 1, "zero2")
    # whole bf16 weights; the fp32 shards that FSDP gathers from are the master copy
    assert (dtypes.weights, dtypes.master, dtypes.gather) == ("bf16", "fp32", "")
    assert job.sequences_per_step.value == 8 * 8


def test_hpz_is_said_in_bytes(tmp_path: Path) -> None:
    file = tmp_path / "ds.json"
    file.write_text(
        '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true},'
        ' "zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}}'
    )
    job = read_job([str(file)], model="llama-3.1-8b", overrides={"seq_len": "64"})
    (why,) = [why for what, _, why in job.assumed if what == "hpZ"]
    assert "adds 1.9 GiB a device" in why  # 8.03e9 parameters × 2 bytes / 8 devices
