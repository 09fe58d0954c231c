"""Published records as jobs, plans and machines: the conventions that the sources differ in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chipshift.errors import InputError
from chipshift.estimate import estimate
from chipshift.estimate.setting import setting
from chipshift.estimate.stack import stack
from chipshift.estimate.switches import for_job
from chipshift.machines import parse_machine
from chipshift.models.model import DenseMlp, MoeMlp
from chipshift.validate.case import Case, Skip
from chipshift.validate.records import publisher_of, read_records, to_case
from chipshift.validate.rows import machine_of, model_of, precision_of, remat_of


def record(**changes: Any) -> dict[str, Any]:
    """A Llama-like record on 16 H100s; ``model`` and ``parallelism`` are merged."""
    row: dict[str, Any] = {
        "id": "r", "source": "NVIDIA/Megatron-LM:README.md@abc", "chip_key": "h100", "n_chips": 16,
        "slice_topology": None, "global_batch": 64, "tokens_per_step": 64 * 4096, "microbatch": 1,
        "remat": None, "remat_class": "none", "optimizer": "adam", "framework": "Megatron",
        "stack": "megatron", "dtype_class": "bf16", "notes": "", "quality": "A",
        "task": "pretrain", "scored_step_time_s": 1.5, "measured": {},
        "model": {"name": "m", "layers": 4, "d_model": 512, "heads": 8, "kv_heads": 2, "d_ff": 1536,
                  "vocab": 1000, "seq_len": 4096},
        "parallelism": {"dp": 4, "tp": 2, "pp": 2, "cp": 1, "zero": 1},
    }  # fmt: skip
    for key, value in changes.items():
        row[key] = {**row[key], **value} if key in ("model", "parallelism") else value
    return row


def case(**changes: Any) -> Case:
    found = to_case(record(**changes))
    assert isinstance(found, Case), found
    return found


def test_degrees_multiply_to_the_devices_and_the_batch_to_the_job() -> None:
    # dp 4 × tp 2 × pp 2 = 16 devices; 64 sequences over 4 replicas of 1 a forward: 16 forwards
    plan = case().plan
    assert (plan.devices, plan.global_batch, plan.accumulation) == (16, 64, 16)
    assert plan.optimizer_sharding == "zero1"


def test_a_missing_dp_takes_the_rest_and_is_marked() -> None:
    found = case(parallelism={"dp": None})
    assert found.plan.dp == 4
    assert any(what == "dp" for what, _, _ in found.inferred)


def test_a_stack_that_shards_gives_the_rest_to_fsdp() -> None:
    found = case(stack="paxml", parallelism={"dp": None, "tp": None, "pp": 1, "zero": None})
    assert (found.plan.dp, found.plan.fsdp) == (1, 16)


def test_a_printed_dp_that_leaves_ep_out_is_multiplied_by_it() -> None:
    # 16 devices / (tp 2 × pp 2) = 4 replicas = printed dp 1 × ep 4
    moe = {"experts": 8, "topk": 2}
    assert case(model=moe, parallelism={"dp": 1, "ep": 4}).plan.dp == 4


def maxtext(**changes: Any) -> Case:
    own: dict[str, Any] = {
        "stack": "maxtext", "chip_key": "v6e", "slice_topology": "4x4",
        "parallelism": {"dp": 1, "fsdp": 16, "tp": 1, "pp": 1}, "microbatch": 4,
    }  # fmt: skip
    return case(**own | changes)


def test_maxtexts_flags_say_how_experts_and_logits_are_cut() -> None:
    experts = {"experts": 8, "topk": 2}
    dealt = "megablox=False sparse_matmul=False capacity_factor=1.25 num_vocab_tiling=8"
    found = maxtext(model=experts, notes=dealt)
    mlp = found.job.model.layers[0][0].mlp
    assert isinstance(mlp, MoeMlp)
    assert mlp.capacity_factor == 1.25
    assert found.job.loss_chunks == 8
    plain = maxtext(model=experts, notes="megablox=True sparse_matmul=True").job
    mlp = plain.model.layers[0][0].mlp
    assert isinstance(mlp, MoeMlp)
    assert mlp.capacity_factor == 0.0
    assert plain.loss_chunks == 1


def test_maxtexts_moments_are_as_wide_as_its_weights() -> None:
    # optax makes them like the weights; mu_dtype unset
    assert maxtext(notes="weight_dtype=bfloat16").job.precision.value.moments == "bf16"
    assert maxtext(notes="weight_dtype=float32").job.precision.value.moments == "fp32"


@pytest.mark.parametrize(("kernel", "matmuls"), [("flash", 7.0), ("splash", 5.0)])
def test_pytorch_xlas_older_attention_makes_the_scores_twice_backward(
    kernel: str, matmuls: float
) -> None:
    found = maxtext(stack="torch_xla", notes=f"{kernel} attention", microbatch=None)
    constants = for_job(stack("torch_xla", "v6e"), found.job, "tpu")
    assert constants.attention_backward_matmuls == matmuls
    assert for_job(stack("maxtext", "v6e"), found.job, "tpu").attention_backward_matmuls == 5.0


def test_maxtexts_own_expert_axis_joins_fsdp() -> None:
    # fsdp 4 × ep 4 = 16 devices: 16 shards of the batch, experts over 4 of them
    found = case(
        stack="maxtext", model={"experts": 8, "topk": 2}, microbatch=4,
        parallelism={"dp": 1, "fsdp": 4, "tp": 1, "pp": 1, "ep": 4, "zero": None},
    )  # fmt: skip
    assert (found.plan.fsdp, found.plan.ep, found.plan.microbatch) == (16, 4, 4.0)


def test_a_dp_that_repeats_fsdp_is_dropped() -> None:
    parallelism = {"dp": 16, "fsdp": 16, "tp": 1, "pp": 1, "zero": 3}
    plan = case(stack="automodel", parallelism=parallelism).plan
    assert (plan.dp, plan.fsdp) == (1, 16)


def test_a_v7x_chip_is_two_devices_and_its_microbatch_is_a_devices() -> None:
    # 8 chips = 16 devices = fsdp 4 × cp 4; per_device_batch_size 0.25 × cp 4 = 1 a replica
    found = case(
        chip_key="v7x", n_chips=8, stack="maxtext", global_batch=4, tokens_per_step=4 * 4096,
        microbatch=0.25, slice_topology="2x2x2",
        parallelism={"dp": 1, "fsdp": 4, "tp": 1, "pp": 1, "cp": 4, "zero": None},
    )  # fmt: skip
    assert found.plan.devices == 16
    assert (found.plan.microbatch, found.plan.accumulation) == (1.0, 1)
    assert found.machine == "v7x:2x2x2"
    assert found.chips == 8


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"chip_key": "v3"}, "no machine file"),
        ({"scored_step_time_s": None}, "no step time"),
        ({"model": {"d_ff": None}}, "d_ff"),
        ({"tokens_per_step": None, "global_batch": None}, "global batch"),
        ({"n_chips": None}, "chips"),
    ],
)
def test_what_cannot_be_scored_says_why(changes: dict[str, Any], why: str) -> None:
    found = to_case(record(**changes))
    assert isinstance(found, Skip)
    assert why in found.why


def test_a_degree_that_does_not_divide_the_devices_is_left_out_and_marked() -> None:
    # 16 devices: tp 3 cannot be, pp 2 can, and dp takes the other 8
    found = case(parallelism={"tp": 3, "dp": None})
    assert (found.plan.tp, found.plan.pp, found.plan.dp) == (1, 2, 8)
    assert ("tp", "1", "the stated 3 does not divide 16 devices") in found.inferred


def test_experts_follow_the_first_dense_layers_and_every_second_layer() -> None:
    row = record(model={"experts": 8, "topk": 2, "moe_d_ff": 256, "first_dense_layers": 1})
    model = model_of(row)
    assert [type(model.layers[i][0].mlp) for i in model.layer_order] == [DenseMlp] + [MoeMlp] * 3
    row = record(model={"experts": 8, "topk": 1, "moe_every": 2, "shared_experts": 1})
    model = model_of(row)
    mlps = [model.layers[i][0].mlp for i in model.layer_order]
    assert [isinstance(mlp, MoeMlp) for mlp in mlps] == [False, True, False, True]
    assert isinstance(mlps[1], MoeMlp)
    assert mlps[1].shared_width == 1536


def test_maxtexts_own_block_has_attention_beside_the_feed_forward() -> None:
    own = model_of(record(model={"name": "maxtext-16B", "d_model": 512}))
    other = model_of(record(model={"name": "llama2-7b", "d_model": 512}))
    assert all(layer.side_by_side for layer, _ in own.layers)
    assert not any(layer.side_by_side for layer, _ in other.layers)
    # one norm of 512 weights a layer, not two
    assert (own.layers[0][0].norm_params, other.layers[0][0].norm_params) == (512, 1024)


@pytest.mark.parametrize(
    ("notes", "matmuls"),
    [
        ("read at commit 76bd53b0f (2023-12-15)", 7.0),  # JAX's flash kernel
        ("read at commit 76bd53b0f (2024-02-08)", 7.0),  # splash attention, two kernels
        ("read at commit 76bd53b0f (2025-02-08); flags: sa_use_fused_bwd_kernel=True", 5.0),
    ],
)
def test_two_backward_kernels_of_maxtext_each_make_the_scores(notes: str, matmuls: float) -> None:
    row = record(stack="maxtext", chip_key="v5e", notes=notes)
    found = to_case(row)
    assert isinstance(found, Case)
    s = setting(found.job, parse_machine("v5e:4x4"), "maxtext")
    assert s.stack.attention_backward_matmuls == matmuls


def test_a_mixed_window_model_sees_all_keys_every_few_layers() -> None:
    model = model_of(record(model={"name": "gpt-oss-20b", "sliding_window": 128}))
    windows = [model.layers[i][0].attention.window for i in model.layer_order]  # type: ignore[union-attr]
    assert windows == [128, None, 128, None]


@pytest.mark.parametrize(
    ("kind", "text", "policy"),
    [
        ("full", "remat_policy=full", "full"),
        (None, None, None),
        ("policy", "remat_policy=custom (decoder_layer_input=device, context=device, "
         "query_proj=device)", "custom:saved=attention+qkv"),
        ("offload", "remat_policy=custom (decoder_layer_input=offload, out_proj=offload)",
         "custom:offload=block_input+out_proj"),
        ("offload", "scan over layers + host offload", "offload:block_input"),
        ("policy", "minimal_flash/minimal_with_context", "minimal_with_context"),
    ],
)  # fmt: skip
def test_remat_in_the_words_of_the_estimate(kind: str, text: str, policy: str | None) -> None:
    assert remat_of(record(remat_class=kind, remat=text)) == policy


def test_an_unstated_remat_is_what_a_planner_would_try() -> None:
    found = case(remat_class=None)
    assert (found.remats[0], found.remats[-1]) == ("none", "full")
    assert any(what == "remat" for what, _, _ in found.inferred)


def test_stated_dtypes_override_the_stacks_defaults() -> None:
    row = record(stack="maxtext", optimizer="adamw; mu_dtype=bfloat16; grad_dtype=bfloat16")
    precision, _ = precision_of(row)
    assert (precision.moments, precision.gradients, precision.master) == ("bf16", "bf16", "none")


@pytest.mark.parametrize(
    ("chip", "chips", "topology", "name"),
    [
        ("h100", 512, None, "h100*512"),
        ("v6e", 256, "16x16", "v6e:16x16"),
        ("v6e", 512, "2 x v6e-256", "v6e:16x16*2"),
        ("v5e", 4096, "16 x (16x16) slice(s), DCN data parallel", "v5e:16x16*16"),
        ("v5p", 1024, "2 slice(s) of v5p-1024 = 512 chips each", "v5p:8x8x8*2"),
        ("v7x", 256, "4x8x8", "v7x:4x8x8"),
        ("v6e", 3072, "cloud-tpu-trillium-3072-maxtext", "v6e:16x16*12"),
        ("v4", 32, "v4-64 (32 chips)", "v4*32"),
    ],
)
def test_machines_are_read_from_the_topologys_text(
    chip: str, chips: int, topology: str | None, name: str
) -> None:
    row = record(chip_key=chip, n_chips=chips, slice_topology=topology)
    assert machine_of(row) == name


def test_lora_computes_no_gradient_of_the_base_weights() -> None:
    assert case(task="lora").job.trainable_fraction == 0.0


@pytest.mark.parametrize(
    ("line", "said"),
    [("{", "not a JSON object"), ("[1]", "a record"), ('{"id": "a"}', "'model' object")],
)
def test_a_file_that_holds_no_records_is_refused_by_line(
    tmp_path: Path, line: str, said: str
) -> None:
    file = tmp_path / "runs.jsonl"
    file.write_text(line + "\n")
    with pytest.raises(InputError, match=said):
        read_records(file)


@pytest.mark.parametrize(
    ("changes", "release"),
    [
        ({"framework": "Megatron-Core, NeMo 26.02", "notes": "NeMo container 26.02.01"}, "26.02"),
        ({"framework": "Megatron-Bridge", "notes": "NeMo container 26.02.01; x"}, "26.02.01"),
        ({"notes": "MLPerf Training v4.0, 3 run(s)"}, "24.04"),
        ({"framework": "Megatron-Core r0.8.0"}, "24.07"),
        ({"source": "arXiv:2205.05198 Table 5"}, "22.05"),
        ({"stack": "maxtext", "notes": "table dated 2026-08-06; flags"}, "26.08"),
        ({"stack": "maxtext", "notes": "recipe baseline, tag v25.02"}, "25.02"),
        ({"stack": "maxtext", "notes": "config read at commit 76bd53b0f (2023-12-15)"}, "23.12"),
        ({"stack": "torchtitan", "notes": "NeMo container 26.02"}, ""),
    ],
)
def test_a_release_is_read_from_what_the_source_says(changes: dict[str, Any], release: str) -> None:
    assert case(**changes).release == release


def test_who_names_deepep_spreads_its_experts_over_the_data_axis() -> None:
    # 16 devices / (tp 2 × pp 2) = 4 replicas; 8 experts spread over the 4
    moe = {"experts": 8, "topk": 2}
    found = case(model=moe, notes="TE + DeepEP")
    assert found.plan.ep == 4
    assert any(what == "ep" for what, _, _ in found.inferred)
    assert case(model=moe, parallelism={"ep": 2}, notes="TE + DeepEP").plan.ep == 2
    assert case(model=moe).plan.ep == 1


def test_virtual_stages_may_count_embedding_and_loss_as_layers() -> None:
    # 6 layers over 2 stages cut evenly thrice, 6 + 2 four times
    assert case(model={"layers": 6}, parallelism={"vpp": None}).plan.vpp == 4
    assert case(model={"layers": 6}, parallelism={"vpp": 1}).plan.vpp == 1


def test_mxfp8_is_told_from_8_bits_scaled_by_tensor() -> None:
    assert precision_of(record(dtype="mxfp8", dtype_class="fp8"))[0].compute == "mxfp8"
    assert (
        precision_of(record(dtype="fp8 (current scaling)", dtype_class="fp8"))[0].compute == "fp8"
    )


def test_frozen_weights_have_no_gradient_to_sum() -> None:
    def collectives(task: str) -> dict[str, float]:
        wide = {"d_model": 8192, "heads": 64, "kv_heads": 8, "d_ff": 28672}
        axes = {"dp": 2, "fsdp": 2, "zero": None}
        found = case(task=task, stack="torchtitan", model=wide, parallelism=axes)
        e = estimate(found.job, found.plan, parse_machine(found.machine), "torchtitan")
        return {axis: float(seconds) for axis, seconds in e.collectives_total.items()}

    frozen, trained = collectives("lora"), collectives("pretrain")
    # two gathers of bf16 weights are left of them and a scatter of fp32 gradients, twice their size
    assert frozen["fsdp"] == pytest.approx(trained["fsdp"] / 2, rel=0.1)
    assert frozen["dp"] < 0.1 * trained["dp"]


def test_a_publisher_is_a_repositorys_owner_or_a_site() -> None:
    assert publisher_of("NVIDIA/NeMo:docs/a.md@1f2#L3") == "NVIDIA"
    assert publisher_of("https://github.com/ROCm/TransformerEngine/issues/72") == "ROCm"
    assert publisher_of("https://docs.nvidia.com/nemo/a.html (stored copy)") == "docs.nvidia.com"
    assert publisher_of("arXiv:2406.00001") == "arXiv"
