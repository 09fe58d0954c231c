"""Cases of the shape rules (see ``cases``)."""

from __future__ import annotations

SHAPES: list[tuple[str, str, str, str]] = [
    (
        "b01 packed rows by offsets",
        "varlen-packing",
        "out = flash_attn_varlen_func(q, k, v, cu, cu, s, s, causal=True)\nloss = out.mean()\n",
        "from torch_xla.experimental.custom_kernel import flash_attention\n"
        "out = flash_attention(q, k, v, q_segment_ids=seg, kv_segment_ids=seg)\n",
    ),
    (
        "offsets are built",
        "varlen-packing",
        """
        import torch
        class Net(torch.nn.Module):
            def forward(self, x, mask):
                cu_seqlens = torch.cumsum(mask.sum(1), 0)
                return self.inner(x, cu_seqlens)
        """,
        """
        import torch
        class Net(torch.nn.Module):
            def forward(self, x, segment_ids):
                return self.inner(x, segment_ids)
        """,
    ),
    (
        "b03 the longest of the batch",
        "variable-length-input",
        """
        import torch
        def collate(rows):
            return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        """,
        """
        import torch
        def collate(rows):
            return torch.stack([torch.nn.functional.pad(r, (0, 512 - len(r))) for r in rows])
        """,
    ),
    (
        "b04 a packed recurrent network",
        "variable-length-input",
        """
        import torch
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        out, _ = lstm(packed)
        """,
        "import torch\nout, _ = lstm(x)\nloss = (out * mask).sum()\n",
    ),
    (
        "b05 the size is the batch's maximum",
        "variable-length-input",
        """
        def collate_tokens(values, pad):
            size = max(v.numel() for v in values)
            return values[0].new_full((len(values), size), pad)
        """,
        """
        def collate_tokens(values, pad):
            return values[0].new_full((len(values), 512), pad)
        """,
    ),
    (
        "b06 batches filled by tokens",
        "variable-length-input",
        "import torch_xla.core.xla_model as xm\n"
        "batches = batch_by_size(dataset, max_tokens=4096)\n",
        "import torch_xla.core.xla_model as xm\n"
        "batches = batch_by_size(dataset, rows=32, length=128)\n",
    ),
    (
        "a tokenizer that pads to the longest",
        "variable-length-input",
        "from transformers import AutoTokenizer\nbatch = tok(texts, padding='longest')\n",
        "from transformers import AutoTokenizer\n"
        "batch = tok(texts, padding='max_length', max_length=512)\n",
    ),
    (
        "b10 another model by step number",
        "jit-cache-miss",
        """
        import torch_xla.core.xla_model as xm
        for i, d in enumerate(loader):
            k = i % 33
            if k < 16:
                loss = first(d["a"])
            else:
                loss = second(d["a"], d["b"])
            loss.backward()
            xm.optimizer_step(opt)
        """,
        """
        import torch_xla.core.xla_model as xm
        for i, d in enumerate(loader):
            loss = first(d["a"]) + second(d["a"], d["b"])
            loss.backward()
            xm.optimizer_step(opt)
        """,
    ),
    (
        "b34 terms by step number",
        "jit-cache-miss",
        """
        def loss_fn(out, step, depths):
            total = out.main
            for d in depths:
                if step % (d + 1) == 0:
                    total = total + out.extra[d] * 0.5
            return total
        """,
        """
        def loss_fn(out, weights, depths):
            total = out.main
            for d in depths:
                total = total + out.extra[d] * weights[d]
            return total
        """,
    ),
    (
        "jit made in the loop",
        "jit-cache-miss",
        """
        import jax
        for batch in batches:
            state, loss = jax.jit(lambda s, b: update(s, b))(state, batch)
            state, loss = train_step(state, batch)
        """,
        """
        import jax
        step = jax.jit(update, donate_argnums=(0,))
        for batch in batches:
            state, loss = step(state, batch)
        """,
    ),
    (
        "b11 voiced frames",
        "nonzero-dynamic",
        """
        import torch
        def voiced_loss(f0, mel, target):
            idx = torch.nonzero(f0 > 0).squeeze(1)
            return (mel.index_select(-1, idx) - target.index_select(-1, idx)).abs().mean()
        """,
        """
        import torch
        def voiced_loss(f0, mel, target):
            mask = f0 > 0
            return ((mel - target).abs() * mask).sum() / mask.sum()
        """,
    ),
    (
        "b13 the index of a time step",
        "nonzero-dynamic",
        """
        class Sampler:
            def step(self, t, sample, eps):
                i = (self.timesteps == t).nonzero().item()
                return sample + eps * self.sigmas[i]
        """,
        """
        class Sampler:
            def step(self, i, sample, eps):
                return sample + eps * self.sigmas[i]
        """,
    ),
    (
        "b20 one-argument where",
        "nonzero-dynamic",
        "import jax.numpy as jnp\ndef clear(x):\n    r, c = jnp.where(~x.any(axis=-1))\n"
        "    return x.at[r, c].set(0)\n",
        "import jax.numpy as jnp\ndef clear(x):\n    return jnp.where(x.any(-1), 1.0, 0.0)\n",
    ),
    (
        "b17 regions of lists that vary",
        "nms-proposals",
        """
        import torchvision
        def features(fmap, proposals, scores):
            rois = [p[s > 0.5] for p, s in zip(proposals, scores)]
            return torchvision.ops.roi_align(fmap, rois, output_size=7)
        """,
        """
        import torch
        def features(fmap, proposals, scores):
            return gather_bilinear(fmap, torch.topk(scores, 100).indices)
        """,
    ),
    (
        "losses over a mask",
        "bool-mask-select",
        """
        import torch
        class Net(torch.nn.Module):
            def forward(self, x, labels):
                keep = labels != -100
                return x[keep].mean()
        """,
        """
        import torch
        class Net(torch.nn.Module):
            def forward(self, x, labels):
                keep = labels != -100
                return (x * keep).sum() / keep.sum()
        """,
    ),
    (
        "a write through a mask",
        "bool-mask-assign",
        """
        import torch
        class Net(torch.nn.Module):
            def forward(self, x):
                x[x < 0] = 0
                return x
        """,
        """
        import torch
        class Net(torch.nn.Module):
            def forward(self, x):
                return x.masked_fill(x < 0, 0)
        """,
    ),
    (
        "b18 at[mask] under jit",
        "bool-mask-assign",
        "import jax\n@jax.jit\ndef relu(x):\n    return x.at[x < 0].set(0.0)\n",
        "import jax\nimport jax.numpy as jnp\n@jax.jit\ndef relu(x):\n"
        "    return jnp.where(x < 0, 0.0, x)\n",
    ),
    (
        "b24 a length read from the device",
        "item-to-shape",
        """
        def chunked(x, lengths, chunk=64):
            n = int(lengths.max().item())
            y = x[:, :n]
            return y.reshape(x.size(0), -1, chunk)
        """,
        """
        def chunked(x, lengths, chunk=64):
            return x.reshape(x.size(0), -1, chunk)
        """,
    ),
    (
        "a loss that decides",
        "data-dependent-branch",
        """
        import torch
        class Net(torch.nn.Module):
            def forward(self, x):
                y = self.inner(x * 2)
                z = y.sum() + x.sum()
                if z > 10:
                    z = z * 0.5
                return z
        """,
        """
        import torch
        class Net(torch.nn.Module):
            def forward(self, x):
                z = x.sum()
                return torch.where(z > 10, z * 0.5, z)
        """,
    ),
    (
        "b25 as many turns as the batch wants",
        "unrolled-loop",
        """
        import torch
        def decode(memory, steps):
            h, out = start(memory), []
            for _ in range(steps):
                h, frame = cell(h, memory)
                out.append(frame)
            return torch.stack(out)
        """,
        """
        import jax
        def decode(memory, steps):
            return jax.lax.scan(cell, start(memory), None, length=1000)
        """,
    ),
    (
        "b43 accumulation",
        "unrolled-loop",
        """
        def train_step(samples):
            optimizer.zero_grad()
            for s in samples:
                (crit(model(s)) / len(samples)).backward()
            optimizer.step()
        """,
        """
        import torch_xla
        def train_step(samples):
            optimizer.zero_grad()
            for s in samples:
                (crit(model(s)) / len(samples)).backward()
                torch_xla.sync()
            optimizer.step()
        """,
    ),
    (
        "b45 layers under jit",
        "unrolled-loop",
        "import jax\n@jax.jit\ndef forward(params, x):\n    for p in params:\n"
        "        x = block(p, x)\n    return x\n",
        "import jax\n@jax.jit\ndef forward(params, x):\n"
        "    return jax.lax.scan(lambda h, p: (block(p, h), None), x, params)[0]\n",
    ),
    (
        "b46 growing slices under jit",
        "unrolled-loop",
        "import jax\n@jax.jit\ndef sample(img):\n    for i in range(192):\n"
        "        img = img.at[i].set(net(img[: i + 1]))\n    return img\n",
        "import jax\n@jax.jit\ndef sample(img):\n"
        "    return jax.lax.fori_loop(0, 192, lambda i, x: x.at[i].set(net(x)), img)\n",
    ),
    (
        "b26 tokens that grow",
        "growing-concat",
        """
        import torch
        tokens = start
        for t in range(longest):
            logp = model(tokens)[:, -1]
            tokens = torch.cat([tokens, logp.argmax(-1, keepdim=True)], dim=1)
        """,
        """
        import torch
        for t in range(longest):
            tokens = tokens.index_copy(1, pos, pick(model(tokens)))
        """,
    ),
    (
        "b28 a buffer at a counter",
        "growing-concat",
        """
        import torch_xla.core.xla_model as xm
        for t in range(longest):
            logits = model(idx, pos)
            nxt = sample(logits[0, -1])
            buf[min(t, n - 1)] = nxt
            idx = nxt
        """,
        """
        import torch_xla.core.xla_model as xm
        for t in range(longest):
            nxt = sample(model(idx, pos)[0, -1])
            buf = buf.index_copy(0, pos, nxt)
            idx, pos = nxt, pos + 1
        """,
    ),
    (
        "b29 no drop_last",
        "last-batch-partial",
        """
        from torch.utils.data import DataLoader, DistributedSampler
        loader = DataLoader(ds, batch_size=128, sampler=DistributedSampler(ds))
        """,
        """
        from torch.utils.data import DataLoader, DistributedSampler
        loader = DataLoader(ds, batch_size=128, sampler=DistributedSampler(ds), drop_last=True)
        """,
    ),
    (
        "b33 one rank skips",
        "last-batch-partial",
        """
        for b in batches:
            if b.size(0) != expected:
                continue
            step(b)
        """,
        "for b in batches:\n    step(b)\n",
    ),
    (
        "b40 drop_last switched off",
        "last-batch-partial",
        "from torch.utils.data import DataLoader\nval = DataLoader(ds, 32, drop_last=False)\n",
        "from torch.utils.data import DataLoader\nval = DataLoader(ds, 32, drop_last=True)\n",
    ),
    (
        "unique values",
        "unique-bincount-dynamic",
        "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n"
        "        return torch.unique(x)\n",
        "import jax.numpy as jnp\ndef pick(x):\n    return jnp.unique(x, size=16)\n",
    ),
    (
        "b36 tokens of each expert",
        "moe-dropless",
        """
        import torch
        for e in range(E):
            sel = (top1 == e).nonzero().flatten()
            y[sel] = run(experts[e], x[sel])
        """,
        """
        import torch
        y = torch.einsum("te,edf,td->tf", torch.nn.functional.one_hot(top1, E), w, x)
        """,
    ),
    (
        "counts of each expert on the host",
        "moe-dropless",
        """
        import torch
        class MoE(torch.nn.Module):
            def forward(self, x, tokens_per_expert):
                return self.inner(x, tokens_per_expert.tolist())
        """,
        """
        import jax
        def moe(x, w, tokens_per_expert):
            return jax.lax.ragged_dot(x, w, tokens_per_expert)
        """,
    ),
    (
        "d03 heads of 64",
        "head-dim-lt-128",
        "import jax\ncfg = dict(d_model=2048, n_heads=32)\n",
        "import jax\ncfg = dict(d_model=2048, n_heads=16)\n",
    ),
    (
        "d07 a cache padded to the lanes",
        "head-dim-lt-128",
        "import torch\ndef cache(blocks, head_size):\n"
        "    padded = -(-head_size // 128) * 128\n    return torch.zeros(blocks, 8, padded)\n",
        "import torch\ndef cache(blocks):\n    return torch.zeros(blocks, 8, 128)\n",
    ),
    (
        "a width off the tile",
        "dim-not-128-multiple",
        "import torch\nfc = torch.nn.Linear(1000, 84)\n",
        "import torch\nfc = torch.nn.Linear(1024, 128)\n",
    ),
    (
        "GPT-2's vocabulary",
        "vocab-not-128-multiple",
        "import torch\nfrom dataclasses import dataclass\n@dataclass\nclass Config:\n"
        "    vocab_size: int = 50257\n",
        "import torch\nfrom dataclasses import dataclass\n@dataclass\nclass Config:\n"
        "    vocab_size: int = 50304\n",
    ),
]
