"""NeMo 2 recipes that stand in the library: what a script says by calling one."""

import math
from pathlib import Path
from typing import Any

import pytest

from chipshift.errors import InputError
from chipshift.jobs.job import TrainJob
from chipshift.jobs.read import read_job
from chipshift.jobs.readers.nemo_library import nemo_library
from chipshift.models.count import params

HEAD = "import nemo_run as run\nfrom nemo.collections import llm\n"


def read(tmp_path: Path, body: str, head: str = HEAD, **settings: str) -> TrainJob:
    file = tmp_path / "recipe.py"
    file.write_text(f"{head}{body}\n")
    return read_job([str(file)], overrides=settings)


def plan(job: TrainJob) -> Any:
    assert job.plan is not None
    return job.plan.value


def test_a_call_leaves_the_rest_to_the_library(tmp_path: Path) -> None:
    # NeMo 2.6, llama3_8b.py: cp 2, length 8192, batches 512 and 1; 2 nodes of 8 / cp 2 = dp 8
    job = read(tmp_path, "recipe = llm.llama3_8b.pretrain_recipe(dir='c', name='n', num_nodes=2)")
    assert (job.model.n_layers, job.seq_len.value, job.sequences_per_step.value) == (32, 8192, 512)
    # its mock data brings GPT-2's tokenizer: 50257 rows, padded to a multiple of 128
    assert (job.model.name, job.model.vocab) == ("llama-3-8b-altered", 393 * 128)
    assert (plan(job).dp, plan(job).cp, plan(job).accumulation) == (8, 2, 512 // 8)
    assert plan(job).optimizer_sharding == "zero1"
    assert job.precision.value.reduce == "fp32"  # bf16_mixed() reduces in fp32


def test_the_performance_options_reduce_gradients_in_bf16(tmp_path: Path) -> None:
    job = read(tmp_path, "r = llm.llama3_8b.pretrain_recipe(performance_mode=True)")
    assert job.precision.value.reduce == "bf16"


def test_what_the_script_sets_lies_over_the_recipe(tmp_path: Path) -> None:
    # llama31_70b.py: tp 4, pp 4, virtual 5, cp 2, sequence parallel
    body = (
        "recipe = llm.llama31_70b.pretrain_recipe(num_nodes=8)\n"
        "recipe.trainer.strategy.tensor_model_parallel_size = 8\n"
        "recipe.trainer.strategy.virtual_pipeline_model_parallel_size = None\n"
        "recipe.trainer.strategy.sequence_parallel = False\n"
        "recipe.data.global_batch_size = 64\n"
    )
    job = read(tmp_path, body)
    assert (plan(job).tp, plan(job).pp, plan(job).vpp, plan(job).cp) == (8, 4, 1, 2)
    assert not plan(job).sequence_parallel
    assert (plan(job).dp, job.sequences_per_step.value) == (64 // (8 * 4 * 2), 64)


def test_an_imported_function_is_its_files_recipe(tmp_path: Path) -> None:
    # mixtral_8x7b.py: pp 4, virtual 8, ep 8 on its default of 8 nodes of 8
    head = "from nemo.collections.llm.recipes.mixtral_8x7b import pretrain_recipe as make\n"
    job = read(tmp_path, "r = make(name='x')", head)
    assert job.model.name == "mixtral-8x7b-altered"  # by GPT-2's vocabulary of the mock data
    assert (plan(job).pp, plan(job).vpp, plan(job).ep) == (4, 8, 8)
    assert job.devices is not None and job.devices.value == 64


def test_a_default_of_nodes_that_the_degrees_do_not_fill_is_not_taken(tmp_path: Path) -> None:
    # llama31_405b.py: tp 8 × pp 8 × cp 4 = 256 devices, and num_nodes=1 by default
    job = read(tmp_path, "r = llm.llama31_405b.pretrain_recipe()")
    assert job.devices is None
    assert (plan(job).tp, plan(job).pp, plan(job).cp) == (8, 8, 4)


@pytest.mark.parametrize(
    ("arguments", "task", "length", "batch"),
    [
        ("", "lora", 2048, 128),
        ("peft_scheme='none'", "sft", 2048, 128),
        ("peft_scheme=None, packed_sequence=True", "sft", 4096, 8),
        ("packed_sequence=True, seq_length=8192", "lora", 8192, 8),
    ],
)
def test_fine_tuning_is_what_its_arguments_choose(
    tmp_path: Path, arguments: str, task: str, length: int, batch: int
) -> None:
    job = read(tmp_path, f"r = llm.llama3_8b.finetune_recipe({arguments})")
    found = (job.task, job.seq_len.value, job.sequences_per_step.value)
    assert found == (task, length, batch)


def test_adapters_are_the_recipes_and_their_optimizer_is_not_sharded(tmp_path: Path) -> None:
    # rank 8 on every map of a layer: q 4096+4096, k and v 4096+1024, o 4096+4096, gate, up and
    # down 4096+14336, over (4096·(2·4096 + 2·1024) + 3·4096·14336) a layer and the head's matmul
    adapters = 8 * (2 * 8192 + 2 * 5120 + 3 * 18432) * 32
    maps = (4096 * (2 * 4096 + 2 * 1024) + 3 * 4096 * 14336) * 32 + 4096 * 128256
    job = read(tmp_path, "r = llm.llama3_8b.finetune_recipe()")
    assert job.trainable_fraction == pytest.approx(adapters / maps, rel=1e-12)
    assert plan(job).optimizer_sharding == "none"


def test_an_unknown_recipe_asks_for_its_model(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected it, --set num-layers=N, or --model"):
        read(tmp_path, "r = pretrain_recipe(num_nodes=2, tensor_model_parallel_size=2)")


RECIPES = sorted({recipe for recipe, _ in nemo_library()})


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_read(tmp_path: Path, name: str) -> None:
    """On as many nodes as its degrees fill; dp is what they leave."""
    form = "pretrain" if (name, "pretrain") in nemo_library() else "finetune"
    recipe = nemo_library()[name, "pretrain" if form == "pretrain" else "finetune_lora"]
    degrees = {
        axis: int(recipe.library.settings.get(key, 1))
        for axis, key in (
            ("tp", "tensor_model_parallel_size"),
            ("pp", "pipeline_model_parallel_size"),
            ("cp", "context_parallel_size"),
            ("ep", "expert_model_parallel_size"),
        )
    }
    of_node = recipe.devices_per_node
    nodes = math.lcm(math.prod(degrees.values()), of_node) // of_node
    job = read(tmp_path, f"r = llm.{name}.{form}_recipe(num_nodes={nodes})")
    found = plan(job)
    assert {axis: getattr(found, axis) for axis in degrees} == degrees
    model_parallel = degrees["tp"] * degrees["pp"] * degrees["cp"]
    assert found.dp * found.fsdp * model_parallel == of_node * nodes
    assert job.sequences_per_step.value == int(recipe.library.settings["global_batch_size"])


def test_nemo_1_states_a_vocabulary_and_biases_of_its_own(tmp_path: Path) -> None:
    """Llama 2 7B's shape with Qwen's vocabulary and biases is not Llama 2 7B."""
    file = tmp_path / "qwen.yaml"
    file.write_text(
        "trainer:\n  num_nodes: 1\n  devices: 8\n  precision: bf16\nmodel:\n"
        "  micro_batch_size: 1\n  global_batch_size: 8\n  tensor_model_parallel_size: 1\n"
        "  pipeline_model_parallel_size: 1\n  encoder_seq_length: 4096\n  num_layers: 32\n"
        "  hidden_size: 4096\n  ffn_hidden_size: 11008\n  num_attention_heads: 32\n"
        "  override_vocab_size: 151936\n  make_vocab_size_divisible_by: 128\n  bias: false\n"
        "  qkv_bias: true\n  activation: fast-swiglu\n  normalization: rmsnorm\n"
        "  position_embedding_type: rope\n  share_embeddings_and_output_weights: false\n"
    )
    model = read_job([str(file)]).model
    assert model.vocab == 151936  # 1187 · 128: no rows are added
    # 32 layers of 4·4096² + 3·4096·11008 + 3·4096 biases + 2·4096 norms; two of 151936·4096; a norm
    layer = 4 * 4096**2 + 3 * 4096 * 11008 + 3 * 4096 + 2 * 4096
    assert params(model) == 32 * layer + 2 * 151936 * 4096 + 4096
