"""What a model's config leaves open stands among the job's assumptions."""

import json
from pathlib import Path

from chipshift.jobs.read import read_job

EXAMPLE = Path(__file__).parents[2] / "examples" / "llama3-8b-torchtitan.toml"


def test_keys_that_a_config_leaves_out_are_listed(tmp_path: Path) -> None:
    keys = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 100,
            "num_attention_heads": 4, "intermediate_size": 128, "mlp_bias": True}  # fmt: skip
    config = tmp_path / "config.json"
    config.write_text(json.dumps(keys))
    job = read_job([str(EXAMPLE)], model=str(config))
    (entry,) = [row for row in job.assumed if row[0] == "model"]
    assert "num_key_value_heads 4" in entry[1]
    assert "mlp_bias" not in entry[1]  # the config says it
    assert "reference implementation" in entry[2]


def test_a_shipped_model_has_none() -> None:
    job = read_job([str(EXAMPLE)])
    assert [row for row in job.assumed if row[0] == "model"] == []


def test_a_diffusers_config_beside_a_job_is_its_model(tmp_path: Path) -> None:
    keys = {"_class_name": "DiTTransformer2DModel", "_diffusers_version": "0.42.0",
            "num_layers": 2, "num_attention_heads": 4, "attention_head_dim": 16}  # fmt: skip
    config = tmp_path / "config.json"
    config.write_text(json.dumps(keys))
    sft = tmp_path / "sft.yaml"
    sft.write_text("per_device_train_batch_size: 4\nmax_length: 1024\nbf16: true\noutput_dir: o\n")
    job = read_job([str(sft), str(config)])
    assert (job.model.architecture, job.model.n_layers) == ("dit", 2)
    assert any(row.key == "_class_name" for row in job.understood)


def test_weights_that_are_not_opened_and_a_class_of_its_own_are_said(tmp_path: Path) -> None:
    keys = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 100,
            "num_attention_heads": 4, "intermediate_size": 128,
            "architectures": ["MyLlamaForCausalLM"],
            "auto_map": {"AutoModelForCausalLM": "modeling.MyLlamaForCausalLM"}}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(keys))
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    job = read_job([str(EXAMPLE)], model=str(tmp_path))
    said = {row[0]: row for row in job.assumed}
    assert said["checkpoint, not opened"][1] == "pytorch_model.bin"
    assert "never run" in said["own code"][2]
