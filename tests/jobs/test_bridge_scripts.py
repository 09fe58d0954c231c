"""Megatron-Bridge and NeMo 2 scripts that alter in Python what a recipe or a hub's model gives."""

from pathlib import Path

import pytest

from chipshift.errors import InputError
from chipshift.jobs.job import TrainJob
from chipshift.jobs.read import read_job
from chipshift.models.count import params

DEMO = """import argparse
from megatron.bridge import AutoBridge
from megatron.bridge.training.config import TokenizerConfig, TrainingConfig


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-layers", type=int, default=4)
    parser.add_argument("--tp-size", type=int, default=2)
    parser.add_argument("--ffn", type=int)
    parser.add_argument("--fast", action="store_true")
    return parser.parse_args()


def main():
    args = parse_args()
    bridge = AutoBridge.from_hf_pretrained("Qwen/Qwen3-4B")
    model_cfg = bridge.to_megatron_provider(load_weights=False)
    model_cfg.num_layers = args.num_layers
    model_cfg.tensor_model_parallel_size = args.tp_size
    model_cfg.share_embeddings_and_output_weights = False
    model_cfg.seq_length = 1024
    if args.ffn is not None:
        model_cfg.ffn_hidden_size = args.ffn
    if args.fast:
        model_cfg.num_layers = 2
    train = TrainingConfig(global_batch_size=8, micro_batch_size=1)
    tokenizer = TokenizerConfig(tokenizer_type="NullTokenizer", vocab_size=10000)


if __name__ == "__main__":
    main()
"""

# Qwen3-4B: D = 2560, H·h = 4096, K·h = 1024, F = 9728, V = 151936; one layer holds q 2560·4096,
# k and v 2·2560·1024, o 4096·2560, feed-forward 3·2560·9728, norms 2·2560 + 2·128
LAYER = 2560 * (2 * 4096 + 2 * 1024) + 3 * 2560 * 9728 + 2 * 2560 + 2 * 128
ENDS = 2 * 151936 * 2560 + 2560  # embedding, a head of its own, the last norm


def read(folder: Path, text: str, *others: tuple[str, str], **settings: str) -> TrainJob:
    paths = []
    for name, body in (("train.py", text), *others):
        (folder / name).write_text(body)
        paths.append(str(folder / name))
    return read_job(paths, overrides={"devices": "16", **settings})


def said(job: TrainJob) -> dict[str, str]:
    return {one.key: one.why for one in job.ignored if one.matters}


def parameters(job: TrainJob) -> int:
    return params(job.model)


def test_layers_set_in_python_are_the_model_s(tmp_path: Path) -> None:
    job = read(tmp_path, DEMO)
    assert job.model.n_layers == 4
    assert parameters(job) == 4 * LAYER + ENDS
    assert job.plan is not None and job.plan.value.tp == 2


@pytest.mark.parametrize(
    ("settings", "layers"),
    [({"num-layers": "8"}, 8), ({"fast": "true"}, 2), ({"model.num_layers": "6"}, 6)],
)
def test_the_script_s_own_arguments_are_set(
    tmp_path: Path, settings: dict[str, str], layers: int
) -> None:
    assert read(tmp_path, DEMO, **settings).model.n_layers == layers


def test_an_argument_that_is_not_given_changes_nothing(tmp_path: Path) -> None:
    assert parameters(read(tmp_path, DEMO, ffn="4096")) == parameters(read(tmp_path, DEMO)) - (
        4 * 3 * 2560 * (9728 - 4096)
    )


@pytest.mark.parametrize("words", ["--num-layers 8 --tp-size=4", "--num-layers=8 --tp-size 4"])
def test_the_command_that_starts_it_gives_its_arguments(tmp_path: Path, words: str) -> None:
    (tmp_path / "train.py").write_text(DEMO)
    launch = f"#!/bin/bash\ntorchrun --nnodes 1 --nproc-per-node 8 demo/train.py {words}\n"
    (tmp_path / "run.sh").write_text(launch)
    job = read_job([str(tmp_path / "run.sh"), str(tmp_path / "train.py")])
    assert job.model.n_layers == 8
    assert job.plan is not None and (job.plan.value.tp, job.plan.value.dp) == (4, 2)


def test_what_no_text_tells_is_said(tmp_path: Path) -> None:
    text = DEMO.replace("seq_length = 1024", "seq_length = 1024\n    model_cfg.vocab_size = f()[0]")
    job = read(tmp_path, text)
    assert "--set model.vocab_size=... settles it" in said(job)["vocab_size"]
    settled = read(tmp_path, text, **{"model.vocab_size": "10000"})
    assert settled.model.vocab == 10000 and "vocab_size" not in said(settled)


BASE = """from megatron.bridge.recipes.llama import llama3_8b_pretrain_config
{imports}

def _shorten(config, layers):
    config.model.num_layers = layers
    setattr(config.model, "tensor_model_parallel_size", 2)
    for key, value in {{"pipeline_model_parallel_size": 1, "context_parallel_size": 1}}.items():
        setattr(config.model, key, value)


def main():
    cfg = llama3_8b_pretrain_config()
    cfg.model.num_layers = 30
    cfg.model.tensor_model_parallel_size = 8
    cfg.train.global_batch_size = 64
    {body}


main()
"""


def test_a_function_of_the_file_acts_where_it_is_called(tmp_path: Path) -> None:
    job = read(tmp_path, BASE.format(imports="", body="_shorten(cfg, layers=16)"))
    assert job.plan is not None
    assert (job.model.n_layers, job.plan.value.tp, job.plan.value.cp) == (16, 2, 1)
    job = read(tmp_path, BASE.format(imports="", body="pass"))
    assert job.plan is not None
    assert (job.model.n_layers, job.plan.value.tp, job.plan.value.cp) == (30, 8, 2)


HELPER = """def tune(config, fast=False):
    config.model.tensor_model_parallel_size = 1
    config.model.context_parallel_size = 8 if fast else 4
"""


def test_a_helper_of_another_file_is_followed_or_said(tmp_path: Path) -> None:
    text = BASE.format(imports="from lib.tuning import tune", body="tune(cfg, fast=True)")
    alone = read(tmp_path, text)
    why = said(alone)["tune()"]
    assert "lib/tuning.py, which was not given" in why and "--set model.FIELD=VALUE" in why
    both = read(tmp_path, text, ("tuning.py", HELPER))
    assert both.plan is not None and (both.plan.value.tp, both.plan.value.cp) == (1, 8)
    assert "tune()" not in said(both)


def test_the_library_s_own_setters_are_said(tmp_path: Path) -> None:
    imports = "from megatron.bridge.utils.tuning import apply_fast_mode"
    job = read(tmp_path, BASE.format(imports=imports, body="apply_fast_mode(cfg)"))
    assert "may set any field of cfg" in said(job)["apply_fast_mode()"]


def test_an_open_branch_is_said_both_ways(tmp_path: Path) -> None:
    body = """if count() > 8:
        cfg.model.tensor_model_parallel_size = 4
    else:
        cfg.model.tensor_model_parallel_size = 2"""
    job = read(tmp_path, BASE.format(imports="", body=body))
    why = said(job)["tensor_model_parallel_size"]
    assert why.startswith("4 if count() > 8, else 2") and "4 was taken" in why
    assert job.plan is not None and job.plan.value.tp == 4
    settled = read(
        tmp_path,
        BASE.format(imports="", body=body),
        **{"model.tensor_model_parallel_size": "2"},
    )
    assert settled.plan is not None and settled.plan.value.tp == 2
    assert "tensor_model_parallel_size" not in said(settled)


def test_tables_of_overrides(tmp_path: Path) -> None:
    body = """apply_overrides(cfg, {"model": {"num_layers": 8}, "train.micro_batch_size": 2})
    cfg.model = dataclasses.replace(cfg.model, context_parallel_size=1)
    parse_hydra_overrides(cfg, ["model.tensor_model_parallel_size=4"])"""
    job = read(tmp_path, BASE.format(imports="", body=body))
    assert job.plan is not None
    plan = job.plan.value
    assert (job.model.n_layers, plan.microbatch, plan.cp, plan.tp) == (8, 2, 1, 4)


def test_a_recipe_chosen_by_an_argument(tmp_path: Path) -> None:
    text = """import argparse
from megatron.bridge.recipes.llama import llama32_1b_pretrain_config, llama3_8b_pretrain_config

RECIPES = {"1b": llama32_1b_pretrain_config, "8b": llama3_8b_pretrain_config}
parser = argparse.ArgumentParser()
parser.add_argument("--size", default="1b")
args = parser.parse_args()
cfg = RECIPES[args.size]()
"""
    assert read(tmp_path, text).model.name == "llama-3.2-1b-altered"
    assert read(tmp_path, text, size="8b").model.name == "llama-3-8b-altered"


def test_a_config_beside_is_altered_too(tmp_path: Path) -> None:
    config = """{"model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 20,
        "num_attention_heads": 8, "num_key_value_heads": 8, "intermediate_size": 4096,
        "vocab_size": 32000, "tie_word_embeddings": true}"""
    text = DEMO.replace("Qwen/Qwen3-4B", "someone/own").replace(
        "    model_cfg.share_embeddings_and_output_weights = False\n", ""
    )
    job = read(tmp_path, text, ("config.json", config))
    # 4 layers of q, k, v, o 4·1024² and 3·1024·4096, two norms; one tied embedding, the last norm
    whole = 4 * (4 * 1024**2 + 3 * 1024 * 4096 + 2 * 1024) + 32000 * 1024 + 1024
    assert parameters(job) == whole


def test_a_number_that_a_model_cannot_have(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"train.py:19: num_layers is 0; expected a whole number"):
        read(tmp_path, DEMO.replace("= args.num_layers", "= 0"))


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("llm.LlamaModel(llm.Llama32Config1B())", "llama-3.2-1b"),
        ("run.Config(llm.Qwen25Config7B)", "qwen2.5-7b"),
        ("llm.MixtralConfig8x7B()", "mixtral-8x7b"),
    ],
)
def test_models_by_their_classes(tmp_path: Path, written: str, name: str) -> None:
    text = f"""import nemo_run as run
from nemo.collections import llm

model = {written}
trainer = nl.Trainer(devices=8, num_nodes=1)
data = llm.PreTrainingDataModule(seq_length=2048, global_batch_size=16, micro_batch_size=1)
"""
    assert read(tmp_path, text).model.name == name


LAUNCHER = """import argparse
import nemo_run as run


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--script", required=True)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--devices", type=int, default=8)
    args, more = parser.parse_known_args()
    task = run.Script(path=args.script, args=more)
    executor = run.SlurmExecutor(nodes=args.nodes, gpus_per_node=args.devices, exclusive=True)
    with run.Experiment("x") as exp:
        exp.add(task, executor=executor)


if __name__ == "__main__":
    main()
"""
QUICK = """from megatron.bridge.recipes.llama import llama32_1b_pretrain_config
from megatron.bridge.training.pretrain import pretrain

cfg = llama32_1b_pretrain_config()
cfg.train.global_batch_size = 48
pretrain(cfg)
"""


def files(folder: Path, **texts: str) -> list[str]:
    for name, text in texts.items():
        (folder / name.replace("__", ".")).write_text(text)
    return [str(folder / name.replace("__", ".")) for name in texts]


def test_a_launcher_alone_names_the_file_that_holds_the_job(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"NeMo-Run.*expected the training script") as refusal:
        read_job(files(tmp_path, launch__py=LAUNCHER))
    assert "num-layers" not in str(refusal.value)


@pytest.mark.parametrize(("words", "devices"), [("--nodes 2", 16), ("--nodes 3 --devices 4", 12)])
def test_a_launcher_s_command_gives_the_machine_of_the_script_it_submits(
    tmp_path: Path, words: str, devices: int
) -> None:
    command = f"#!/bin/bash\npython launch.py --script quick.py {words}\n"
    paths = files(tmp_path, go__sh=command, launch__py=LAUNCHER, quick__py=QUICK)
    job = read_job(paths)
    # nodes times the 8 devices of a node that are the launcher's default, or those of the command
    assert job.plan is not None and job.plan.value.dp == devices


def test_devices_that_a_launcher_states_overrule_the_recipe_s_name(tmp_path: Path) -> None:
    # the recipe's name says one H100; torchrun starts 2 nodes of 8
    command = "#!/bin/bash\ntorchrun --nnodes=2 --nproc_per_node=8 quick.py\n"
    job = read_job(files(tmp_path, go__sh=command, quick__py=QUICK))
    assert job.machine is not None and job.machine.value == "h100*16"


DISTILL = """from megatron.bridge import AutoBridge
from megatron.bridge.models.distillation_provider import convert_to_distillation_provider
from megatron.bridge.recipes.llama import llama32_1b_pretrain_config, llama32_3b_pretrain_config

cfg = llama32_1b_pretrain_config()
teacher_cfg = llama32_3b_pretrain_config()
teacher_cfg.model = AutoBridge.from_hf_pretrained("meta-llama/Llama-3.2-3B").to_megatron_provider()
teacher_cfg.train.micro_batch_size = 4
cfg.train.global_batch_size = 16
cfg.model = convert_to_distillation_provider(cfg.model, teacher_cfg.model, None)
"""


def test_a_teacher_is_counted_and_sets_nothing_of_the_student(tmp_path: Path) -> None:
    job = read(tmp_path, DISTILL)
    assert job.model.n_layers == 16  # Llama 3.2 1B; the teacher has 28
    assert job.plan is not None and job.plan.value.microbatch == 1
    assert job.teacher is not None and job.teacher.name == "llama-3.2-3b"
    # 3,212,749,824 parameters less the rows of 3072 that the null tokenizer's vocabulary has not
    assert params(job.teacher) == 3_212_749_824 - (128256 - 32000) * 3072
    assert "teacher" not in said(job)


def test_a_teacher_of_no_known_model_is_said_with_what_counts_it(tmp_path: Path) -> None:
    text = DISTILL.replace("meta-llama/Llama-3.2-3B", "someone/Other").replace(
        "teacher_cfg = llama32_3b_pretrain_config()", "teacher_cfg = make()"
    )
    job = read(tmp_path, text)
    assert job.teacher is None
    assert "someone/Other is no shipped model; --set teacher=PATH" in said(job)["teacher"]
    told = read(tmp_path, text, teacher="llama-3.1-8b")
    assert told.teacher is not None and told.teacher.n_layers == 32
    assert "teacher" not in said(told)
    assert read(tmp_path, DISTILL, teacher="none").teacher is None
    with pytest.raises(InputError, match=r"'llama-3.1-9b' is not a shipped model; .*did you mean"):
        read(tmp_path, DISTILL, teacher="llama-3.1-9b")


def test_settings_of_a_teacher_in_the_yaml_beside_are_not_the_student_s(tmp_path: Path) -> None:
    laid = "model:\n  tensor_model_parallel_size: 2\n  teacher:\n    seq_length: 99\n"
    job = read(tmp_path, DISTILL, ("laid.yaml", laid))
    assert job.plan is not None and job.plan.value.tp == 2
    assert job.seq_len.value == 8192  # the recipe's own
