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
