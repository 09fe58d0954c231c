"""Modules written for the tests, as users write theirs."""

import torch
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    def __init__(self, d: int, heads: int, kv_heads: int, eager: bool = False) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.eager = heads, kv_heads, eager
        wide = d // heads * kv_heads
        self.query, self.out = nn.Linear(d, d, bias=False), nn.Linear(d, d)
        self.key, self.value = nn.Linear(d, wide), nn.Linear(d, wide, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, d = x.shape
        q = self.query(x).view(b, t, self.heads, -1).transpose(1, 2)
        k = self.key(x).view(b, t, self.kv_heads, -1).transpose(1, 2)
        v = self.value(x).view(b, t, self.kv_heads, -1).transpose(1, 2)
        if self.eager:
            k = k.repeat_interleave(self.heads // self.kv_heads, 1)
            v = v.repeat_interleave(self.heads // self.kv_heads, 1)
            seen = torch.ones(t, t, dtype=torch.bool, device=x.device).tril()
            scores = (q @ k.transpose(-1, -2)).masked_fill(~seen, float("-inf"))
            mixed = scores.softmax(-1) @ v
        else:
            mixed = functional.scaled_dot_product_attention(
                q, k, v, is_causal=True, enable_gqa=True
            )
        return self.out(mixed.transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, d: int, eager: bool, gated: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attention = Attention(d, 8, 2, eager)
        self.up, self.down = nn.Linear(d, 3 * d), nn.Linear(3 * d, d)
        self.gate = nn.Linear(d, 3 * d) if gated else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        y = self.norm2(x)
        up = self.up(y)
        up = up * functional.silu(self.gate(y)) if self.gate is not None else up.relu()
        return x + self.down(up)


class Decoder(nn.Module):
    """Tables of tokens and positions, blocks, a head that may be the table's transpose."""

    def __init__(
        self, d: int = 64, layers: int = 3, eager: bool = False, gated: bool = True,
        tied: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.tokens, self.positions = nn.Embedding(500, d), nn.Embedding(128, d)
        self.blocks = nn.ModuleList(Block(d, eager, gated) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, 500, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def plain() -> nn.Module:
    return Decoder()


def tied() -> nn.Module:
    return Decoder(tied=True, gated=False)


def eager() -> nn.Module:
    return Decoder(eager=True)


def huge() -> nn.Module:
    """17 billion parameters, which no test could hold."""
    return Decoder(d=8192, layers=20)


def long() -> nn.Module:
    """More positions than tokens."""
    module = Decoder()
    module.positions = nn.Embedding(2048, 64)
    return module


class Layers(nn.Module):
    """PyTorch's own transformer layers."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(500, 64), nn.Linear(64, 500)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(64, 4, 256, batch_first=True) for _ in range(2)
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def layers() -> nn.Module:
    return Layers()


def with_inputs() -> tuple[nn.Module, tuple[torch.Tensor]]:
    return Decoder(), (torch.zeros((2, 16), dtype=torch.long),)


def failing() -> nn.Module:
    raise KeyError("no such size")


def wrong() -> int:
    return 3


class Reads(Decoder):
    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return super().forward(tokens) * tokens.sum().item()


def reads() -> nn.Module:
    return Reads()


class Routed(nn.Module):
    """Experts in a list, visited by a loop over those that were chosen, as older code has them."""

    def __init__(self, d: int, experts: int, k: int, pair: bool, named: bool) -> None:
        super().__init__()
        self.pair, self.router = pair, nn.Linear(d, experts, bias=False)
        self.picked = k
        if named:
            self.top_k = k
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(d, 2 * d), nn.ReLU(), nn.Linear(2 * d, d))
            for _ in range(experts)
        )
        self.shared = nn.Sequential(nn.Linear(d, 3 * d), nn.ReLU(), nn.Linear(3 * d, d))

    def forward(self, x: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        flat = x.reshape(-1, x.shape[-1])
        scores = self.router(flat)
        if hasattr(self, "top_k"):  # no topk: the best by sorting
            chosen = scores.argsort(-1, descending=True)[:, : self.top_k]
        else:
            chosen = scores.topk(self.picked, -1).indices
        out = self.shared(flat)
        for number in chosen.unique().tolist():
            at = (chosen == number).any(-1).nonzero()[:, 0]
            out = out.index_add(0, at, self.experts[number](flat[at]))
        out = out.reshape(x.shape)
        return (out, scores) if self.pair else out


class RoutedBlock(nn.Module):
    def __init__(self, pair: bool, named: bool) -> None:
        super().__init__()
        self.attention, self.norm = Attention(64, 8, 2), nn.LayerNorm(64)
        self.mlp = Routed(64, 8, 2, pair, named)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(x)
        out = self.mlp(self.norm(x))
        return x + (out[0] if self.mlp.pair else out)


def routed(pair: bool = False, named: bool = False) -> nn.Module:
    module = Decoder()
    module.blocks = nn.ModuleList(RoutedBlock(pair, named) for _ in range(3))
    return module


def routed_pair() -> nn.Module:
    return routed(pair=True)


def routed_named() -> nn.Module:
    return routed(named=True)


class Mixer(nn.Module):
    """Maps along the tokens, then along the channels; no attention."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.ModuleList(nn.Linear(16, 16) for _ in range(2))
        self.channels = nn.ModuleList(nn.Linear(24, 24) for _ in range(2))
        self.scale = nn.Parameter(torch.ones(24))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for along, across in zip(self.tokens, self.channels, strict=True):
            x = x + along(x.transpose(1, 2)).transpose(1, 2)
            x = x + across(x) * self.scale
        return x


def mixer() -> tuple[nn.Module, tuple[torch.Tensor]]:
    return Mixer(), (torch.zeros(4, 16, 24),)


class Pyramid(nn.Module):
    """Convolutions, one of them in groups, one transposed, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.apart = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.back = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.head = nn.Linear(4, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.back(self.apart(self.stem(x))).mean((2, 3)))


def pyramid() -> tuple[nn.Module, tuple[torch.Tensor]]:
    return Pyramid(), (torch.zeros(2, 3, 32, 32),)


SMALL = {
    "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 500,
    "num_key_value_heads": 4, "intermediate_size": 96,
}  # fmt: skip
LATENT = {"kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 20}
CONFIGS: dict[str, dict[str, object]] = {
    "mixtral": {**SMALL, "num_local_experts": 8, "num_experts_per_tok": 2},
    "qwen3_moe": {**SMALL, "num_experts": 16, "num_experts_per_tok": 4, "head_dim": 24,
                  "moe_intermediate_size": 48, "num_key_value_heads": 2},
    "qwen2_moe": {**SMALL, "num_experts": 16, "num_experts_per_tok": 4,
                  "moe_intermediate_size": 48, "shared_expert_intermediate_size": 56},
    "deepseek_v2": {**SMALL, **LATENT, "n_routed_experts": 16, "num_experts_per_tok": 4,
                    "moe_intermediate_size": 48, "n_shared_experts": 2, "q_lora_rank": None,
                    "first_k_dense_replace": 1},
    "deepseek_v3": {**SMALL, **LATENT, "n_routed_experts": 16, "num_experts_per_tok": 4,
                    "n_group": 4, "topk_group": 2, "moe_intermediate_size": 48,
                    "n_shared_experts": 1, "q_lora_rank": 24, "first_k_dense_replace": 1},
    "gpt_oss": {**SMALL, "num_local_experts": 8, "num_experts_per_tok": 2, "head_dim": 16},
    "olmoe": {**SMALL, "num_experts": 8, "num_experts_per_tok": 2},
    "glm4_moe": {**SMALL, "n_routed_experts": 8, "num_experts_per_tok": 2, "head_dim": 16,
                 "moe_intermediate_size": 48, "n_shared_experts": 1, "first_k_dense_replace": 1},
}  # fmt: skip


def published(kind: str) -> nn.Module:
    import transformers

    config = transformers.AutoConfig.for_model(kind, **CONFIGS[kind])
    return transformers.AutoModelForCausalLM.from_config(config)


def mixtral() -> nn.Module:
    return published("mixtral")


def qwen3_moe() -> nn.Module:
    return published("qwen3_moe")


def qwen2_moe() -> nn.Module:
    return published("qwen2_moe")


def deepseek_v2() -> nn.Module:
    return published("deepseek_v2")


def deepseek_v3() -> nn.Module:
    return published("deepseek_v3")


def gpt_oss() -> nn.Module:
    return published("gpt_oss")


def olmoe() -> nn.Module:
    return published("olmoe")


def glm4_moe() -> nn.Module:
    return published("glm4_moe")


def resnet() -> tuple[nn.Module, tuple[torch.Tensor]]:
    import transformers

    return transformers.ResNetForImageClassification(transformers.ResNetConfig()), (
        torch.zeros(2, 3, 224, 224),
    )


class Image(nn.Module):
    """A vision transformer: patches by a convolution, a class token, blocks, classes."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.token = nn.Conv2d(3, 64, 8, 8), nn.Parameter(torch.zeros(1, 1, 64))
        nn.init.trunc_normal_(self.token, std=0.02)
        self.blocks = nn.ModuleList(Block(64, False, False) for _ in range(2))
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        patches = self.stem(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(patches), -1, -1), patches], 1)
        for block in self.blocks:
            x = block(x)
        return self.head(x[:, 0])


def image() -> tuple[nn.Module, tuple[torch.Tensor]]:
    return Image(), (torch.zeros(2, 3, 32, 32),)


def image_without_inputs() -> nn.Module:
    return Image()


class Timed(nn.Module):
    """An image's patches under a time and a class: blocks that are modulated, as DiT's are."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.classes = nn.Linear(48, 64), nn.Embedding(11, 64)
        self.time = nn.Linear(16, 64)
        self.blocks = nn.ModuleList(Block(64, False, False) for _ in range(2))
        self.head = nn.Linear(64, 48)

    def forward(self, x: torch.Tensor, time: torch.Tensor, kind: torch.Tensor) -> torch.Tensor:
        x = self.patches(x) + (self.time(time) + self.classes(kind))[:, None]
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def timed() -> tuple[nn.Module, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The arguments of its call one after another."""
    times, kinds = torch.zeros(2, 16), torch.zeros(2, dtype=torch.long)
    return Timed(), torch.zeros(2, 16, 48), times, kinds


class Stack(nn.Module):
    """PyTorch's own stack, which copies one layer and has a fused path of its own."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(64, 4, 256, batch_first=True)
        self.tokens, self.head = nn.Embedding(500, 64), nn.Linear(64, 500)
        self.encoder = nn.TransformerEncoder(layer, 3)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.tokens(tokens)))


def stack() -> nn.Module:
    return Stack()


class Pair(nn.Module):
    """An encoder and a decoder, whose queries and keys are made by parts of one parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.both = nn.Transformer(64, 4, 2, 2, 128, batch_first=True)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return self.both(source, target)


def pair() -> tuple[nn.Module, tuple[torch.Tensor, torch.Tensor]]:
    return Pair(), (torch.zeros(2, 16, 64), torch.zeros(2, 12, 64))


def half() -> nn.Module:
    """In 16 bits, its head still the table's transpose."""
    return Decoder(tied=True, gated=False).to(torch.bfloat16)


class OnChip(Decoder):
    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return super().forward(tokens.cuda().to("cuda:0"))


def on_chip() -> nn.Module:
    return OnChip().cuda()


class Linear(nn.Module):
    """Attention without a softmax over keys: what keys and values make is met by the queries."""

    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads, self.maps = heads, nn.Linear(d, 3 * d)
        self.out = nn.Linear(d, d)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, d = x.shape
        made = self.maps(x).view(b, t, 3, self.heads, d // self.heads)
        q, k, v = made.permute(2, 0, 3, 1, 4)
        mixed = q.softmax(-1) @ (k.softmax(-2).transpose(-1, -2) @ v)
        return x + self.out(mixed.transpose(1, 2).reshape(b, t, d))


def linear() -> tuple[nn.Module, tuple[torch.Tensor]]:
    """As many positions as a head is wide, so that shapes alone would tell nothing."""
    return nn.Sequential(Linear(64, 4), Linear(64, 4)), (torch.zeros(2, 16, 64),)


class Normed(nn.Module):
    """Weights that are made of two parameters each time."""

    def __init__(self) -> None:
        super().__init__()
        norm = nn.utils.parametrizations.weight_norm
        self.stem = norm(nn.Conv1d(8, 16, 3, padding=1))
        self.blocks = nn.ModuleList(norm(nn.Linear(16, 16)) for _ in range(2))
        self.head = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def normed() -> tuple[nn.Module, tuple[torch.Tensor]]:
    return Normed(), (torch.zeros(2, 8, 32),)


def swin() -> tuple[nn.Module, tuple[torch.Tensor]]:
    """Two equal blocks, each with a table of two columns, that are no experts."""
    import transformers

    config = transformers.SwinConfig(
        image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4
    )
    return transformers.SwinForImageClassification(config), (torch.zeros(2, 3, 32, 32),)


class Flexible(Attention):
    """Attention by a mask that is a function."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        b, t, d = x.shape
        q = self.query(x).view(b, t, self.heads, -1).transpose(1, 2)
        k = self.key(x).view(b, t, self.kv_heads, -1).transpose(1, 2)
        v = self.value(x).view(b, t, self.kv_heads, -1).transpose(1, 2)
        mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, t, t, device="cpu")
        mixed = flex_attention(q, k, v, block_mask=mask, enable_gqa=True)
        return self.out(mixed.transpose(1, 2).reshape(b, t, d))


def flexible() -> nn.Module:
    module = Decoder()
    for block in module.blocks:
        block.attention = Flexible(64, 8, 2)
    return torch.compile(module)
