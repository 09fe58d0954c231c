"""MaxText's fine-tuning, preferences and distillation."""

from pathlib import Path

from chipshift.jobs.job import TrainJob
from chipshift.jobs.read import read_job

from .test_formats import value_of

BASE = "model_name: qwen3-0.6b\nper_device_batch_size: 2\nmax_target_length: 512\n"


def read(folder: Path, text: str) -> TrainJob:
    (folder / "job.yml").write_text(text)
    return read_job([str(folder / "job.yml")])


def test_supervised_fine_tuning(tmp_path: Path) -> None:
    assert read(tmp_path, BASE + "use_sft: true\n").task == "sft"
    assert read(tmp_path, BASE + "use_sft: false\n").task == "pretrain"


def test_a_command_on_maxtexts_own_file_of_a_task_trains_that_task(tmp_path: Path) -> None:
    """configs/sft.yml sets use_sft, configs/dpo.yml use_dpo; base.yml neither."""
    tokens = {}
    for file in ("base.yml", "sft.yml", "dpo.yml"):
        script = tmp_path / f"{file}.sh"
        script.write_text(
            f"python3 -m MaxText.train MaxText/configs/{file} model_name=qwen3-0.6b "
            "per_device_batch_size=2 max_target_length=512\n"
        )
        job = read_job([str(script)])
        tokens[file] = (job.task, job.loss, value_of(job, "plan.microbatch"))
        said = [one.key for one in job.ignored if one.matters and one.key.endswith(".yml")]
        assert said == ([] if file == "base.yml" else [file])  # what else it sets is not known
    assert tokens["base.yml"] == ("pretrain", "lm", 2)
    assert tokens["sft.yml"] == ("sft", "lm", 2)
    assert tokens["dpo.yml"] == ("sft", "dpo", 4)  # two pairs


def command(folder: Path, config: str, keys: str = "") -> TrainJob:
    """A job of MaxText's own file by its name alone, and what the command says over it."""
    (folder / "run.sh").write_text(
        f"python3 -m MaxText.train MaxText/configs/{config} run_name=r "
        f"ici_fsdp_parallelism=-1 {keys}\n"
    )
    return read_job([str(folder / "run.sh")])


def test_maxtexts_own_dpo_has_its_own_batch_length_and_model(tmp_path: Path) -> None:
    """configs/post_train/dpo.yml: qwen3-0.6b, 2 pairs a device of 512 tokens, not packed."""
    job = command(tmp_path, "post_train/dpo.yml")
    assert (value_of(job, "model.name"), job.loss, job.seq_len.value) == ("qwen3-0.6b", "dpo", 512)
    assert value_of(job, "plan.microbatch") == 4
    said = next(one for one in job.ignored if one.key == "dpo.yml")
    assert said.matters and "per_device_batch_size=2.0, max_target_length=512" in said.why
    where = {one.key: one.file for one in job.understood}
    assert where["max_target_length"] == "MaxText/configs/post_train/dpo.yml"
    keys = "model_name=qwen3-8b per_device_batch_size=1 max_target_length=1024"
    over = command(tmp_path, "post_train/dpo.yml", keys)
    assert (value_of(over, "model.name"), over.seq_len.value) == ("qwen3-8b", 1024)
    assert value_of(over, "plan.microbatch") == 2


def test_maxtexts_own_sft_takes_base_s_batch_and_length(tmp_path: Path) -> None:
    """configs/sft.yml sets neither since 2025; before, 1 of 1,024 tokens, which is said."""
    for config in ("post_train/sft.yml", "sft.yml"):
        job = command(tmp_path, config, "model_name=qwen3-0.6b")
        assert (job.task, job.seq_len.value, value_of(job, "plan.microbatch")) == ("sft", 2048, 12)
    assert any("per_device_batch_size 1 and max_target_length 1024" in i.why for i in job.ignored)


def test_maxtexts_own_distillation_has_both_models(tmp_path: Path) -> None:
    """configs/post_train/distillation.yml: Llama 3.1 8B both, 2 sequences a device of 2,048."""
    job = command(tmp_path, "post_train/distillation.yml")
    assert value_of(job, "model.name") == "llama-3.1-8b" and job.teacher is not None
    assert (job.task, job.seq_len.value, value_of(job, "plan.microbatch")) == ("pretrain", 2048, 2)
    assert command(tmp_path, "post_train/distillation-sft.yml").task == "sft"


def test_a_file_of_that_name_elsewhere_is_not_maxtexts_own(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(
        "python3 -m MaxText.train mine/dpo.yml model_name=qwen3-0.6b max_target_length=256 "
        "ici_fsdp_parallelism=-1\n"
    )
    job = read_job([str(tmp_path / "run.sh")])
    assert (job.loss, value_of(job, "plan.microbatch")) == ("dpo", 24)  # base.yml's 12, in pairs


def test_preferences_count_pairs_and_keep_a_reference(tmp_path: Path) -> None:
    job = read(tmp_path, BASE + "use_dpo: true\ndpo:\n  algo: dpo\n")
    assert (job.loss, job.reference) == ("dpo", "fp32")
    assert value_of(job, "plan.microbatch") == 4  # two pairs
    job = read(tmp_path, BASE + "use_dpo: true\ndpo:\n  algo: orpo\n")
    assert (job.loss, job.reference) == ("orpo", "none")


def test_distillation_trains_the_student(tmp_path: Path) -> None:
    text = BASE.replace("model_name", "student_overrides:\n  model_name")
    text += "teacher_overrides:\n  model_name: qwen3-8b\ndistill_alpha: 0.6\n"
    job = read(tmp_path, text)
    assert value_of(job, "model.name") == "qwen3-0.6b"
    assert job.teacher is not None and job.teacher.n_layers == 36  # Qwen3 8B
    matters = {one.key for one in job.ignored if one.matters}
    assert not {"teacher_overrides.model_name", "distill_alpha"} & matters
    other = read(tmp_path, text.replace("qwen3-8b", "someone-elses"))
    assert other.teacher is None
    assert any("someone-elses is no shipped model" in one.why for one in other.ignored)
    scanned = read(
        tmp_path, text.replace("distill_alpha", "  attention: dot_product\ndistill_alpha")
    )
    assert "teacher_overrides.attention" in {one.key for one in scanned.ignored if one.matters}
    alone = read(tmp_path, BASE.replace("model_name", "student_overrides:\n  model_name"))
    assert any(one.matters and "teacher" in one.why for one in alone.ignored)
    beforehand = read(tmp_path, text + "offline_data_dir: gs://bucket/logits\n")
    assert not [one for one in beforehand.ignored if one.matters] and beforehand.teacher is None


def test_keys_that_beat_a_named_models_shape_matter(tmp_path: Path) -> None:
    heads = BASE + "base_num_query_heads: 8\n"
    for more, on in (("", False), ("override_model_config: true\n", True)):
        found = {one.key: one.matters for one in read(tmp_path, heads + more).ignored}
        assert found["base_num_query_heads"] is on


def test_a_scale_of_one_does_not_matter(tmp_path: Path) -> None:
    for scale in (1, 2):
        job = read(tmp_path, BASE + f"global_parameter_scale: {scale}\n")
        found = {one.key: one.matters for one in job.ignored}
        assert found["global_parameter_scale"] is (scale != 1)


def test_a_command_that_trains_goes_before_one_that_decodes(tmp_path: Path) -> None:
    keys = "model_name=qwen3-0.6b max_target_length=512"
    train = f"python3 MaxText/train.py MaxText/configs/base.yml {keys} per_device_batch_size=2\n"
    decode = (
        f"python3 MaxText/decode.py MaxText/configs/base.yml {keys} per_device_batch_size=9 "
        "ici_fsdp_parallelism=1 ici_tensor_parallelism=8\n"
    )
    path = tmp_path / "run.sh"
    path.write_text(train + decode)
    job = read_job([str(path)])
    assert value_of(job, "plan.microbatch") == 2
    assert not [one for one in job.ignored if "trains nothing" in one.why]
    path.write_text(decode)
    only = [one for one in read_job([str(path)]).ignored if "trains nothing" in one.why]
    assert [(one.key, one.matters) for one in only] == [("decode.py", True)]
