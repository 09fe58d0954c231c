"""What real files do that no manual shows."""

import json
from pathlib import Path

import pytest

from chipshift.cli.app import run
from chipshift.errors import InputError
from chipshift.jobs.complete import resolve_machine
from chipshift.jobs.job import TrainJob
from chipshift.jobs.read import read_job
from chipshift.machines.names import parse_machine

SFT = """model_name_or_path: meta-llama/Llama-3.1-8B
max_seq_length: 2048
per_device_train_batch_size: 4
gradient_accumulation_steps: 2
bf16: true
"""


def job(folder: Path, text: str, name: str = "job.yaml", **settings: str) -> TrainJob:
    file = folder / name
    file.write_bytes(text.encode())
    return read_job([str(file)], overrides=settings)


@pytest.mark.parametrize(
    "text",
    [
        SFT,
        SFT.replace("\n", "\r\n"),
        "\ufeff" + SFT,
        SFT.replace("true", "'True'").replace(": 4", ": '4'").replace(": 2048", ": 2_048"),
        SFT.replace("true", "yes").replace(": 4", ": 4.0"),
        "# 学習設定: größe\n" + SFT,
        SFT.replace("bf16: true", "bf16:\ttrue"),
        "---\n" + SFT + "...\n",
        SFT.replace("per_device_train_batch_size", "per_gpu_train_batch_size"),
        SFT + "per_gpu_train_batch_size: 9\n",
    ],
    ids=["plain", "crlf", "bom", "quoted", "yes", "unicode", "tab", "markers", "old", "both"],
)  # fmt: skip
def test_the_same_settings_however_written(tmp_path: Path, text: str) -> None:
    read = job(tmp_path, text)
    assert read.plan is not None
    assert (read.plan.value.microbatch, read.plan.value.accumulation) == (4, 2)
    assert (read.seq_len.value, read.precision.value.compute) == (2048, "bf16")


def test_of_two_spellings_the_newer_wins_and_the_other_is_reported(tmp_path: Path) -> None:
    read = job(tmp_path, SFT + "per_gpu_train_batch_size: 9\n")
    (entry,) = [entry for entry in read.ignored if entry.key == "per_gpu_train_batch_size"]
    assert entry.matters and entry.line == 6 and "says 4 and was taken" in entry.why


def test_batches_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    config = {
        "train_batch_size": 100,
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 3,
        "zero_optimization": {"stage": 2},
    }
    with pytest.raises(InputError, match=r"global batch of 100 is not a multiple of .* = 12"):
        text = json.dumps(config)
        file = tmp_path / "ds.json"
        file.write_text(text)
        read_job([str(file)], model="llama-3.1-8b", overrides={"seq_len": "64"})


def test_the_three_batch_figures_tell_the_replicas(tmp_path: Path) -> None:
    config = {
        "train_batch_size": 96,
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 3,
        "zero_optimization": {"stage": 2},
    }
    file = tmp_path / "ds.json"
    file.write_text(json.dumps(config))
    read = read_job([str(file)], model="llama-3.1-8b", overrides={"seq_len": "64"})
    assert read.plan is not None and read.plan.value.dp == 8  # 96 / (4 × 3)
    with pytest.raises(InputError, match="dp=8 = 8 devices, but the job runs on"):
        resolve_machine(read, parse_machine("h100*16"))


def test_tp_larger_than_the_node_is_read_as_it_is(tmp_path: Path) -> None:
    text = (
        "[model]\nname = 'llama3'\nflavor = '405B'\n[training]\nlocal_batch_size = 2\n"
        "seq_len = 8192\n[parallelism]\ntensor_parallel_degree = 8\ncontext_parallel_degree = 4\n"
    )
    read = job(tmp_path, text, "job.toml")
    on = resolve_machine(read, parse_machine("h100*64"))
    assert on.plan is not None
    assert (on.plan.value.tp, on.plan.value.cp, on.plan.value.fsdp) == (8, 4, 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"per_device_train_batch_size": "x"},
            "per_device_train_batch_size is x; expected a whole",
        ),
        ({"seq_lenn": "4"}, "--set seq_lenn: no such key .* did you mean 'seq_len'"),
        ({"dp": "3", "devices": "8"}, "dp=3 = 3 devices, but the job runs on 8"),
    ],
)
def test_settings_are_checked_as_files_are(
    tmp_path: Path, settings: dict[str, str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        job(tmp_path, SFT, **settings)


def test_nodes_can_be_set(tmp_path: Path) -> None:
    read = job(tmp_path, SFT, nodes="2", devices_per_node="8")
    assert read.plan is not None and read.plan.value.dp == 16
    assert read.sequences_per_step.value == 4 * 2 * 16


@pytest.mark.parametrize("path", ["mixtral-8x7b-megatron.sh", "llama3-8b-torchtitan.toml"])
def test_the_native_file_estimates_to_the_same_numbers(
    tmp_path: Path, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def estimate(file: str) -> dict[str, object]:
        assert run(["estimate", file, "--on", "h100*128", "--json"]) == 0
        found: dict[str, object] = json.loads(capsys.readouterr().out)
        return {key: value for key, value in found.items() if key != "job"}

    assert run(["read", f"examples/{path}", "--toml"]) == 0
    native = tmp_path / "native.toml"
    native.write_text(capsys.readouterr().out)
    assert estimate(str(native)) == estimate(f"examples/{path}")


def test_an_exponent_without_digits_is_text_and_an_unnamed_variable_is_passed_over(
    tmp_path: Path,
) -> None:
    sft = tmp_path / "sft.yaml"
    text = "model_name_or_path: meta-llama/Llama-3.1-8B\nlearning_rate: e-5\nmax_length: 1024\n"
    sft.write_text(text + "per_device_train_batch_size: 1\noutput_dir: o\n")
    assert read_job([str(sft)]).seq_len.value == 1024
    pod = tmp_path / "pod.yaml"
    pod.write_text(
        "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - env:\n    - value: '1'\n"
        "    command: [torchrun, --nproc_per_node=8, train.py, --bf16, 'true',\n"
        "      --model_name_or_path, meta-llama/Llama-3.1-8B, --output_dir, o,\n"
        "      --per_device_train_batch_size, '2', --max_length, '512']\n"
    )
    job = read_job([str(pod)])
    assert (job.seq_len.value, job.devices and job.devices.value) == (512, 8)


def test_a_file_that_starts_itself_is_one_sentence(tmp_path: Path) -> None:
    text = "#!/bin/bash\naccelerate launch -m axolotl.cli.train configs/qlora.yml\n"
    with pytest.raises(InputError, match="starts itself"):
        job(tmp_path, text, "qlora.yml")


def test_a_tpu_slice_is_counted_by_its_topology(tmp_path: Path) -> None:
    # 4 × 4 × 4 = 64 chips of two devices each; 2 sequences on each device
    manifest = (
        "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nspec:\n  replicatedJobs:\n"
        "  - name: slice\n    replicas: 1\n    template:\n      spec:\n        parallelism: 16\n"
        "        completions: 16\n        template:\n          spec:\n            nodeSelector:\n"
        "              cloud.google.com/gke-tpu-accelerator: tpu7x\n"
        "              cloud.google.com/gke-tpu-topology: 4x4x4\n            containers:\n"
        "            - name: train\n              command: [bash, -c]\n              args:\n"
        "              - python3 -m MaxText.train MaxText/configs/base.yml\n"
        "                model_name=llama3.1-8b per_device_batch_size=2 ici_fsdp_parallelism=-1\n"
        "                max_target_length=4096\n"
        "              resources:\n                limits:\n                  google.com/tpu: 4\n"
    )
    found = job(tmp_path, manifest, "jobset.yaml")
    assert found.machine is not None and found.machine.value == "v7x:4x4x4"
    assert found.devices is not None and found.devices.value == 128
    assert found.sequences_per_step.value == 2 * 128


def test_nanogpt_takes_its_shape_from_the_weights_it_starts_from(tmp_path: Path) -> None:
    text = "init_from = 'gpt2-xl'\nbatch_size = 1\ngradient_accumulation_steps = 32\n"
    model = job(tmp_path, text, "finetune.py").model
    # GPT-2 XL: 48 layers of width 1600, vocabulary 50257
    assert (model.n_layers, model.d_model, model.vocab) == (48, 1600, 50257)


def test_nanogpt_train_script_itself_is_read(tmp_path: Path) -> None:
    text = (
        "import torch\nbatch_size = 12\nblock_size = 1024\ngradient_accumulation_steps = 5 * 8\n"
        "dtype = 'bfloat16' if torch.cuda.is_bf16_supported() else 'float16'\n"
        "meta = load()\nmeta_vocab_size = meta['vocab_size']\n"
    )
    found = job(tmp_path, text, "train.py")
    assert (found.sequences_per_step.value, found.model.vocab) == (12 * 40, 50304)
    assert found.precision.value.compute == "bf16"


def test_python_that_parses_its_arguments_asks_for_the_command(tmp_path: Path) -> None:
    text = (
        '"""Run:\npython sft.py --model_name_or_path x --per_device_train_batch_size 2\n"""\n'
        "from trl import SFTConfig, TrlParser\nparser = TrlParser((SFTConfig,))\n"
    )
    with pytest.raises(InputError, match=r"sft\.py is a Python script .* expected the command"):
        job(tmp_path, text, "sft.py")


LIGHTNING = """import lightning as L
from lightning.pytorch.strategies import *
from transformers import AutoModelForCausalLM
max_length = 1024
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B")
loader = DataLoader(data, batch_size=2)
trainer = L.Trainer({arguments}, precision="bf16-mixed")
"""


@pytest.mark.parametrize(
    ("arguments", "degrees"),
    [
        ("devices=8, strategy=FSDPStrategy(sharding_strategy='FULL_SHARD')", {"fsdp": 8}),
        ("devices=8, strategy=FSDPStrategy(sharding_strategy='SHARD_GRAD_OP')", {"dp": 8}),
        ("devices=8, strategy=FSDPStrategy(sharding_strategy='NO_SHARD')", {"dp": 8}),
        (
            "devices=8, num_nodes=2, strategy=FSDPStrategy(sharding_strategy='HYBRID_SHARD')",
            {"fsdp": 8, "dp": 2},
        ),
        ("devices=[4, 5, 6, 7], strategy='ddp'", {"dp": 4}),
        ("gpus=3, strategy='deepspeed_stage_3'", {"fsdp": 3}),
        ("devices='0, 1,', strategy='fsdp'", {"fsdp": 2}),
        ("devices='4', strategy='ddp_find_unused_parameters_true'", {"dp": 4}),
        ("devices=4, strategy='ddp'); FSDPStrategy(sharding_strategy='FULL_SHARD'", {"dp": 4}),
        ("devices=8, strategy=ModelParallelStrategy(tensor_parallel_size=4)", {"fsdp": 2, "tp": 4}),
    ],
)
def test_lightning_strategies(tmp_path: Path, arguments: str, degrees: dict[str, int]) -> None:
    found = job(tmp_path, LIGHTNING.format(arguments=arguments), "train.py")
    assert found.devices is not None
    found = resolve_machine(found, parse_machine(f"h100*{found.devices.value}"))
    assert found.plan is not None
    plan = found.plan.value
    shown = {"dp": plan.dp, "fsdp": plan.fsdp, "tp": plan.tp}
    assert shown == {"dp": 1, "fsdp": 1, "tp": 1} | degrees


def test_a_lightning_scripts_deepspeed_file_states_its_stage(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        LIGHTNING.format(arguments="devices=2, strategy=DeepSpeedStrategy(config='ds.json')")
    )
    stages = tmp_path / "ds.json"
    stages.write_text('{"zero_optimization": {"stage": 3}}')
    alone, both = read_job([str(script)]), read_job([str(script), str(stages)])
    assert any("give ds.json too" in why for _, _, why in alone.assumed)
    planned = resolve_machine(both, parse_machine("h100*2")).plan
    assert planned is not None and (planned.value.fsdp, planned.value.dp) == (2, 1)
    assert not both.ignored


def test_a_loaders_batch_may_stand_second(tmp_path: Path) -> None:
    text = LIGHTNING.format(arguments="devices=2, num_nodes=1").replace(
        "data, batch_size=2", "data, 32"
    )
    found = job(tmp_path, text, "train.py")
    assert found.sequences_per_step.value == 32 * 2


def test_devices_that_only_a_run_could_count(tmp_path: Path) -> None:
    text = LIGHTNING.format(arguments="devices=[int(d) for d in os.getenv('X').split(',')]")
    with pytest.raises(InputError, match="only a run could tell"):
        job(tmp_path, text, "train.py")


CONTAINER = """containers:
          - name: pytorch
            command: [python, train.py, --model_name_or_path, meta-llama/Llama-3.1-8B, --bf16,
              'true', --per_device_train_batch_size, '1', --max_length, '512', --output_dir, o]
            resources: {limits: {nvidia.com/gpu: 8}}
"""


def test_a_pytorch_jobs_master_trains_beside_its_workers(tmp_path: Path) -> None:
    manifest = "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nspec:\n  pytorchReplicaSpecs:\n"
    for role, count in (("Master", 1), ("Worker", 3)):
        manifest += f"    {role}:\n      replicas: {count}\n      template:\n        spec:\n"
        manifest += f"          {CONTAINER}"
    devices = job(tmp_path, manifest, "job.yaml").devices
    assert devices is not None and devices.value == (1 + 3) * 8


def test_a_pytorch_job_inside_another_kind_has_its_own_pods(tmp_path: Path) -> None:
    inner = "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nspec:\n  pytorchReplicaSpecs:\n"
    for role, count in (("Master", 1), ("Worker", 2)):
        inner += f"    {role}:\n      replicas: {count}\n      template:\n        spec:\n"
        inner += f"          {CONTAINER}"
    manifest = "apiVersion: workload.codeflare.dev/v1beta2\nkind: AppWrapper\nspec:\n"
    manifest += "  components:\n  - template:\n"
    manifest += "".join(f"      {line}\n" for line in inner.splitlines())
    devices = job(tmp_path, manifest, "job.yaml").devices
    assert devices is not None and devices.value == (1 + 2) * 8


def test_an_old_pytorch_job_lists_its_roles(tmp_path: Path) -> None:
    manifest = "apiVersion: kubeflow.org/v1alpha1\nkind: PyTorchJob\nspec:\n  replicaSpecs:\n"
    for role, count in (("MASTER", 1), ("WORKER", 4)):
        manifest += f"  - replicas: {count}\n    replicaType: {role}\n    template:\n"
        manifest += f"        spec:\n          {CONTAINER}"
    devices = job(tmp_path, manifest, "job.yaml").devices
    assert devices is not None and devices.value == (1 + 4) * 8


def test_pods_that_ask_for_no_accelerators_are_nodes_of_the_launchers_processes(
    tmp_path: Path,
) -> None:
    manifest = (
        "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nspec:\n  replicatedJobs:\n"
        "  - name: workers\n    template:\n      spec:\n        parallelism: 4\n"
        "        completions: 4\n        template:\n          spec:\n            containers:\n"
        "            - name: pytorch\n              command: [torchrun, --nproc_per_node=2, "
        "train.py, --model_name_or_path, meta-llama/Llama-3.1-8B, --bf16, 'true', "
        "--per_device_train_batch_size, '1', --max_length, '512', --output_dir, o]\n"
    )
    devices = job(tmp_path, manifest, "job.yaml").devices
    assert devices is not None and devices.value == 4 * 2


def test_a_job_sets_pods_are_its_jobs_times_their_parallelism(tmp_path: Path) -> None:
    manifest = (
        "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nspec:\n  replicatedJobs:\n"
        "  - replicas: 2\n    template:\n      spec:\n        parallelism: 4\n"
        f"        template:\n         spec:\n          {CONTAINER}"
    )
    devices = job(tmp_path, manifest, "job.yaml").devices
    assert devices is not None and devices.value == 2 * 4 * 8


def test_what_a_fork_of_nanogpt_adds_is_said_to_matter(tmp_path: Path) -> None:
    text = "batch_size = 12\nblock_size = 1024\nuse_moe = True\nuse_sinks = True\n"
    found = job(tmp_path, text + "optimizer_type = 'muon'\n", "moe.py")
    assert {i.key for i in found.ignored if i.matters} == {"use_moe", "use_sinks"}
    assert found.optimizer.value == "muon"


@pytest.mark.parametrize(
    ("setting", "meant"),
    [
        ("training.seq_lenn", "training.seq_len"),
        ("parallelism.tensor_paralel_degree", "parallelism.tensor_parallel_degree"),
        ("parallelism.pipeline_parallel_schedul", "parallelism.pipeline_parallel_schedule"),
        ("job.local_batch_size", "training.local_batch_size"),  # the right key of another table
    ],
)
def test_a_dotted_setting_that_no_file_knows_is_refused(setting: str, meant: str) -> None:
    with pytest.raises(InputError, match=f"--set {setting}: .*; did you mean '{meant}'"):
        read_job(["examples/llama3-8b-torchtitan.toml"], overrides={setting: "2"})


@pytest.mark.parametrize(
    ("text", "setting", "meant"),
    [
        ("trainer:\n  train_batch_size: 8\n  seed: 1\nmodel: {type: llama}\ntrain_seq_len: 64\n",
         "trainer.train_batch_sise", "trainer.train_batch_size"),
        ("max_seq_len: 64\nglobal_train_batch_size: 8\nmodel:\n  name: mpt_causal_lm\n"
         "  d_model: 64\n  n_heads: 4\n  n_layers: 2\n  vocab_size: 512\n",
         "fsdp_config.sharding_strateg", "fsdp_config.sharding_strategy"),
        ("trainer: {num_nodes: 1, devices: 8}\nmodel: {tensor_model_parallel_size: 1,\n"
         "  micro_batch_size: 1, global_batch_size: 8, encoder_seq_length: 64, num_layers: 2,\n"
         "  hidden_size: 64, num_attention_heads: 4, vocab_size: 512}\n",
         "model.tensor_model_paralel_size", "model.tensor_model_parallel_size"),
    ],
)  # fmt: skip
def test_so_it_is_where_a_format_ignores_all_it_does_not_read(
    tmp_path: Path, text: str, setting: str, meant: str
) -> None:
    job(tmp_path, text)
    with pytest.raises(InputError, match=f"--set {setting}: .*; did you mean '{meant}'"):
        job(tmp_path, text, **{setting: "2"})


def test_a_setting_that_is_read_or_documented_to_be_quiet_is_none_such() -> None:
    for setting, value in (("training.seq_len", "64"), ("training.seed", "3")):
        read_job(["examples/llama3-8b-torchtitan.toml"], overrides={setting: value})


NUMBERS = {"hidden_size": "64", "num_hidden_layers": "2", "num_attention_heads": "4",
           "num_key_value_heads": "2", "intermediate_size": "128", "vocab_size": "100"}  # fmt: skip


def test_an_unknown_architecture_is_told_by_its_numbers(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text('{"model_type": "brandnew", "hidden_size": 64}')
    sft = tmp_path / "sft.yaml"
    sft.write_text(SFT)
    files = [str(config), str(sft)]
    with pytest.raises(
        InputError, match=r"json: the architecture 'brandnew' is not known;.*--set"
    ) as lacks:
        read_job(files)
    flags = {word for word in str(lacks.value).split() if word.endswith("=N")}
    assert flags == {f"model.{key}=N" for key in NUMBERS} - {
        "model.hidden_size=N",  # the file gives it
        "model.num_key_value_heads=N",  # as many as heads, where it is not said
    }
    told = {f"model.{key}": value for key, value in NUMBERS.items()}
    model = read_job(files, overrides=told).model
    assert (model.d_model, model.n_layers, model.vocab) == (64, 2, 100)
    rest = {key: value for key, value in told.items() if key != "model.hidden_size"}
    assert read_job(files, overrides=rest).model == model
    with pytest.raises(InputError, match=r"lacks --set model.vocab_size=N; expected"):
        read_job(files, overrides={k: v for k, v in told.items() if k != "model.vocab_size"})


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "olmo.sh",
            "#!/bin/bash\ntorchrun --nproc_per_node 8 scripts/train.py conf.yaml "
            "--model.flash_attention=true\n",
            "does not say which model it trains",
        ),
        (
            "eval.slurm",
            "#!/bin/bash\n#SBATCH --nodes=1\n# model_name_or_path: x\nmodel_name_or_path: y\n"
            "srun python eval.py\n",
            "does not say which model it trains",
        ),
        (
            "wan.yml",
            "weights_dtype: bfloat16\nactivations_dtype: bfloat16\nper_device_batch_size: 1\n",
            "is a file of MaxDiffusion",
        ),
    ],
)
def test_another_programs_files_are_not_taken_for_what_they_resemble(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        job(tmp_path, text, name)


def test_one_expert_is_a_plain_feed_forward_in_nemo(tmp_path: Path) -> None:
    text = (
        "trainer: {num_nodes: 1, devices: 8}\nmodel: {tensor_model_parallel_size: 1,\n"
        "  micro_batch_size: 1, global_batch_size: 8, encoder_seq_length: 64, num_layers: 2,\n"
        "  hidden_size: 64, num_attention_heads: 4, vocab_size: 512, num_moe_experts: 1}\n"
    )
    model = job(tmp_path, text, "nemo.yaml").model
    assert not any(hasattr(layer.mlp, "experts") for layer, _ in model.layers)
