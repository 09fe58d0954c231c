"""nanoGPT's config files and those of its forks."""

from pathlib import Path

from chipshift.jobs.job import TrainJob
from chipshift.jobs.read import read_job

from .test_formats import value_of

BASE = "batch_size = 12\nblock_size = 1024\ngradient_accumulation_steps = 40\n"


def read(folder: Path, text: str) -> TrainJob:
    (folder / "train.py").write_text(text)
    return read_job([str(folder / "train.py")])


def matters(job: TrainJob) -> dict[str, bool]:
    return {one.key: one.matters for one in job.ignored}


def test_a_forks_optimizer_by_any_of_its_keys(tmp_path: Path) -> None:
    for written, name in (("optimizer_name = 'muon'", "muon"), ("optimizer = 'lion'", "lion"),
                          ("optimizer_name = 'moonlight'", "muon")):  # fmt: skip
        assert value_of(read(tmp_path, BASE + written), "optimizer") == name
    job = read(tmp_path, BASE + "optimizer_name = 'mars'")
    assert value_of(job, "optimizer") == "adamw"
    assert any(
        "'mars' is no optimizer known" in why for what, _, why in job.assumed if what == "optimizer"
    )


def test_a_forks_own_keys_matter_and_train_pys_other_keys_do_not(tmp_path: Path) -> None:
    text = (
        BASE + "sdr_size = 64\nmoe_ffn_hidden_size = 1536\nuse_kan = True\nlearning_rate = 1e-3\n"
    )
    text += (
        "eval_iters = 200\nwandb_run_name = 'a'\nwarmup_iters = 10\ndropout = 0.1\nlr_1d = 1.0\n"
    )
    found = matters(read(tmp_path, text))
    assert [key for key, on in found.items() if on] == [
        "moe_ffn_hidden_size",
        "use_kan",
        "sdr_size",
    ]
    assert found.keys() >= {"learning_rate", "eval_iters", "wandb_run_name", "warmup_iters"}


def test_int_cuts_as_python_does(tmp_path: Path) -> None:
    # 32 · 384 / 1280 = 9.6
    job = read(tmp_path, BASE.replace("= 12", "= int(32 * 384 / 1280)"))
    assert value_of(job, "plan.microbatch") == 9


def test_accumulation_that_eight_devices_cannot_share_may_be_each_ones_own(tmp_path: Path) -> None:
    said = [why for what, _, why in read(tmp_path, BASE.replace("= 40", "= 5")).assumed
            if what == "accumulation"]  # fmt: skip
    assert len(said) == 1 and "--set sequences_per_step=N" in said[0]
    assert not [1 for what, _, _ in read(tmp_path, BASE).assumed if what == "accumulation"]


def test_a_shape_alone_is_one(tmp_path: Path) -> None:
    job = read(tmp_path, "n_layer = 24\nn_head = 16\nn_embd = 1024\n")
    # train.py's own batch: 12 sequences, 40 forwards
    assert value_of(job, "sequences_per_step") == 480
    assert value_of(job, "model.n_layers") == 24
