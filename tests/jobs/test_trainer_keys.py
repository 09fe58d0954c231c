"""Keys of the Trainer, TRL, Accelerate, DeepSpeed and Lightning: each is read or said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chipshift.jobs.job import TrainJob
from chipshift.jobs.read import read_job

from .test_further_publishers import several
from .test_program_files import matters
from .test_started_programs import flagged

TRAINER = """model_name_or_path: gpt2
per_device_train_batch_size: 2
max_length: 512
bf16: true
gradient_checkpointing: false
"""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("accelerator_config: {split_batches: true}", "accelerator_config.split_batches"),
        ("load_in_4bit: true", "trains no quantised weights alone"),
        ("use_logits_to_keep: true", "use_logits_to_keep"),
        ("teacher_model_name_or_path: gpt2-large", "teacher_model_name_or_path"),
        ("cp_size: 2", "cp_size"),
        ("fsdp: full_shard", "whole model at once"),
    ],
)
def test_trainers_keys_that_are_said(tmp_path: Path, line: str, said: str) -> None:
    assert said not in matters(read_job(several(tmp_path, own__yaml=TRAINER)))
    assert said in matters(read_job(several(tmp_path, own__yaml=f"{TRAINER}{line}\n")))


def test_a_wrapped_model_is_gathered_by_layer(tmp_path: Path) -> None:
    for line in ("fsdp: full_shard auto_wrap", "fsdp: full_shard\nfsdp_transformer_layer_cls: X"):
        found = read_job(several(tmp_path, own__yaml=f"{TRAINER}{line}\n"))
        assert "whole model at once" not in matters(found)


def test_trainers_keys_that_are_read(tmp_path: Path) -> None:
    def read(lines: str) -> TrainJob:
        return read_job(several(tmp_path, own__yaml=TRAINER + lines))

    assert "compile" in flagged(read("torch_compile_mode: max-autotune\n"))
    assert read("model_init_kwargs: {torch_dtype: bfloat16}\n").precision.value.weights == "bf16"
    # the pair's table has no stage: ZeRO 0 of DeepSpeed, with its fp32 master weights
    engine = read("deepspeed: {bf16: {enabled: true}, train_micro_batch_size_per_gpu: auto}\n")
    assert (engine.stack.value, engine.precision.value.master) == ("deepspeed", "fp32")
    distilled = read("teacher_model_name_or_path: gpt2-large\n")
    assert distilled.teacher is not None and distilled.teacher.name == "gpt2-large"


def test_a_reference_of_its_own_beside_adapters(tmp_path: Path) -> None:
    pairs = TRAINER + "beta: 0.1\nloss_type: sigmoid\nuse_peft: true\nlora_r: 8\n"
    assert read_job(several(tmp_path, own__yaml=pairs)).reference == "base"
    own = read_job(several(tmp_path, own__yaml=pairs + "force_use_ref_model: true\n"))
    assert own.reference not in ("base", "none")


GO = "deepspeed --num_gpus 8 t.py --model_name_or_path gpt2 --max_length 512 \\\n"
GO += "  --per_device_train_batch_size 2 --deepspeed ds.json\n"


def engine(tmp_path: Path, **more: object) -> TrainJob:
    zero = {"stage": 2, **{k.removeprefix("zero_"): v for k, v in more.items() if k[:5] == "zero_"}}
    table = {"bf16": {"enabled": True}, "zero_optimization": zero}
    table |= {k: v for k, v in more.items() if k[:5] != "zero_"}  # type: ignore[dict-item]
    return read_job(several(tmp_path, go__sh=GO, ds__json=json.dumps(table)))


def test_deepspeeds_keys_that_are_read(tmp_path: Path) -> None:
    narrow = {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}
    found = engine(tmp_path, bf16=narrow).precision.value
    assert (found.master, found.moments) == ("bf16", "bf16")
    assert "cpu_offload" in flagged(engine(tmp_path, zero_cpu_offload=True))  # of older releases
    assert "cpu_offload" not in flagged(engine(tmp_path, zero_cpu_offload=False))
    kept = engine(tmp_path, activation_checkpointing={"cpu_checkpointing": True})
    assert "activation_offload" in flagged(kept)


def test_lomo_keeps_no_second_copy_of_the_weights(tmp_path: Path) -> None:
    words = GO.replace(" --deepspeed", " --bf16 --optim lomo --deepspeed")
    table = '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}'
    found = read_job(several(tmp_path, go__sh=words, ds__json=table))
    assert (found.optimizer.value, found.precision.value.master) == ("lomo", "none")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("elasticity", {"enabled": True}),
        ("autotuning", {"enabled": True}),
        ("eigenvalue", {"enabled": True}),
        ("fp16_master_weights_and_grads", True),
        ("zero_zenflow", {"topk_ratio": 0.1}),
        ("zero_super_offload", True),
        ("zero_zero_quantized_nontrainable_weights", True),
    ],
)
def test_deepspeeds_keys_that_are_said(tmp_path: Path, key: str, value: object) -> None:
    assert key.removeprefix("zero_") in matters(engine(tmp_path, **{key: value}))
    off = {"enabled": False} if isinstance(value, dict) and "enabled" in value else False
    assert key.removeprefix("zero_") not in matters(engine(tmp_path, **{key: off}))


ACCELERATE = "distributed_type: KIND\nmixed_precision: bf16\nnum_processes: 8\n"


def launched(tmp_path: Path, kind: str, more: str = "") -> TrainJob:
    launch = ACCELERATE.replace("KIND", kind) + more
    return read_job(several(tmp_path, acc__yaml=launch, own__yaml=TRAINER))


def test_accelerate_without_a_distribution_starts_one_process(tmp_path: Path) -> None:
    alone, many = launched(tmp_path, "'NO'"), launched(tmp_path, "MULTI_GPU")
    assert alone.devices is not None and many.devices is not None
    assert (alone.devices.value, many.devices.value) == (1, 8)


def test_accelerates_megatron_splits_no_sequence_unless_told(tmp_path: Path) -> None:
    table = "megatron_lm_config:\n  megatron_lm_tp_degree: 2\n"
    found = launched(tmp_path, "MEGATRON_LM", table)
    assert found.plan is not None and not found.plan.value.sequence_parallel
    found = launched(tmp_path, "MEGATRON_LM", f"{table}  megatron_lm_sequence_parallelism: true\n")
    assert found.plan is not None and found.plan.value.sequence_parallel


@pytest.mark.parametrize(
    ("kind", "more", "said"),
    [
        ("TP", "", "older Accelerate"),
        ("FSDP", "fsdp_config:\n  fsdp_auto_wrap_policy: NO_WRAP\n", "whole model at once"),
        ("FSDP", "fsdp_config:\n  fsdp_ignored_modules: lm_head\n", "leaves whole"),
        ("DEEPSPEED", "deepspeed_config:\n  deepspeed_inclusion_filter: w:0,1\n", "filter leaves"),
    ],
)
def test_accelerates_keys_that_are_said(tmp_path: Path, kind: str, more: str, said: str) -> None:
    assert said in matters(launched(tmp_path, kind, more))


def test_accelerates_older_word_for_a_compiler(tmp_path: Path) -> None:
    assert "compile" in flagged(launched(tmp_path, "MULTI_GPU", "dynamo_backend: INDUCTOR\n"))


SCRIPT = """import lightning as L
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("gpt2")
loader = DataLoader(tokenize(rows, max_length=512), batch_size=4)
L.Trainer(devices=8, ARGS).fit(model, loader)
"""


@pytest.mark.parametrize(
    "args",
    [
        "callbacks=[GradientAccumulationScheduler({0: 8})]",
        "callbacks=[BatchSizeFinder()]",
        'auto_scale_batch_size="power"',
    ],
)
def test_lightnings_callbacks_that_change_a_step_are_said(tmp_path: Path, args: str) -> None:
    text = SCRIPT.replace("ARGS", args)
    found = read_job(several(tmp_path, own__py=text), overrides={"seq_len": "512"})
    assert any(word in matters(found) for word in ("Scheduler", "Finder", "auto_scale"))
