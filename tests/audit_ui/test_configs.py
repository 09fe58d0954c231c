"""Blockers outside Python, each with its line; look-alikes that are fine."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chipshift.audit.configs import ConfigHazard, config_hazards

RULES = {
    "flash_attn": "flash-attn-kernel",
    "xformers": "xformers-op",
    "cupy": "third-party-gpu-kernel",
    "gsplat": "third-party-gpu-kernel",
    "MinkowskiEngine": "third-party-gpu-kernel",
}


def found(name: str, text: str) -> list[tuple[str, int]]:
    return [(hazard.rule, hazard.line) for hazard in hazards(name, text)]


def hazards(name: str, text: str) -> tuple[ConfigHazard, ...]:
    return config_hazards(name, text, lambda package: RULES.get(package, ""))


def test_requirements_name_packages_as_they_are_installed() -> None:
    text = "torch>=2.1\nflash-attn==2.5  # fast\n# xformers\ncupy-cuda12x\nMinkowskiEngine\n"
    assert found("requirements.txt", text) == [
        ("flash-attn-kernel", 2),
        ("third-party-gpu-kernel", 4),
        ("third-party-gpu-kernel", 5),
    ]


def test_a_dependency_of_an_extra_is_low_and_names_the_extra() -> None:
    text = """[project]
dependencies = [
  "torch",
  "xformers[all]>=0.0.20; python_version > '3.8'",
]
[project.optional-dependencies]
fast = ["flash-attn"]
[tool.other]
note = "flash-attn"
"""
    required, optional = hazards("pyproject.toml", text)
    assert (required.rule, required.line, required.severity) == ("xformers-op", 4, None)
    assert (optional.rule, optional.line, optional.severity) == ("flash-attn-kernel", 7, "low")
    assert optional.optional == "the extra 'fast'"


def test_poetry_dependencies_are_read() -> None:
    text = '[tool.poetry.dependencies]\npython = "^3.10"\nflash-attn = "^2"\n'
    assert found("pyproject.toml", text) == [("flash-attn-kernel", 3)]


def test_an_image_that_installs_a_gpu_package_is_found_over_continued_lines() -> None:
    text = "FROM ubuntu\nRUN pip install -U \\\n  numpy \\\n  flash-attn && \\\n  echo xformers\n"
    assert found("docker/Dockerfile", text) == [("flash-attn-kernel", 4)]


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("torchrun --nproc_per_node=8 train.py", "node8-topology"),
        ("torchrun --nproc-per-node 8 train.py", "node8-topology"),
        ("#SBATCH --gres=gpu:a100:8", "node8-topology"),
        ("export CUDA_VISIBLE_DEVICES=0,1", "cuda-env"),
        ("NCCL_P2P_DISABLE=1 python train.py", "cuda-env"),
        ("export XLA_FLAGS='--xla_gpu_enable_latency_hiding_scheduler=true'", "jax-gpu-kernel"),
        ("deepspeed --num_nodes 2 train.py", "deepspeed-runtime"),
        ("python train.py --deepspeed ds.json", "deepspeed-runtime"),
        ("python train.py --fp16 --lr 1e-4", "fp16-cast"),
        ("python train.py --mixed_precision=fp16", "fp16-cast"),
        ("python train.py --optim adamw_bnb_8bit", "bitsandbytes"),
        ("python train.py --attn_implementation flash_attention_2", "flash-attn-kernel"),
        ("python train.py --dist-backend nccl", "nccl-backend"),
        ("python train.py --enable_xformers_memory_efficient_attention", "xformers-op"),
    ],
)
def test_a_launch_script_is_read_for_what_it_switches_on(line: str, rule: str) -> None:
    assert found("run.sh", f"set -e\n{line}\n") == [(rule, 2)]


@pytest.mark.parametrize(
    "line",
    [
        "torchrun --nproc_per_node=80 train.py",
        "torchrun --nproc_per_node=$NGPU train.py",
        "python train.py --batch_size 8 --bf16",
        "python train.py --mixed_precision=bf16",
        "echo $CUDA_VISIBLE_DEVICES",
        "# export NCCL_DEBUG=INFO",
        "pip install torch",
        "python train.py --no_fp16",
        "cd deepspeed && ls",
    ],
)
def test_look_alikes_in_a_launch_script_raise_nothing(line: str) -> None:
    assert found("run.sh", line + "\n") == []


def test_a_deepspeed_configuration_is_one_finding_and_its_fp16_another() -> None:
    text = """{
  "train_micro_batch_size_per_gpu": 4,
  "fp16": {
    "enabled": true
  },
  "zero_optimization": {"stage": 2}
}
"""
    engine, fp16 = hazards("ds.json", text)
    assert (engine.rule, engine.line, engine.places) == ("deepspeed-runtime", 2, (6,))
    assert (fp16.rule, fp16.line) == ("fp16-cast", 3)
    assert found("ds.json", text.replace("true", '"auto"'))[1:] == []


def test_an_accelerate_configuration_is_read() -> None:
    text = "distributed_type: DEEPSPEED\nmixed_precision: fp16\nnum_machines: 1\n"
    assert found("accelerate.yaml", text) == [("deepspeed-runtime", 1), ("fp16-cast", 2)]
    assert found("accelerate.yaml", "distributed_type: FSDP\nmixed_precision: bf16\n") == []


def test_a_model_configuration_is_read() -> None:
    lines = '{\n"attn_implementation": "flash_attention_2",\n"load_in_8bit": true,\n"fp16": false}'
    assert found("config.json", lines) == [("flash-attn-kernel", 2), ("bitsandbytes", 3)]


def test_variables_of_one_kind_are_one_finding_with_places() -> None:
    (hazard,) = hazards("run.sh", "export NCCL_DEBUG=INFO\nls\nexport NCCL_IB_HCA=mlx5\n")
    assert (hazard.line, hazard.places) == (1, (3,))


@given(
    name=st.sampled_from(["a.json", "pyproject.toml", "r.txt", "e.yml", "Dockerfile", "a.sh"]),
    text=st.text(max_size=200),
)
def test_any_text_is_read_without_an_error_and_lines_are_its_own(name: str, text: str) -> None:
    for hazard in hazards(name, text):
        assert 1 <= hazard.line <= len(text.splitlines())
