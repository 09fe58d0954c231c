"""Keys that files of further publishers have and that were once passed over, format by format."""

from pathlib import Path

import pytest

from chipshift.errors import InputError
from chipshift.jobs.job import TrainJob
from chipshift.jobs.read import read_job
from chipshift.models.count import params

from .test_spellings import job, plan_on

NEMO = """
trainer: {devices: 8, num_nodes: 4, precision: bf16}
model:
  micro_batch_size: 1
  global_batch_size: 64
  tensor_model_parallel_size: 4
  encoder_seq_length: 2048
  num_layers: 4
  hidden_size: 1024
  ffn_hidden_size: 2816
  num_attention_heads: 16
  num_kv_heads: 4
  activation: swiglu
  normalization: rmsnorm
  position_embedding_type: rope
  share_embeddings_and_output_weights: false
  has_bias: false
  make_vocab_size_divisible_by: 8
  tokenizer: {library: huggingface, type: /data/own-tokenizer}
  optim: {name: distributed_fused_adam, grad_sync_dtype: bf16}
"""


def test_nemo_1_reduces_gradients_in_the_dtype_it_names(tmp_path: Path) -> None:
    found = job(tmp_path, NEMO.replace("devices: 8", "devices: 8, max_steps: 5") + OVERRIDE)
    assert (found.precision.value.gradients, found.precision.value.reduce) == ("bf16", "bf16")
    wide = job(tmp_path, NEMO.replace("bf16}", "fp32}") + OVERRIDE)
    assert (wide.precision.value.gradients, wide.precision.value.reduce) == ("fp32", "fp32")


OVERRIDE = "  override_vocab_size: 32000\n"


def test_nemo_1_key_value_heads_and_biases_of_a_fork(tmp_path: Path) -> None:
    found = job(tmp_path, NEMO + OVERRIDE)
    d, kv, ffn, vocab = 1024, 4 * 64, 2816, 32000
    # q and o, k and v, three of the gated MLP, two norms; no biases; embedding, head, last norm
    layer = 2 * d * d + 2 * d * kv + 3 * d * ffn + 2 * d
    assert params(found.model) == 4 * layer + 2 * vocab * d + d


def test_nemo_1_without_a_vocabulary_is_told_in_its_own_words(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"own-tokenizer\); expected vocab_size in it or --set"):
        job(tmp_path, NEMO)


NANOTRON = """
model:
  dtype: bfloat16
  make_vocab_size_divisible_by: 8
  model_config:
    is_starcoder2_config: true
    hidden_size: 512
    num_attention_heads: 8
    num_kv_heads: 2
    num_hidden_layers: 2
    vocab_size: 1001
    max_position_embeddings: 4096
    activation_function: gelu
    sliding_window_size: 4096
parallelism: {dp: 2, tp: 2, pp: 1, tp_mode: REDUCE_SCATTER, recompute_granularity: SELECTIVE}
tokens: {micro_batch_size: 2, batch_accumulation_per_replica: 4, sequence_length: 2048}
optimizer: {zero_stage: 0, accumulate_grad_in_fp32: true}
data_stages:
- {name: short, start_training_step: 1, data: {seed: 1}}
- {name: long, start_training_step: 900, sequence_length: 4096, data: {seed: 1}}
"""


def test_nanotrons_starcoder2_and_its_padded_vocabulary(tmp_path: Path) -> None:
    found = job(tmp_path, NANOTRON)
    d, kv, rows = 512, 2 * 64, 1008  # 1001 rows up to a multiple of 8 × tp 2
    attention = 2 * (d * d + d) + 2 * (d * kv + kv)  # q, o, k and v with biases
    mlp = 2 * (4 * d * d) + 4 * d + d  # four times the width, biases of both
    # two LayerNorms a layer with weight and bias, one at the end; the head is the embedding
    assert params(found.model) == 2 * (attention + mlp + 2 * 2 * d) + rows * d + 2 * d


def test_nanotrons_granularity_of_2023_and_a_longer_stage(tmp_path: Path) -> None:
    found = job(tmp_path, NANOTRON)
    assert found.plan is not None
    assert found.plan.value.remat == "selective"
    assert any(what == "sequence length" and "4096" in why for what, _, why in found.assumed)


def test_a_table_that_nanotron_does_not_know_is_said_to_matter(tmp_path: Path) -> None:
    found = job(tmp_path, NANOTRON + "infini_attention: {turn_on_memory: true}\n")
    assert [i.key for i in found.ignored if i.matters] == ["infini_attention.turn_on_memory"]


LEVANTER = """
trainer:
  mp: p=f32,c=bfloat16
  train_batch_size: 64
  per_device_parallelism: 4
"""
SMALL = "model: {type: gpt2, hidden_dim: 256, num_heads: 4, num_layers: 2, seq_len: 512}\n"


def test_levanters_vocabulary_of_tokens_passed_through(tmp_path: Path) -> None:
    found = job(tmp_path, LEVANTER + SMALL + "data: {tokenizer: passthrough, vocab_size: 1234}\n")
    assert found.model.vocab == 1234


@pytest.mark.parametrize("shape", ["use_hf_model_config: true\n" + SMALL, "lora: {r: 8}\n"])
def test_levanter_takes_no_default_shape_for_a_checkpoint_not_known(
    tmp_path: Path, shape: str
) -> None:
    with pytest.raises(InputError, match="'acme/own-1b', which is not a shipped model"):
        job(tmp_path, LEVANTER + shape + "initialize_from_hf: acme/own-1b\n")


FACTORY = """
model_name_or_path: Qwen/Qwen2.5-7B
stage: sft
finetuning_type: full
cutoff_len: 2048
per_device_train_batch_size: 1
bf16: true
"""


def test_llama_factorys_muon(tmp_path: Path) -> None:
    assert job(tmp_path, FACTORY + "use_muon: true\n").optimizer.value == "muon"
    assert job(tmp_path, FACTORY + "use_muon: false\n").optimizer.value == "adamw"


def test_llama_factorys_orthogonal_adapters_are_said_to_be_taken_for_full(tmp_path: Path) -> None:
    found = job(tmp_path, FACTORY.replace("full", "oft") + "oft_block_size: 32\n")
    assert any(what == "trained weights" and "oft" in why for what, _, why in found.assumed)
    assert [i.key for i in found.ignored if i.matters] == ["oft_block_size"]


@pytest.mark.parametrize(
    "key, matters",
    [
        ("use_dynamic_sparse: true", True),
        ("moe_expert_offload: cpu", True),
        ("use_dynamic_sparse: false", False),
        ("eval_max_length: 4096", False),
        ("own_note: hello", False),
    ],
)
def test_an_unknown_key_whose_name_bears_on_memory_is_shown(
    tmp_path: Path, key: str, matters: bool
) -> None:
    found = job(tmp_path, FACTORY + key + "\n")
    assert [i.matters for i in found.ignored if i.key == key.split(":")[0]] == [matters]


def test_plan_of_the_first_stage(tmp_path: Path) -> None:
    plan = plan_on(job(tmp_path, NANOTRON), "h100*4")
    assert (plan.dp, plan.tp, plan.microbatch, plan.accumulation) == (2, 2, 2, 4)


TORCHTUNE = """
model: {_component_: torchtune.models.llama3_1.llama3_1_8b}
tokenizer:
  _component_: torchtune.models.llama3.llama3_tokenizer
  max_seq_len: LENGTH
dataset: {packed: false}
batch_size: 2
optimizer: {_component_: torch.optim.AdamW}
loss: {_component_: torchtune.dev.rl.loss.GRPOSimpleLoss}
grpo_samples: 8
dtype: bf16
"""


def test_torchtunes_null_length_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"job\.yaml:5: tokenizer\.max_seq_len is unset.*seq_len=N"
    ):
        job(tmp_path, TORCHTUNE.replace("LENGTH", "null"))


def test_torchtunes_answers_a_prompt_are_said_to_matter(tmp_path: Path) -> None:
    found = job(tmp_path, TORCHTUNE.replace("LENGTH", "1024"))
    assert "grpo_samples" in [i.key for i in found.ignored if i.matters]


TITAN_RL = """
from torchtitan.models.qwen3 import model_registry


def rl_qwen3():
    return RLTrainer.Config(
        model_spec=model_registry("0.6B"),
        batcher=Batcher.Config(
            batch=BatchConfig(local_batch_size=2, global_batch_size=16, seq_len=1024)
        ),
        trainer=PolicyTrainer.Config(
            training=TrainingConfig(),
            parallelism=ParallelismConfig(tensor_parallel_degree=2),
        ),
        generator=VLLMGenerator.Config(
            parallelism=ParallelismConfig(tensor_parallel_degree=4),
        ),
    )
"""


def test_torchtitans_generator_does_not_cut_the_trainer(tmp_path: Path) -> None:
    found = job(tmp_path, TITAN_RL, "config_registry.py")
    plan = plan_on(found, "h100*8")
    # 16 sequences = 2 a replica × 2 forwards × 4 replicas of 2 devices
    assert (plan.tp, plan.fsdp, plan.microbatch, plan.accumulation) == (2, 4, 2, 2)
    assert found.seq_len.value == 1024
    assert any(what == "task" and why.startswith("grpo") for what, _, why in found.assumed)


TITAN = """
from torchtitan.models.llama3.config_registry import llama3_8b


def tuned():
    return Trainer.Config(
        model_spec=model_registry(
            "8B_fused_qkv",
            converters=[LoRAConverter.Config(rank=4, target_modules=["wq", "wkv"])],
        ),
        training=TrainingConfig(local_batch_size=1, seq_len=2048),
    )


def traced():
    config = to_graph_trainer_config(llama3_8b(), model_registry)
    config.training = TrainingConfig(seq_len=1024)
    return config
"""


def registry(folder: Path, recipe: str) -> TrainJob:
    (folder / "llama3").mkdir()
    file = folder / "llama3" / "config_registry.py"
    file.write_text(TITAN)
    return read_job([str(file)], overrides={"recipe": recipe})


def test_torchtitans_adapters_and_a_family_told_by_its_folder(tmp_path: Path) -> None:
    found = registry(tmp_path, "tuned")
    assert (found.model.name, found.task) == ("llama-3.1-8b", "lora")
    # rank 4: q 4096 → 4096, k and v 4096 → 1024 each, 32 layers
    shown = f"{4 * 32 * (8192 + 2 * 5120):,}"
    assert ("trained parameters", shown) in [(what, value) for what, value, _ in found.assumed]


def test_torchtitans_configuration_of_another_file_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"registry\.py:16: traced starts from llama3_8b of torch"):
        registry(tmp_path, "traced")


def test_torchtitan_trains_a_model_of_transformers(tmp_path: Path) -> None:
    text = '[model]\nname = "transformers_modeling_backend"\nflavor = "full"\n'
    text += '[hf_transformers]\nmodel = "Qwen/Qwen3-4B-Instruct-2507"\n'
    text += "[training]\nlocal_batch_size = 2\nseq_len = 2048\n"
    assert job(tmp_path, text, "job.toml").model.name == "qwen3-4b"


MEGATRON = """#!/bin/bash
torchrun --nproc_per_node 8 pretrain_gpt.py \\
  --num-layers 2 --hidden-size 512 --num-attention-heads 8 --seq-length 1024 \\
  --max-position-embeddings 1024 --micro-batch-size 1 --global-batch-size 8 --bf16 \\
"""


def test_bigcodes_fork_shares_one_key_value_head(tmp_path: Path) -> None:
    found = job(
        tmp_path, MEGATRON + "  --vocab-size 1024 --attention-head-type multiquery\n", "a.sh"
    )
    d, kv = 512, 64
    attention = 2 * (d * d + d) + 2 * (d * kv + kv)
    mlp = 2 * 4 * d * d + 4 * d + d
    # two LayerNorms a layer and the last, learned positions, the head being the embedding
    expected = 2 * (attention + mlp + 4 * d) + 1024 * d + 1024 * d + 2 * d
    assert params(found.model) == expected


def test_a_model_left_to_the_checkpoint_is_said(tmp_path: Path) -> None:
    text = MEGATRON.replace("--num-layers 2", "--use-checkpoint-args")
    with pytest.raises(InputError, match=r"a\.sh:\d+: --use-checkpoint-args takes --num-layers"):
        job(tmp_path, text + "  --vocab-size 1024\n", "a.sh")


def test_the_tokenizer_of_llama_3_by_its_type(tmp_path: Path) -> None:
    text = MEGATRON + "  --tokenizer-type Llama3Tokenizer --tokenizer-model $2\n"
    assert job(tmp_path, text, "a.sh").model.vocab == 128256
