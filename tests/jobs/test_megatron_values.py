"""Megatron's arguments for what changes a model's values and no shape."""

from __future__ import annotations

from pathlib import Path

from chipshift.jobs.read import read_job
from chipshift.models.numerics import Numerics
from chipshift.models.rope import Rope

SHAPE = (
    "torchrun pretrain_gpt.py --num-layers 2 --hidden-size 256 --num-attention-heads 4 "
    "--ffn-hidden-size 512 --seq-length 1024 --micro-batch-size 1 --global-batch-size 8 "
    "--vocab-size 1024 --normalization RMSNorm --position-embedding-type rope --bf16"
)


def values(folder: Path, more: str) -> Numerics:
    (folder / "run.sh").write_text(f"{SHAPE} {more}\n")
    found = read_job([str(folder / "run.sh")]).model.numerics
    assert found is not None
    return found


def test_megatrons_defaults(tmp_path: Path) -> None:
    found = values(tmp_path, "")
    assert (found.rope, found.norm_eps, found.activation) == (Rope(10000.0), 1e-5, "gelu")


def test_llama_3s_base_scaling_and_epsilon(tmp_path: Path) -> None:
    more = "--rotary-base 500000 --use-rope-scaling --norm-epsilon 1e-6 --swiglu"
    found = values(tmp_path, more)
    assert found.rope == found.local_rope == Rope(5e5, "llama3", 8.0, 1.0, 4.0, 8192)
    assert (found.norm_eps, found.activation) == (1e-6, "silu")


def test_how_deepseeks_experts_are_chosen(tmp_path: Path) -> None:
    more = (
        "--num-experts 8 --moe-router-topk 2 --moe-router-score-function sigmoid --swiglu "
        "--moe-router-topk-scaling-factor 2.5 --moe-router-num-groups 4 --moe-router-group-topk 2"
    )
    found = values(tmp_path, more)
    chosen = (found.router, found.router_scale, found.expert_groups, found.top_groups)
    assert chosen == ("sigmoid", 2.5, 4, 2)


def test_a_value_that_is_no_number_stops_nothing(tmp_path: Path) -> None:
    assert values(tmp_path, "--rotary-base many").rope == Rope(10000.0)
