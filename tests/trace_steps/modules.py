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
