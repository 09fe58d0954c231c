"""Training on preferences as TRL, axolotl, LLaMA-Factory and torchtune say it."""

from __future__ import annotations

from pathlib import Path

import pytest

from chipshift.errors import InputError
from chipshift.jobs.job import TrainJob
from chipshift.jobs.read import read_job
from chipshift.models.count import params

LLAMA = "model_name_or_path: meta-llama/Llama-3.1-8B\n"
TRL = LLAMA + "per_device_train_batch_size: 2\nmax_length: 1024\nbf16: true\ndtype: bfloat16\n"
TUNE = """
model:
  _component_: torchtune.models.llama3_1.{builder}
  {lora}
tokenizer: {{max_seq_len: 1024}}
batch_size: 4
loss: {{_component_: torchtune.rlhf.loss.{loss}}}
optimizer: {{_component_: torch.optim.AdamW}}
dtype: bf16
"""
LORA = "use_peft: true\nlora_r: 8\nlora_target_modules: [q_proj, v_proj]\n"


def read(tmp_path: Path, text: str, name: str = "job.yaml", **settings: str) -> TrainJob:
    file = tmp_path / name
    file.write_text(text)
    return read_job([str(file)], overrides=settings)


def microbatch(job: TrainJob) -> float:
    assert job.plan is not None
    return job.plan.value.microbatch


@pytest.mark.parametrize(
    ("more", "loss", "reference"),
    [
        ("beta: 0.1\n", "dpo", "bf16"),
        ("beta: 0.1\nprecompute_ref_log_probs: true\n", "dpo", "none"),
        ("loss_type: ipo\nmax_prompt_length: 512\n", "dpo", "bf16"),
        ("rpo_alpha: 1.0\n" + LORA, "dpo", "base"),
        ("desirable_weight: 1.0\n", "kto", "bf16"),
        ("desirable_weight: 1.0\nloss_type: apo_zero_unpaired\n", "bco", "bf16"),
        ("beta: 0.1\nmin_density_ratio: 0.5\n", "bco", "bf16"),
        ("loss_type: bco\n" + LORA, "bco", "base"),
        ("simpo_gamma: 0.5\nloss_type: simpo\n", "simpo", "none"),
        ("center_rewards_coefficient: 0.01\n", "reward", "none"),
        ("loss_type: dft\n", "lm", "none"),
        ("", "lm", "none"),
    ],
)
def test_trl_yaml(tmp_path: Path, more: str, loss: str, reference: str) -> None:
    job = read(tmp_path, TRL + more)
    assert (job.loss, job.reference) == (loss, reference)
    # a pair is two sequences
    assert microbatch(job) == (2 if loss in ("kto", "bco", "lm") else 4)


def test_a_key_that_several_losses_share_is_said_to_be_taken_for_dpos(tmp_path: Path) -> None:
    job = read(tmp_path, TRL + "beta: 0.1\n")
    (why,) = [why for what, value, why in job.assumed if value == "dpo"]
    assert "--set loss=NAME" in why
    other = read(tmp_path, TRL + "beta: 0.1\n", loss="orpo")
    assert (other.loss, other.reference, microbatch(other)) == ("orpo", "none", 4)


def test_what_is_set_is_in_sequences_as_it_stands(tmp_path: Path) -> None:
    assert microbatch(read(tmp_path, TRL + "beta: 0.1\n", microbatch="6")) == 6


SCRIPT = """
from trl import {config}, Trainer
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B", torch_dtype="bfloat16")
args = {config}(per_device_train_batch_size=1, max_length=512, bf16=True, output_dir="o"{more})
"""


@pytest.mark.parametrize(
    ("config", "more", "loss"),
    [
        ("DPOConfig", "", "dpo"),
        ("DPOConfig", ', loss_type="hinge"', "dpo"),
        ("KTOConfig", "", "kto"),
        ("ORPOConfig", "", "orpo"),
        ("CPOConfig", ', loss_type="simpo"', "simpo"),
        ("RewardConfig", "", "reward"),
        ("SFTConfig", "", "lm"),
    ],
)
def test_a_script_says_it_by_its_configuration(
    tmp_path: Path, config: str, more: str, loss: str
) -> None:
    assert read(tmp_path, SCRIPT.format(config=config, more=more), "train.py").loss == loss


@pytest.mark.parametrize(
    ("program", "loss"),
    [
        ("accelerate launch trl/scripts/dpo.py", "dpo"),
        ("accelerate launch examples/scripts/orpo.py", "orpo"),
        ("trl kto", "kto"),
        ("python examples/scripts/online_dpo.py", "lm"),
        ("python examples/scripts/reward_modeling.py", "reward"),
        ("trl sft", "lm"),
    ],
)
def test_a_command_says_it_by_its_program(tmp_path: Path, program: str, loss: str) -> None:
    text = (
        f"#!/bin/bash\n{program} --model_name_or_path meta-llama/Llama-3.1-8B --bf16 true "
        "--per_device_train_batch_size 2 --max_length 1024 --output_dir o"
    )
    text += "\n" if program == "trl sft" else " --beta 0.1\n"
    assert read(tmp_path, text, "run.sh").loss == loss


def test_a_program_beside_its_yaml_beats_the_guess_from_a_shared_key(tmp_path: Path) -> None:
    (tmp_path / "dpo.yaml").write_text(TRL + "beta: 0.1\n")
    (tmp_path / "run.sh").write_text("#!/bin/bash\ntrl orpo --config dpo.yaml\n")
    job = read_job([str(tmp_path / "run.sh"), str(tmp_path / "dpo.yaml")])
    assert (job.loss, job.reference, microbatch(job)) == ("orpo", "none", 4)


def test_a_runs_own_name_tells_losses_apart_that_share_their_keys(tmp_path: Path) -> None:
    job = read(tmp_path, TRL + "beta: 0.05\noutput_dir: data/zephyr-orpo-8b\n")
    assert job.loss == "orpo"
    assert [why for _, value, why in job.assumed if value == "orpo" and "output_dir" in why]
    # a part of a word is not the loss
    assert read(tmp_path, TRL + "beta: 0.05\nrun_name: scorpo\n").loss == "dpo"


@pytest.mark.parametrize(
    "text",
    [
        TRL + "num_generations: 8\n",
        TUNE.format(builder="llama3_1_8b", lora="", loss="GRPOSimpleLoss"),
        LLAMA + "stage: ppo\ncutoff_len: 512\nfinetuning_type: full\n"
        "per_device_train_batch_size: 1\nreward_model: saves/reward\n",
    ],
)
def test_training_that_samples_is_said_not_to_be_modelled(tmp_path: Path, text: str) -> None:
    job = read(tmp_path, text)
    assert job.loss == "lm"
    assert [why for _, _, why in job.assumed if "sampling them" in why and "not counted" in why]


FACTORY = LLAMA + "cutoff_len: 2048\nper_device_train_batch_size: 1\nbf16: true\nlora_target: all\n"


@pytest.mark.parametrize(
    ("more", "loss", "reference"),
    [
        ("stage: dpo\nfinetuning_type: lora\npref_loss: sigmoid\n", "dpo", "base"),
        ("stage: dpo\nfinetuning_type: lora\nref_model: path/to/sft\n", "dpo", "bf16"),
        (
            "stage: dpo\nfinetuning_type: lora\nref_model: path/to/sft\n"
            "ref_model_quantization_bit: 8\n",
            *("dpo", "int8"),
        ),
        ("stage: dpo\nfinetuning_type: full\ndeepspeed: ds_z3.json\n", "dpo", "bf16"),
        ("stage: dpo\nfinetuning_type: lora\npref_loss: orpo\n", "orpo", "none"),
        ("stage: dpo\nfinetuning_type: lora\npref_loss: simpo\n", "simpo", "none"),
        ("stage: kto\nfinetuning_type: lora\n", "kto", "base"),
        ("stage: rm\nfinetuning_type: lora\n", "reward", "none"),
        ("stage: sft\nfinetuning_type: lora\n", "lm", "none"),
    ],
)
def test_llama_factory(tmp_path: Path, more: str, loss: str, reference: str) -> None:
    job = read(tmp_path, FACTORY + more)
    assert (job.loss, job.reference) == (loss, reference)
    assert microbatch(job) == (1 if loss in ("kto", "lm") else 2)
    assert job.task == ("lora" if "lora\n" in more else "sft")


AXOLOTL = (
    "base_model: meta-llama/Llama-3.1-8B\nsequence_len: 2048\nmicro_batch_size: 2\nbf16: auto\n"
    "datasets: []\n"
)


@pytest.mark.parametrize(
    ("more", "loss", "reference"),
    [
        ("rl: dpo\n", "dpo", "bf16"),
        ("rl: ipo\nadapter: lora\nlora_r: 8\nlora_target_linear: true\n", "dpo", "base"),
        (
            "rl: dpo\nadapter: lora\nlora_r: 8\nlora_target_linear: true\n"
            "rl_adapter_ref_model: true\n",
            *("dpo", "bf16"),
        ),
        ("rl: kto\n", "kto", "bf16"),
        ("rl: orpo\norpo_alpha: 0.1\n", "orpo", "none"),
        ("rl: simpo\n", "simpo", "none"),
        ("reward_model: true\n", "reward", "none"),
    ],
)
def test_axolotl(tmp_path: Path, more: str, loss: str, reference: str) -> None:
    job = read(tmp_path, AXOLOTL + more)
    assert (job.loss, job.reference) == (loss, reference)


@pytest.mark.parametrize(
    ("builder", "kind", "loss", "reference"),
    [
        ("lora_llama3_1_8b", "DPOLoss", "dpo", "base"),
        ("llama3_1_8b", "DPOLoss", "dpo", "bf16"),
        ("lora_llama3_1_8b", "RSOLoss", "dpo", "base"),
        ("lora_llama3_1_8b", "SimPOLoss", "simpo", "none"),
    ],
)
def test_torchtune(tmp_path: Path, builder: str, kind: str, loss: str, reference: str) -> None:
    lora = "lora_attn_modules: [q_proj, v_proj]\n  lora_rank: 8" if "lora" in builder else ""
    job = read(tmp_path, TUNE.format(builder=builder, lora=lora, loss=kind), "8B_dpo.yaml")
    assert (job.loss, job.reference, microbatch(job)) == (loss, reference, 8)


ALIGNER = """
trainer: {num_nodes: 2, devices: 8, precision: bf16}
pretrained_checkpoint: {restore_from_path: /models/llama-3.1-8b.nemo}
model:
  micro_batch_size: 1
  global_batch_size: 64
  encoder_seq_length: 4096
  tensor_model_parallel_size: 4
  megatron_amp_O2: true
  KIND
  peft: {peft_scheme: SCHEME, lora_tuning: {adapter_dim: 16, target_modules: [attention_qkv]}}
  optim: {name: distributed_fused_adam}
"""


@pytest.mark.parametrize(
    ("kind", "scheme", "loss", "reference"),
    [
        ("dpo: {ref_policy_kl_penalty: 0.2, preference_loss: dpo}", "none", "dpo", "host"),
        ("dpo: {ref_policy_kl_penalty: 0.2, preference_loss: ipo}", "lora", "dpo", "base"),
        ("kto: {ref_policy_kl_penalty: 0.2}", "none", "dpo", "host"),
        ("reward_model_type: binary_ranking", "none", "reward", "none"),
    ],
)
def test_nemo_aligner(tmp_path: Path, kind: str, scheme: str, loss: str, reference: str) -> None:
    job = read(tmp_path, ALIGNER.replace("KIND", kind).replace("SCHEME", scheme))
    assert (job.model.name, job.loss, job.reference) == ("llama-3.1-8b", loss, reference)
    assert job.plan is not None
    # 64 pairs over 16 devices / tp 4 = 4 replicas of one pair each
    assert job.sequences_per_step.value == 2 * 64
    assert (job.plan.value.dp, job.plan.value.microbatch, job.plan.value.accumulation) == (4, 2, 16)


def test_nemo_aligners_ppo_samples(tmp_path: Path) -> None:
    job = read(
        tmp_path, ALIGNER.replace("KIND", "ppo: {entropy_bonus: 0.0}").replace("SCHEME", "none")
    )
    assert job.loss == "lm"
    assert [why for _, _, why in job.assumed if why.startswith("ppo is of training on answers")]


def test_a_reward_model_has_a_scalar_head_which_is_trained_beside_adapters(tmp_path: Path) -> None:
    text = TRL + "center_rewards_coefficient: 0.01\n"
    job = read(tmp_path, text + LORA)
    # Llama 3.1 8B without its head of 128,256 × 4,096, with a row of 4,096
    assert params(job.model) == 8_030_261_248 - 128256 * 4096 + 4096
    # rank 8 on q (4,096 → 4,096) and v (4,096 → 1,024) of 32 layers, and that row
    trained = 32 * 8 * (4096 + 4096 + 4096 + 1024) + 4096
    (said,) = [value for what, value, _ in job.assumed if what == "trained parameters"]
    assert said == f"{trained:,}"


NATIVE = "[model]\npreset = 'llama-3.1-8b'\n[job]\nseq_len = 16\nsequences_per_step = 4\n"


def test_a_native_file_counts_sequences(tmp_path: Path) -> None:
    job = read(tmp_path, NATIVE + "loss = 'dpo'\n", "job.toml")
    assert job.sequences_per_step.value == 4
    # nothing says a dtype: as the policy's weights
    assert (job.loss, job.reference) == ("dpo", "bf16")
    assert read(tmp_path, NATIVE + "loss = 'orpo'\n", "job.toml").reference == "none"
    # where no microbatch is stated it is one example
    left_open = NATIVE + "loss = 'dpo'\n[plan]\nopen = 'fsdp'\n"
    assert microbatch(read(tmp_path, left_open, "job.toml")) == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loss": "dpoo"}, r"--set loss is 'dpoo'; .*did you mean 'dpo'"),
        ({"loss": "dpo", "reference": "bf17"}, r"--set reference is 'bf17'; .*did you mean 'bf16'"),
        ({"loss": "dpo", "microbatch": "3"}, "3 sequences holds no whole examples of dpo, .* 2"),
        ({"loss": "dpo", "reference": "base"}, r"'base', .* but the job has no adapters"),
    ],
)
def test_each_mistake_is_one_sentence(
    tmp_path: Path, settings: dict[str, str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path, TRL, **settings)


def test_the_step_that_is_compiled_refuses_another_loss(tmp_path: Path) -> None:
    from chipshift.flows.compilation import request_of
    from chipshift.jobs.plan import Plan
    from chipshift.machines.names import parse_machine

    job = read(tmp_path, TRL + "beta: 0.1\n")
    with pytest.raises(InputError, match="the loss is dpo, but the step that is compiled"):
        request_of(job, Plan(fsdp=16), parse_machine("v6e:4x4"))


def test_no_plan_splits_a_pair(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from chipshift.cli.app import run

    file = tmp_path / "dpo.yaml"
    file.write_text(TRL + "beta: 0.1\n")
    on = ["--on", "h100*8"]
    assert run(["assess", str(file), *on, "--to", "v6e:4x4", "--fix", "microbatch=1"]) == 2
    assert "an example of dpo has 2 sequences" in capsys.readouterr().err
    assert run(["estimate", str(file), *on, "--plan", "fsdp=8,microbatch=1"]) == 2
    assert "holds no whole examples" in capsys.readouterr().err


def test_the_commands_show_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import json

    from chipshift.cli.app import run

    file = tmp_path / "dpo.yaml"
    file.write_text(TRL + "beta: 0.1\n")
    assert run(["read", str(file)]) == 0
    assert "adamw, dpo;" in capsys.readouterr().out
    for command in (["read"], ["estimate", "--on", "h100*8"]):
        assert run([command[0], str(file), *command[1:], "--json"]) == 0
        found = json.loads(capsys.readouterr().out)["job"]
        assert (found["loss"], found["reference"]) == ("dpo", "bf16")
    assert run(["assess", str(file), "--on", "h100*8", "--to", "v6e:4x4"]) == 0
    assert "DPO, 32,768 tokens a step" in " ".join(capsys.readouterr().out.split())
    explain = ["--on", "h100*8", "--explain", "model_flops_per_token"]
    assert run(["estimate", str(file), *explain]) == 0
    assert "reference_forwards" in capsys.readouterr().out
