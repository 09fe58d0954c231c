"""What one file names is read only where it was given too, or lies beside a native job file."""

from __future__ import annotations

from pathlib import Path

import pytest

from chipshift.errors import InputError
from chipshift.jobs.read import read_job

from . import cases, more_cases

SECRET = "per_device_batch_size: 77\nNUM_LAYERS=77\n"
NAMERS = {
    "MaxText's base_config": (more_cases.MAXTEXT_YAML, '"base.yml"', '"{}"'),
    "a sourced script": (
        more_cases.SOURCED.replace("$MODEL_ARGS", "--num-layers 4 --hidden-size 64"),
        "$(dirname $0)/conf/model.sh",
        "{}",
    ),
    "Hydra's defaults": (more_cases.FOUNDRY, "variables:", "defaults:\n  - {}\nvariables:"),
    "a YAML tag": (more_cases.FOUNDRY, "lr: 1.2e-4", "lr: 1.2e-4\n  extra: !include {}"),
    "DeepSpeed's file": (cases.LLAMA_FACTORY, "examples/deepspeed/ds_z3_config.json", "{}"),
    "Accelerate's file": (more_cases.ACCELERATE_LAUNCH, "configs/fsdp.yaml", "{}"),
}


@pytest.mark.parametrize("namer", NAMERS)
@pytest.mark.parametrize("how", ["beside", "above", "absolute", "linked"])
def test_a_file_that_was_not_given_is_never_opened(
    tmp_path: Path, namer: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "jobs"
    folder.mkdir()
    (tmp_path / "secret").write_text(SECRET)
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "near").write_text(SECRET)
    name = {"beside": "near", "above": "../secret", "absolute": str(tmp_path / "secret"),
            "linked": "link"}[how]  # fmt: skip
    text, old, new = NAMERS[namer]
    assert text.count(old) == 1
    job = folder / "job"
    job.write_text(text.replace(old, new.format(name)))
    opened: list[str] = []
    real = Path.open

    def watched(self: Path, *args: object, **keys: object) -> object:
        opened.append(self.name)
        return real(self, *args, **keys)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", watched)
    try:
        read_job([str(job)])
    except InputError as error:
        assert "77" not in str(error)
    assert "job" in opened and not {"near", "link", "secret"} & set(opened)


@pytest.mark.parametrize("name", ["../config.json", "{outside}/config.json", "link.json"])
def test_a_native_files_model_lies_in_its_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "jobs"
    folder.mkdir()
    (tmp_path / "config.json").write_text(cases.HF_CONFIG)
    (folder / "link.json").symlink_to(tmp_path / "config.json")
    named = name.format(outside=tmp_path)
    job = folder / "job.toml"
    job.write_text(
        f"chipshift = 1\n[model]\nconfig = {named!r}\n[job]\nseq_len = 64\nsequences_per_step = 8\n"
    )
    with pytest.raises(InputError, match="lies outside the job file's folder"):
        read_job([str(job)])
