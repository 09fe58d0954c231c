"""A Kubernetes job's pods and their accelerators, whatever kind of job nests them."""

from pathlib import Path
from typing import Any

import pytest

from chipshift.errors import InputError
from chipshift.jobs.job import TrainJob
from chipshift.jobs.read import read_job

COMMAND = (
    "[torchrun, train.py, --model_name_or_path, meta-llama/Llama-3.1-8B, --bf16, 'true', "
    "--per_device_train_batch_size, '1', --max_length, '512', --output_dir, o]"
)


def pod(accelerators: str, command: str = f"command: {COMMAND}", selector: str = "") -> str:
    """A pod's ``template:`` in YAML's flow style, for any place in a manifest."""
    limits = f"resources: {{limits: {{{accelerators}}}}}"
    return (
        f"template: {{spec: {{nodeSelector: {{{selector}}}, "
        f"containers: [{{name: main, {command}, {limits}}}]}}}}"
    )


def read(tmp_path: Path, spec: str, kind: str = "Job", **settings: str) -> TrainJob:
    file = tmp_path / "job.yaml"
    file.write_text(f"apiVersion: v1\nkind: {kind}\nspec:\n{spec}")
    return read_job([str(file)], overrides=settings)


def value(stated: Any) -> Any:
    return None if stated is None else stated.value


GPUS = "nvidia.com/gpu: 8"


@pytest.mark.parametrize(
    ("kind", "spec", "devices"),
    [
        # a Volcano job: one master without accelerators, three workers of 8
        (
            "Job",
            f"  tasks:\n  - {{replicas: 1, name: master, {pod('', 'args: [sleep, inf]')}}}\n"
            f"  - {{replicas: 3, name: worker, {pod(GPUS)}}}\n",
            3 * 8,
        ),
        # a RayJob: the head has no accelerator, two groups of workers have
        (
            "RayJob",
            "  entrypoint: python train.py --model_name_or_path meta-llama/Llama-3.1-8B "
            "--max_length 512 --per_device_train_batch_size 1\n"
            f"  rayClusterSpec:\n    headGroupSpec: {{{pod('', 'args: []')}}}\n"
            f"    workerGroupSpecs:\n    - {{replicas: 2, {pod(GPUS, 'args: []')}}}\n"
            f"    - {{replicas: 1, {pod('nvidia.com/gpu: 4', 'args: []')}}}\n",
            2 * 8 + 4,
        ),
        # a TrainJob gives the resources of a node, and no pod
        (
            "TrainJob",
            f"  trainer: {{numNodes: 4, command: {COMMAND}, "
            "resourcesPerNode: {limits: {nvidia.com/gpu: 8}}}\n",
            4 * 8,
        ),
        # an MPIJob's launcher may sit on a node with accelerators, and still does not train
        (
            "MPIJob",
            f"  mpiReplicaSpecs:\n    Launcher: {{replicas: 1, {pod(GPUS)}}}\n"
            f"    Worker: {{replicas: 2, {pod(GPUS, 'args: []')}}}\n",
            2 * 8,
        ),
        # a Job runs one pod at a time unless parallelism says otherwise
        ("Job", f"  completions: 4\n  {pod(GPUS)}\n", 8),
        # no pod asks for an accelerator: the job's own processes a node
        (
            "PyTorchJob",
            "  nprocPerNode: '4'\n  pytorchReplicaSpecs:\n"
            f"    Worker: {{replicas: 2, {pod('')}}}\n",
            2 * 4,
        ),
    ],
)
def test_devices_are_the_pods_that_train_times_what_each_asks_for(
    tmp_path: Path, kind: str, spec: str, devices: int
) -> None:
    assert value(read(tmp_path, spec, kind).devices) == devices


SELECTOR = "cloud.google.com/gke-tpu-accelerator: tpu7x"
MAXTEXT = (
    "command: [bash, -c, 'python3 -m MaxText.train base.yml model_name=llama3.1-8b "
    "per_device_batch_size=2 ici_fsdp_parallelism=-1 max_target_length=4096']"
)


def test_a_tpu_resource_counts_chips_and_a_tpu7x_chip_is_two_devices(tmp_path: Path) -> None:
    # 16 pods × 4 chips, without a topology: 64 chips of two devices
    found = read(tmp_path, f"  parallelism: 16\n  {pod('google.com/tpu: 4', MAXTEXT, SELECTOR)}\n")
    assert value(found.devices) == 16 * 4 * 2
    assert value(found.machine) == "v7x*64"


def test_several_slices_are_one_machine_over_the_data_center_network(tmp_path: Path) -> None:
    both = f"{SELECTOR}, cloud.google.com/gke-tpu-topology: 4x4x4"
    inner = pod("google.com/tpu: 4", MAXTEXT, both)
    job = f"{{replicas: 2, template: {{spec: {{parallelism: 16, {inner}}}}}}}"
    spec = f"  replicatedJobs:\n  - {job}\n"
    found = read(tmp_path, spec, "JobSet")
    assert value(found.machine) == "v7x:4x4x4*2"
    assert value(found.devices) == 2 * 64 * 2


def test_the_containers_of_a_pod_share_its_accelerators(tmp_path: Path) -> None:
    one = f"{{name: a, command: {COMMAND}, resources: {{limits: {{nvidia.com/gpu: 4}}}}}}"
    two = "{name: b, resources: {limits: {nvidia.com/gpu: 4}}}"
    found = read(
        tmp_path, f"  parallelism: 2\n  template: {{spec: {{containers: [{one}, {two}]}}}}\n"
    )
    assert value(found.devices) == 2 * (4 + 4)


def test_an_instance_type_names_the_chip(tmp_path: Path) -> None:
    there = pod(GPUS, selector="node.kubernetes.io/instance-type: p5.48xlarge")
    assert value(read(tmp_path, f"  parallelism: 2\n  {there}\n").machine) == "h100*16"


def test_a_count_that_only_a_template_fills_in_is_not_guessed(tmp_path: Path) -> None:
    spec = f"  pytorchReplicaSpecs:\n    Worker:\n      replicas: $NODES\n      {pod(GPUS)}\n"
    found = read(tmp_path, spec, "PyTorchJob")
    assert found.devices is None
    assert any("--set NODES=N" in why for _, _, why in found.assumed)
    assert value(read(tmp_path, spec, "PyTorchJob", NODES="3").devices) == 24


def test_the_variables_that_kubernetes_fills_in_are_those_of_the_container(tmp_path: Path) -> None:
    command = COMMAND.replace("'512'", "$(LENGTH)")
    env = "env: [{name: LENGTH, value: '1024'}]"
    found = read(tmp_path, f"  {pod(GPUS, f'command: {command}, {env}')}\n")
    assert found.seq_len.value == 1024


def test_a_file_in_the_manifests_own_config_map_is_read(tmp_path: Path) -> None:
    config = (
        "---\napiVersion: v1\nkind: ConfigMap\ndata:\n  sft.yaml: |\n    base_model: "
        "meta-llama/Llama-3.1-8B\n    sequence_len: 2048\n    micro_batch_size: 2\n    bf16: true\n"
    )
    start = "command: [accelerate, launch, -m, axolotl.cli.train, /config/sft.yaml]"
    found = read(tmp_path, f"  {pod(GPUS, start)}\n{config}")
    assert (found.format, found.seq_len.value, value(found.devices)) == ("axolotl", 2048, 8)


def test_an_unknown_program_has_its_devices_and_asks_for_the_model(tmp_path: Path) -> None:
    spec = f"  parallelism: 2\n  {pod(GPUS, 'command: [python, main.py]')}\n"
    with pytest.raises(InputError, match="does not say which model"):
        read(tmp_path, spec)
    (tmp_path / "train.py").write_text(
        "from transformers import TrainingArguments\nargs = TrainingArguments(output_dir='o', "
        "per_device_train_batch_size=4, bf16=True)\n"
        "m = AutoModelForCausalLM.from_pretrained('meta-llama/Llama-3.1-8B')\n"
    )
    both = [str(tmp_path / name) for name in ("job.yaml", "train.py")]
    job = read_job(both, overrides={"seq_len": "512"})
    assert value(job.devices) == 16
    assert job.sequences_per_step.value == 4 * 16


def test_a_wrong_value_in_the_container_is_said_and_not_passed_over(tmp_path: Path) -> None:
    command = COMMAND.replace("'1'", "many")
    with pytest.raises(InputError, match=r"job\.yaml:\d+: per_device_train_batch_size is many"):
        read(tmp_path, f"  {pod(GPUS, f'command: {command}')}\n")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (GPUS, "nvidia.com/gpu: eight", r"job\.yaml:5: nvidia\.com/gpu is 'eight'; expected a"),
        (GPUS, "google.com/tpu: -4", r"job\.yaml:5: google\.com/tpu is '-4'; expected a whole"),
        ("parallelism: 2", "parallelism: two", r"job\.yaml:4: parallelism is 'two'; expected a"),
        (GPUS, "nvidia.com/gpu: 0.5", r"job\.yaml:5: nvidia\.com/gpu is '0\.5'; expected a"),
    ],
)
def test_a_count_that_is_none_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    spec = f"  parallelism: 2\n  {pod(GPUS)}\n".replace(old, new)
    file = tmp_path / "job.yaml"
    file.write_text(
        f"apiVersion: v1\nkind: Job\nspec: {{}}\n{spec}".replace("spec: {}\n", "spec:\n")
    )
    with pytest.raises(InputError, match=said):
        read_job([str(file)])


def test_a_count_that_a_template_fills_in_is_no_mistake(tmp_path: Path) -> None:
    spec = f"  parallelism: <NODES>\n  {pod(GPUS)}\n"
    assert read(tmp_path, spec).devices is None


def test_a_variable_of_the_pod_without_a_proper_name_is_passed_over(tmp_path: Path) -> None:
    # a list where a name belongs; the command still says 8 a node of 4 pods
    env = "env: [{name: [8], value: '4'}, {name: A.B, value: x}]"
    spec = f"  parallelism: 4\n  {pod(GPUS, f'command: {COMMAND}, {env}')}\n"
    assert value(read(tmp_path, spec).devices) == 4 * 8


def test_pods_that_ask_for_other_devices_than_the_command_starts(tmp_path: Path) -> None:
    # a master and one worker of 8 are 16 accelerators; torchrun is told 4 nodes of 8
    command = COMMAND.replace("[torchrun,", "[torchrun, --nnodes=4, --nproc_per_node=8,")
    one = pod(GPUS, f"command: {command}")
    spec = f"  pytorchReplicaSpecs:\n    Master: {{replicas: 1, {one}}}\n    Worker: {{{one}}}\n"
    job = read(tmp_path, spec, "PyTorchJob")
    assert value(job.devices) == 32
    left = next(entry for entry in job.ignored if entry.key == "accelerators")
    assert left.matters and "starts 32 processes" in left.why and "1 × 8 + 1 × 8" in left.why
