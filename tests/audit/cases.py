"""Reduced code for each rule: the hazard, then the same work written for the target."""

from __future__ import annotations

from .cases_other import OTHER
from .cases_shapes import SHAPES
from .cases_topology import TOPOLOGY

Case = tuple[str, str, str, str]

KERNELS: list[Case] = [
    (
        "a01 flash attention called in a module",
        "flash-attn-kernel",
        """
        import torch
        from flash_attn import flash_attn_func as fa
        class Attention(torch.nn.Module):
            def forward(self, q, k, v):
                return fa(q, k, v, causal=True)
        """,
        """
        import torch
        import torch.nn.functional as F
        class Attention(torch.nn.Module):
            def forward(self, q, k, v):
                return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        """,
    ),
    (
        "a03 an 8-bit optimizer",
        "bitsandbytes",
        "import bitsandbytes as bnb\ndef make(model, lr):\n"
        "    return bnb.optim.AdamW8bit(model.parameters(), lr=lr)\n",
        "import torch\ndef make(model, lr):\n"
        "    return torch.optim.AdamW(model.parameters(), lr=lr)\n",
    ),
    (
        "a05 an extension built when the module is imported",
        "cuda-extension",
        """
        from torch.utils.cpp_extension import load
        act = load(name="act", sources=["act.cpp", "act.cu"])
        def run(x, b):
            return act.bias_act(x, b, 0.2)
        """,
        """
        import torch.nn.functional as F
        def run(x, b):
            return F.leaky_relu(x + b, 0.2)
        """,
    ),
    (
        "a06 every device but the CPU takes the CUDA path",
        "cuda-extension",
        """
        import torch
        def blur(x, kernel):
            if x.device.type == "cpu":
                return blur_native(x, kernel)
            return BlurCuda.apply(x, kernel)
        """,
        """
        import torch
        def blur(x, kernel):
            if x.device.type == "cuda":
                return BlurCuda.apply(x, kernel)
            return blur_native(x, kernel)
        """,
    ),
    (
        "a07 a Triton kernel",
        "triton-kernel",
        """
        import triton
        import triton.language as tl
        @triton.jit
        def scale(x, o, n, BLOCK: tl.constexpr):
            i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            tl.store(o + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)
        """,
        "def scale(x):\n    return x * 2\n",
    ),
    (
        "a08 a kernel from the hub",
        "triton-kernel",
        """
        import torch
        from kernels import get_kernel
        act = get_kernel("group/activation")
        """,
        "import torch\ndef act(a, b):\n    return torch.nn.functional.silu(a) * b\n",
    ),
    (
        "a10 ragged bags",
        "op-not-lowered",
        """
        import torch
        bag = torch.nn.EmbeddingBag(1000, 64, mode="sum")
        for ids, offsets, y in loader:
            loss = (bag(ids, offsets) - y).pow(2).mean()
            loss.backward()
            opt.step()
        """,
        """
        import torch
        table = torch.nn.Embedding(1000, 64)
        for ids, y in loader:
            loss = (table(ids).sum(1) - y).pow(2).mean()
            loss.backward()
            opt.step()
        """,
    ),
    (
        "a12 a scatter with collisions",
        "op-not-lowered",
        """
        import torch
        def smallest(values, segment, n):
            out = torch.full((n,), 1e9, device=values.device)
            return out.scatter_reduce(0, segment, values, reduce="amin")
        best = smallest(cost, owner, 1000)
        """,
        """
        import jax
        def smallest(values, segment, n):
            return jax.ops.segment_min(values, segment, n, indices_are_sorted=True)
        """,
    ),
    (
        "a14 sorting in an older compiler",
        "op-not-lowered",
        """
        import torch
        def highest(scores, k):
            order = torch.argsort(scores, dim=-1, descending=True)
            return order[:, :k]
        picked = highest(logits, 8)
        """,
        "import torch\ndef highest(scores, k):\n    return torch.topk(scores, k).indices\n",
    ),
    (
        "a15 a custom op of a private library",
        "cuda-extension",
        "import torch\ndef count(ids):\n    return torch.ops.mylib.histogram(ids, 128)\n",
        "import torch\ndef count(ids):\n    return torch.nn.functional.one_hot(ids, 128).sum(0)\n",
    ),
    (
        "a18 regions pooled from boxes",
        "op-not-lowered",
        """
        import torchvision
        def masks(features, boxes):
            return torchvision.ops.roi_align(features, boxes, (14, 14)).sigmoid()
        """,
        """
        import torch
        def masks(features, weights):
            return torch.einsum("bchw,bkhw->bkc", features, weights).sigmoid()
        """,
    ),
    (
        "apex layer norm",
        "apex-fused",
        "from apex.normalization import FusedLayerNorm\nnorm = FusedLayerNorm(64)\n",
        "from torch.nn import LayerNorm\nnorm = LayerNorm(64)\n",
    ),
    (
        "xFormers attention",
        "xformers-op",
        "import xformers.ops as xops\ndef attend(q, k, v):\n"
        "    return xops.memory_efficient_attention(q, k, v)\n",
        "import torch.nn.functional as F\ndef attend(q, k, v):\n"
        "    return F.scaled_dot_product_attention(q, k, v)\n",
    ),
    (
        "Transformer Engine layer",
        "transformer-engine",
        "import transformer_engine.pytorch as te\nlayer = te.Linear(128, 128)\n",
        "import torch\nlayer = torch.nn.Linear(128, 128)\n",
    ),
    (
        "DeepSpeed engine",
        "deepspeed-runtime",
        """
        import deepspeed
        engine, opt, loader, _ = deepspeed.initialize(model=net, config=ds)
        for batch in loader:
            engine.backward(engine(batch))
            engine.step()
        """,
        """
        import torch
        from torch.distributed.fsdp import fully_shard
        fully_shard(net)
        """,
    ),
    (
        "a library of grouped matmuls",
        "third-party-gpu-kernel",
        "import grouped_gemm.ops as ops\ndef mlp(x, w, n):\n    return ops.gmm(x, w, n)\n",
        "import jax\ndef mlp(x, w, n):\n    return jax.lax.ragged_dot(x, w, n)\n",
    ),
    (
        "an autograd function around a kernel",
        "custom-autograd-kernel",
        """
        import torch
        import scan_cuda
        class Scan(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return scan_cuda.forward(x)
        """,
        """
        import torch
        class Scan(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.cumsum(-1)
        """,
    ),
    (
        "a fused optimizer",
        "fused-optimizer",
        "import torch\nopt = torch.optim.AdamW(params, lr=1e-3, fused=True)\n",
        "import torch\nopt = torch.optim.AdamW(params, lr=1e-3)\n",
    ),
    (
        "scores written out",
        "sdpa-math-fallback",
        """
        import torch
        class Attention(torch.nn.Module):
            def forward(self, q, k, v):
                scores = q @ k.transpose(-2, -1) * 0.125
                return scores.softmax(-1) @ v
        """,
        """
        import torch
        class Attention(torch.nn.Module):
            def forward(self, q, k, v):
                return torch.tpu.ops.splash_sdpa(q, k, v)
        """,
    ),
    (
        "a GPU implementation by name",
        "jax-gpu-kernel",
        "import jax\ndef attend(q, k, v):\n"
        '    return jax.nn.dot_product_attention(q, k, v, implementation="cudnn")\n',
        "import jax\ndef attend(q, k, v):\n    return jax.nn.dot_product_attention(q, k, v)\n",
    ),
    (
        "a GPU implementation as a flag's default",
        "jax-gpu-kernel",
        """
        import jax
        from absl import flags
        KIND = flags.DEFINE_enum("attention_implementation", "triton", ["triton", "xla"], "which")
        """,
        """
        import jax
        from absl import flags
        KIND = flags.DEFINE_enum("attention_implementation", "xla", ["triton", "xla"], "which")
        """,
    ),
    (
        "a sparse matrix",
        "sparse-tensor",
        "import torch\nadj = torch.sparse_coo_tensor(idx, val, (n, n))\n",
        "import torch\nadj = torch.zeros(n, n).index_put((i, j), val)\n",
    ),
]
CASES: list[Case] = [*KERNELS, *SHAPES, *TOPOLOGY, *OTHER]

LOOKALIKES: list[tuple[str, str, str]] = [
    (
        "a keyword that names something else than a backend",
        "nccl-backend",
        "import torch\nlog(topic='nccl', level='info')\n",
    ),
    (
        "a guarded import with a fallback",
        "third-party-gpu-kernel",
        """
        import torch
        try:
            from causal_conv1d import causal_conv1d_fn
        except ImportError:
            causal_conv1d_fn = None
        class Conv(torch.nn.Module):
            def forward(self, x):
                if causal_conv1d_fn is None:
                    return self.conv(x)
                return causal_conv1d_fn(x, self.weight)
        """,
    ),
    (
        "a package asked for before it is imported",
        "third-party-gpu-kernel",
        """
        import torch
        from somewhere import is_liger_kernel_available
        if is_liger_kernel_available():
            from liger_kernel.chunked_loss import Loss
        class Trainer:
            def __init__(self, use_liger):
                self.loss = torch.nn.CrossEntropyLoss()
                if use_liger:
                    self.loss = Loss()
        """,
    ),
    (
        "names that contain the words",
        "fp16-cast",
        "import torch\nhalf_width = 4\nfloat16_names = {'a'}\nx = y.to(torch.bfloat16)\n"
        "same = y.dtype == torch.float16\n",
    ),
    (
        "text about CUDA",
        "cuda-device-pin",
        'import torch\n"""call model.cuda() and pass device=cuda"""\n'
        'print("use cuda:0")\n# x.cuda()\n',
    ),
    (
        "a branch for CUDA",
        "cuda-stream-event",
        """
        import torch
        class Loader:
            def __init__(self, device):
                self.is_cuda = device.type == "cuda"
            def __iter__(self):
                if self.is_cuda:
                    stream = torch.cuda.Stream()
                else:
                    stream = None
                yield stream
        """,
    ),
    (
        "a read of a configuration value",
        "host-sync-in-step",
        """
        import numpy as np
        import torch
        class Net(torch.nn.Module):
            def forward(self, x):
                scale = np.array(3.0).item()
                return x * scale + self.config.gain.item()
        """,
    ),
    (
        "a read every hundred steps",
        "host-sync-in-step",
        """
        import torch
        log_interval = 100
        for step, batch in enumerate(loader):
            loss = model(batch)
            loss.backward()
            opt.step()
            if step % log_interval == 0:
                print(loss.item())
        """,
    ),
    (
        "a read at the first step and every hundred",
        "host-sync-in-step",
        """
        import torch
        for step, batch in enumerate(loader):
            loss = model(batch)
            loss.backward()
            opt.step()
            if step == 0 or (step + 1) % args.log_interval == 0:
                print(loss.item())
            if not step % 50:
                print(loss.item())
        """,
    ),
    (
        "the rank within a tensor-parallel group",
        "rank-divergent-compute",
        """
        import torch
        class Net(torch.nn.Module):
            def forward(self, x):
                if self.tensor_parallel_rank == 0:
                    x = self.model(x)
                return x
        """,
    ),
    (
        "a read of a host tensor",
        "host-sync-in-eval",
        """
        import torch
        @torch.no_grad()
        def evaluate(model, loader):
            for images, labels in loader:
                out = model(images.to("tpu"))
                counts[labels[0].item()] += 1
        """,
    ),
    (
        "shapes are host numbers",
        "data-dependent-branch",
        """
        import torch
        class Net(torch.nn.Module):
            def forward(self, x, mask=None):
                if mask is not None and x.shape[0] > 4 and x.numel() > 0:
                    return x * mask
                return x
        """,
    ),
    (
        "clip_grad_norm_ makes no read",
        "host-sync-in-step",
        """
        import torch
        for x in loader:
            model(x).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
        """,
    ),
    (
        "three-argument where and count_nonzero",
        "nonzero-dynamic",
        """
        import jax.numpy as jnp
        import torch
        class Net(torch.nn.Module):
            def forward(self, x):
                nonzero_mask = x > 0
                return torch.where(nonzero_mask, x, 0) / torch.count_nonzero(x)
        """,
    ),
    (
        "a convolution's padding of one",
        "variable-length-input",
        "import torch\nconv = make_conv(64, 64, kernel_size=3, padding=1)\n",
    ),
    (
        "an option that is off",
        "bitsandbytes",
        """
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--use_8bit", action="store_true")
        args = parser.parse_args()
        if args.use_8bit:
            import bitsandbytes as bnb
        """,
    ),
    (
        "a reference to a learning rate that changes",
        "jit-cache-miss",
        """
        import torch
        for step in range(n):
            for group in opt.param_groups:
                group["lr"] = schedule(step)
            loss_fn().backward()
            opt.step()
        """,
    ),
    (
        "a batch and heads of eight",
        "node8-topology",
        "import torch\nbatch_size = 8\nnum_heads = 8\nkernel_size = 8\n",
    ),
    (
        "rank 0 prints numbers",
        "rank-divergent-compute",
        """
        import torch
        for step, x in enumerate(loader):
            loss = model(x)
            loss.backward()
            opt.step()
            if rank == 0:
                print(step, lr)
        """,
    ),
    (
        "a dense net's features",
        "growing-concat",
        """
        import torch
        class Dense(torch.nn.Module):
            def forward(self, x):
                for layer in self.layers:
                    x = torch.cat([x, layer(x)], dim=1)
                return x
        """,
    ),
    (
        "a table with TPU rows",
        "hardcoded-gpu-peak",
        'import torch\nPEAK = {"A100": 312e12, "TPU v6e": 918e12}\n',
    ),
    (
        "files saved in fp16",
        "fp16-cast",
        'import torch\ntorch.save({"model": model.half()}, path)\n',
    ),
    (
        "the body of a Triton kernel is no step",
        "data-dependent-branch",
        """
        import triton
        @triton.jit
        def kernel(x_ptr, mask):
            if mask > 0:
                x_ptr += 1
        """,
    ),
]
