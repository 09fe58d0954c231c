"""``--torch``: parameters and matmul FLOPs of a module read on fake tensors equal the module's."""

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import pytest

from chipshift.cli.app import run
from chipshift.errors import InputError
from chipshift.models.count import params, params_active, params_embedding
from chipshift.models.hf import read_config
from chipshift.models.items import backward_flops, item_flops
from chipshift.models.model import Layer, Model, MoeMlp
from chipshift.models.ops import forward_flops_per_token
from chipshift.trace.torch_model import read_torch_model

reference = [
    pytest.mark.reference,
    # PyTorch's own
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
HERE = Path(__file__).parent / "modules.py"
SFT = (
    "model_name_or_path: my/own\nper_device_train_batch_size: 4\nmax_length: 1024\nbf16: true\n"
    "output_dir: o\n"
)


class TestWithTorch:
    pytestmark = reference

    @pytest.mark.parametrize("name", ["plain", "tied", "eager", "long", "with_inputs"])
    def test_parameters_and_flops_are_the_modules(self, name: str) -> None:
        import torch
        from torch.utils.flop_counter import FlopCounterMode

        from . import modules

        made = getattr(modules, name)()
        module = made[0] if isinstance(made, tuple) else made
        model = read_torch_model(f"{HERE}:{name}")
        assert params(model) == sum(p.numel() for p in module.parameters())
        # the counter sees eager attention over all pairs of positions
        module.eval()
        for block in module.blocks:
            block.attention.eager = True
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            module(torch.zeros((1, 32), dtype=torch.long))
        assert forward_flops_per_token(_all_pairs(model), 32) * 32 == counter.get_total_flops()

    def test_the_structure_is_found(self) -> None:
        model = read_torch_model(f"{HERE}:plain")
        ((layer, count),) = model.layers
        assert (count, model.d_model, model.vocab, model.tied) == (3, 64, 500, False)
        assert layer.attention is not None and layer.mlp is not None
        attention = layer.attention
        assert (attention.heads, attention.kv_heads, attention.head_dim) == (8, 2, 8)
        assert attention.causal
        assert (layer.mlp.width, layer.mlp.matrices) == (192, 3)
        assert params_embedding(model) == 500 * 64 + 128 * 64  # tokens and positions
        assert read_torch_model(f"{HERE}:tied").tied

    def test_pytorchs_own_layers_attend_without_causality(self) -> None:
        from . import modules

        model = read_torch_model(f"{HERE}:layers")
        ((layer, count),) = model.layers
        assert layer.attention is not None
        attention = layer.attention
        assert (count, attention.heads, attention.causal) == (2, 4, False)
        assert params(model) == sum(p.numel() for p in modules.Layers().parameters())
        # maps: 4·D² of attention, 2·D·4D of the feed-forward, the head; attention over 32 keys
        maps = 2 * (4 * 64 * 64 + 2 * 64 * 256) + 64 * 500
        assert forward_flops_per_token(model, 32) == 2 * maps + 2 * (2 * 32 * 2 * 64)

    def test_keys_that_were_repeated_for_the_heads_are_counted_once(self) -> None:
        attention = read_torch_model(f"{HERE}:eager").layers[0][0].attention
        assert attention is not None and attention.kv_heads == 2

    @pytest.mark.parametrize(
        "name",
        ["mixtral", "qwen3_moe", "qwen2_moe", "deepseek_v2", "deepseek_v3", "gpt_oss", "olmoe",
         "glm4_moe"],
    )  # fmt: skip
    def test_experts_and_latent_attention_are_those_of_the_config(self, name: str) -> None:
        from . import modules

        read = read_torch_model(f"{HERE}:{name}")
        config = {"model_type": name, "tie_word_embeddings": False, **modules.CONFIGS[name]}
        told = read_config(config)
        assert params(read) == params(told)
        assert params_active(read) == params_active(told)
        # windows and attention sinks are not seen in a trace: compared over all pairs
        a, b = (forward_flops_per_token(_without_windows(m), 32) for m in (read, told))
        assert a == pytest.approx(b, rel=1e-12)
        ((what, value),) = read.defaults
        k = modules.CONFIGS[name]["num_experts_per_tok"]
        assert what == "experts a token" and f"{k} of " in str(value)

    @pytest.mark.parametrize(
        ("name", "told"),
        [("routed", "the router's topk"), ("routed_pair", "the router's topk"),
         ("routed_named", "the attribute top_k")],
    )  # fmt: skip
    def test_a_loop_over_what_was_chosen_is_told_by_shapes(self, name: str, told: str) -> None:
        from . import modules

        model = read_torch_model(f"{HERE}:{name}")
        ((layer, count),) = model.layers
        assert count == 3 and isinstance(layer.mlp, MoeMlp)
        moe = layer.mlp
        assert (moe.experts, moe.top_k, moe.width, moe.matrices) == (8, 2, 128, 2)
        assert moe.shared_width == 192
        assert model.defaults == (("experts a token", f"2 of 8 ({told})"),)
        assert params(model) == sum(p.numel() for p in modules.routed().parameters())
        # 6 of 8 experts of two 64 × 128 maps with biases idle in each of 3 layers
        idle = 3 * 6 * (2 * 64 * 128 + 128 + 64)
        assert params_active(model) == params(model) - idle

    @pytest.mark.parametrize("name", ["mixer", "pyramid", "resnet", "linear", "normed", "swin"])
    def test_what_is_no_transformer_is_its_ops(self, name: str) -> None:
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from torch.utils.flop_counter import FlopCounterMode

        from . import modules

        module, inputs = getattr(modules, name)()
        model = read_torch_model(f"{HERE}:{name}")
        assert params(model) == sum(p.numel() for p in module.parameters())
        assert model.defaults[0][0] == "read as"
        module.eval()
        # so that attention is matmuls, and counted as such
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            module(*inputs)
        assert item_flops(model) * len(inputs[0]) == counter.get_total_flops()

    def test_a_convolution_before_the_blocks_is_counted(self) -> None:
        model = read_torch_model(f"{HERE}:image")
        # 16 patches of 3 × 8 × 8 and a class token: 17 positions in two blocks
        assert (model.tokens, model.n_layers) == (17, 2)
        stem = 2 * 16 * (3 * 8 * 8) * 64
        # q and the way out 64 × 64, k and v 64 × 16 (2 of 8 heads), 64 × 192 there and back
        maps = 2 * 17 * (2 * 64 * 64 + 2 * 64 * 16 + 2 * 64 * 192)
        scores = 2 * 2 * 17 * 17 * 64
        head = 2 * 64 * 10  # of the class token alone
        assert item_flops(_all_pairs(model)) == stem + 2 * (maps + scores) + head
        # nobody wants a gradient of the pixels
        whole = backward_flops(_all_pairs(model))
        assert whole == stem + 2 * (2 * (maps + scores) + head)

    def test_tensors_after_the_module_are_the_arguments_of_its_call(self) -> None:
        from . import modules

        model = read_torch_model(f"{HERE}:timed")
        assert params(model) == sum(p.numel() for p in modules.Timed().parameters())
        # a table that is looked up once an item is of classes: no vocabulary, no head over it
        assert (model.tokens, model.has_head) == (16, False)
        maps = 2 * 16 * (2 * 64 * 64 + 2 * 64 * 16 + 2 * 64 * 192)
        scores = 2 * 2 * 16 * 16 * 64
        ends = 2 * 16 * 48 * 64 + 2 * 16 * 64 + 2 * 16 * 64 * 48
        assert item_flops(_all_pairs(model)) == ends + 2 * (maps + scores)

    def test_pytorchs_own_stack_of_copies(self) -> None:
        from . import modules

        model = read_torch_model(f"{HERE}:stack")
        ((layer, count),) = model.layers
        assert layer.attention is not None
        assert (count, layer.attention.heads, model.has_head) == (3, 4, True)
        assert params(model) == sum(p.numel() for p in modules.Stack().parameters())
        maps = 3 * (4 * 64 * 64 + 2 * 64 * 256) + 64 * 500
        assert forward_flops_per_token(model, 32) == 2 * maps + 3 * (2 * 32 * 2 * 64)

    def test_parts_of_one_parameter_are_ops_by_themselves(self) -> None:
        from . import modules

        model = read_torch_model(f"{HERE}:pair")
        assert params(model) == sum(p.numel() for p in modules.Pair().parameters())
        # 16 positions through two encoder blocks: 4·D² and 2 maps to 128 and back, D = 64
        encoder = 2 * (2 * 16 * (4 * 64 * 64 + 2 * 64 * 128) + 2 * 2 * 16 * 16 * 64)
        # 12 through two decoder blocks: the same, and q and the way out of the second attention,
        # whose keys and values are of the encoder's 16
        own = 2 * 12 * (4 * 64 * 64 + 2 * 64 * 128) + 2 * 2 * 12 * 12 * 64
        across = 2 * 12 * 2 * 64 * 64 + 2 * 16 * 2 * 64 * 64 + 2 * 2 * 12 * 16 * 64
        assert item_flops(model) == encoder + 2 * (own + across)

    def test_a_module_moved_to_a_chip_or_to_16_bits_is_read(self) -> None:
        for name, like in (("half", "tied"), ("on_chip", "plain")):
            found, expected = (read_torch_model(f"{HERE}:{n}") for n in (name, like))
            assert params(found) == params(expected)
            assert (found.tied, found.n_layers) == (expected.tied, 3)

    def test_flex_attention_is_attention(self) -> None:
        found, expected = (read_torch_model(f"{HERE}:{n}") for n in ("flexible", "plain"))
        assert found.layers == expected.layers  # causal, by its mask
        assert params(found) == params(expected)

    def test_no_memory_is_taken(self) -> None:
        model = read_torch_model(f"{HERE}:huge")
        assert params(model) > 10_000_000_000 and model.n_layers == 20

    @pytest.mark.parametrize(
        ("name", "says"),
        [
            ("failing", r"modules\.py:\d+: KeyError: 'no such size'"),
            ("wrong", "returned int, expected an nn.Module"),
            ("reads", r"modules\.py:\d+: DataDependentOutputException"),
            ("plains", "did you mean 'plain'"),
            ("image_without_inputs", r"given 64 token ids; .* returns \(module, example inputs\)"),
        ],
    )
    def test_what_fails_is_one_sentence(self, name: str, says: str) -> None:
        with pytest.raises(InputError, match=says) as caught:
            read_torch_model(f"{HERE}:{name}")
        assert "\n" not in str(caught.value)

    def test_the_commands_take_it(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "sft.yaml").write_text(SFT)
        job = [str(tmp_path / "sft.yaml"), "--torch", f"{HERE}:plain", "--on", "h100*8", "--json"]
        assert run(["read", *job]) == 0
        assert json.loads(capsys.readouterr().out)["model"]["name"] == "Decoder"
        assert run(["estimate", *job]) == 0
        capsys.readouterr()
        assert run(["plan", *job, "--to", "v6e:2x4"]) == 0
        capsys.readouterr()
        assert run(["assess", *job, "--to", "v6e:2x4"]) == 0


def _without_windows(model: Model) -> Model:
    def bare(layer: Layer) -> Layer:
        assert layer.attention is not None
        return replace(layer, attention=replace(layer.attention, window=None))

    return replace(model, layers=tuple((bare(layer), n) for layer, n in model.layers))


def _all_pairs(model: Model) -> Model:
    ((layer, count),) = model.layers
    assert layer.attention is not None
    whole = replace(layer.attention, causal=False)
    return replace(model, layers=((replace(layer, attention=whole), count),))


def test_without_torch_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"--torch needs PyTorch.*chipshift\[torch\]"):
        read_torch_model("model.py:make")


def test_two_models_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sft.yaml").write_text(SFT)
    arguments = ["read", str(tmp_path / "sft.yaml"), "--torch", "a:b", "--model", "llama-3.1-8b"]
    assert run(arguments) == 2
    assert "--model and --torch" in capsys.readouterr().err
