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
