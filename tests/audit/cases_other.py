"""Cases of the remaining rules (see ``cases``)."""

from __future__ import annotations

OTHER: list[tuple[str, str, str, str]] = [
    (
        "c05 accelerate takes the CPU",
        "cuda-available-fallback",
        """
        from accelerate import Accelerator
        acc = Accelerator()
        for x, y in loader:
            acc.backward(crit(model(x), y))
            opt.step()
        """,
        """
        from accelerate import Accelerator, notebook_launcher
        def train():
            acc = Accelerator()
            acc.backward(crit(model(x), y))
        notebook_launcher(train)
        """,
    ),
    (
        "CUDA or the CPU",
        "cuda-available-fallback",
        "import torch\ndevice = 'cuda' if torch.cuda.is_available() else 'cpu'\n",
        "import torch\ndevice = torch.accelerator.current_accelerator()\n",
    ),
    (
        "a stream",
        "cuda-stream-event",
        "import torch\nstream = torch.cuda.Stream()\n",
        "import torch\nloader = prefetch(loader)\n",
    ),
    (
        "a graph",
        "cuda-graph",
        "import torch\ng = torch.cuda.CUDAGraph()\n",
        "import torch\nstep = torch.compile(step, backend='tpu')\n",
    ),
    (
        "memory calls",
        "cuda-memory-api",
        "import torch\ntorch.cuda.reset_peak_memory_stats()\n",
        "import torch\nprint('done')\n",
    ),
    (
        "pinned tensors",
        "pin-memory",
        "import torch\nx = batch.pin_memory()\n",
        "import torch\nx = batch.to(device)\n",
    ),
    (
        "compute capability",
        "gpu-arch-check",
        "import torch\nmajor = torch.cuda.get_device_capability()[0]\n",
        "import torch\ndtype = torch.bfloat16\n",
    ),
    (
        "the peak of an A100",
        "hardcoded-gpu-peak",
        "import torch\ndef mfu(flops, dt):\n    return flops / dt / 312e12\n",
        "import torch\ndef mfu(flops, dt, peak):\n    return flops / dt / peak\n",
    ),
    (
        "cuDNN's search",
        "cudnn-flag",
        "import torch\ntorch.backends.cudnn.benchmark = True\n",
        "import torch\ntorch.manual_seed(0)\n",
    ),
    (
        "visible devices",
        "cuda-env",
        "import os\nimport torch\nos.environ['CUDA_VISIBLE_DEVICES'] = '0'\n",
        "import os\nimport torch\nos.environ['TPU_VISIBLE_CHIPS'] = '0'\n",
    ),
    (
        "CUDA's random state",
        "cuda-rng",
        "import torch\nstate = torch.cuda.get_rng_state()\n",
        "import torch\nstate = torch.get_rng_state()\n",
    ),
    (
        "d13 a model in fp16",
        "fp16-cast",
        """
        import torch
        model = Net().half().to(device)
        for x in loader:
            model(x.to(device)).mean().backward()
            opt.step()
        """,
        """
        import torch
        model = Net().to(device, torch.bfloat16)
        for x in loader:
            model(x.to(device)).mean().backward()
            opt.step()
        """,
    ),
    (
        "d14 a home-made scaler",
        "fp16-gradscaler",
        """
        class FP16Optimizer:
            def step(self, loss):
                (loss * self.scale).backward()
        """,
        """
        class Optimizer:
            def step(self, loss):
                loss.backward()
        """,
    ),
    (
        "d15 a scaler beside autocast",
        "fp16-gradscaler",
        """
        from torch_xla.amp import GradScaler, autocast
        scaler = GradScaler()
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        """,
        "from torch_xla.amp import autocast\nloss.backward()\nopt.step()\n",
    ),
    (
        "d16 autocast for CUDA",
        "cuda-autocast",
        """
        import torch
        for x in loader:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(x).mean()
            loss.backward()
        """,
        """
        import torch
        for x in loader:
            with torch.autocast("xla", dtype=torch.bfloat16):
                loss = model(x).mean()
            loss.backward()
        """,
    ),
    (
        "d19 64-bit floats in JAX",
        "float64",
        "import jax\nimport jax.numpy as jnp\njax.config.update('jax_enable_x64', True)\n"
        "x = jnp.arange(4, dtype=jnp.float64)\n",
        "import jax\nimport jax.numpy as jnp\nx = jnp.arange(4, dtype=jnp.float32)\n",
    ),
    (
        "d20 a complex transform in 64 bits",
        "float64",
        "import jax\nimport jax.numpy as jnp\njax.config.update('jax_enable_x64', True)\n"
        "spec = jnp.abs(jnp.fft.fft(jnp.ones(1024, dtype=jnp.float64)))\n",
        "import jax\nimport jax.numpy as jnp\nspec = jnp.abs(jnp.fft.fft(jnp.ones(1024)))\n",
    ),
    (
        "d21 parity tighter than the passes",
        "tf32-flag",
        "import jax.numpy as jnp\ndef parity(x, w, ref):\n    y = x @ w\n"
        "    assert jnp.allclose(y, ref, atol=1e-4)\n",
        "import jax\nimport jax.numpy as jnp\ndef parity(x, w, ref):\n"
        "    with jax.default_matmul_precision('highest'):\n        y = x @ w\n"
        "    assert jnp.allclose(y, ref, atol=1e-4)\n",
    ),
    (
        "e01 a callback in the step",
        "host-sync-in-step",
        "import jax\n@jax.jit\ndef step(s):\n"
        "    jax.debug.callback(log.append, s.energy)\n    return integrate(s)\n",
        "import jax\n@jax.jit\ndef step(s):\n    return integrate(s), s.energy\n",
    ),
    (
        "e02 a read in each step",
        "host-sync-in-step",
        """
        import torch_xla.core.xla_model as xm
        for x, y in loader:
            loss = crit(net(x), y)
            loss.backward()
            xm.optimizer_step(opt)
            print("loss", loss.item())
        """,
        """
        import torch_xla.core.xla_model as xm
        for step, (x, y) in enumerate(loader):
            loss = crit(net(x), y)
            loss.backward()
            xm.optimizer_step(opt)
            if step % 100 == 0:
                print("loss", loss.item())
        """,
    ),
    (
        "e03 the progress bar",
        "host-sync-in-step",
        """
        from lightning.pytorch import LightningModule
        class M(LightningModule):
            def training_step(self, batch, i):
                loss = self.net(batch).mean()
                self.log("loss", loss, prog_bar=True)
                return loss
        """,
        """
        from lightning.pytorch import LightningModule
        class M(LightningModule):
            def training_step(self, batch, i):
                loss = self.net(batch).mean()
                self.log("loss", loss)
                return loss
        """,
    ),
    (
        "e14 a metric written each step",
        "host-sync-in-step",
        """
        import jax
        for i, batch in enumerate(batches):
            state, loss = p_step(state, batch)
            writer.add_scalar("loss", float(loss), i)
        """,
        """
        import jax
        for i, batch in enumerate(batches):
            state, loss = p_step(state, batch)
            if i % 100 == 0:
                writer.add_scalar("loss", float(loss), i)
        """,
    ),
    (
        "e17 clipping that checks",
        "host-sync-in-step",
        """
        import torch
        for x, y in loader:
            crit(net(x), y).backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0, error_if_nonfinite=True)
            opt.step()
        """,
        """
        import torch
        for x, y in loader:
            crit(net(x), y).backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
        """,
    ),
    (
        "a read of each evaluation batch",
        "host-sync-in-eval",
        """
        import torch
        @torch.no_grad()
        def evaluate(model, loader):
            for x, y in loader:
                hits += (model(x.to(dev)).argmax(-1) == y.to(dev)).sum().item()
        """,
        """
        import torch
        @torch.no_grad()
        def evaluate(model, loader):
            for x, y in loader:
                hits += (model(x.to(dev)).argmax(-1) == y.to(dev)).sum()
        """,
    ),
    (
        "e06 no workers",
        "sync-input-pipeline",
        "from torch.utils.data import DataLoader\nloader = DataLoader(ds, 128, num_workers=0)\n",
        "from torch.utils.data import DataLoader\nloader = DataLoader(ds, 128, num_workers=8)\n",
    ),
    (
        "e09 workers in each process",
        "sync-input-pipeline",
        "from torch.utils.data import DataLoader\ndef worker(index, args):\n"
        "    loader = DataLoader(ds, 128, num_workers=16)\n",
        "from torch.utils.data import DataLoader\ndef worker(index, args):\n"
        "    loader = DataLoader(ds, 128, num_workers=4)\n",
    ),
    (
        "e10 reads one after the other",
        "sync-input-pipeline",
        "import tensorflow as tf\ndef input_fn():\n    ds = tf.data.TFRecordDataset(files)\n"
        "    return ds.map(parse).batch(1024)\n",
        "import tensorflow as tf\ndef input_fn():\n"
        "    ds = tf.data.TFRecordDataset(files, num_parallel_reads=8)\n"
        "    return ds.map(parse, num_parallel_calls=8).batch(1024).prefetch(2)\n",
    ),
    (
        "e13 a block each step",
        "timing-without-block",
        """
        import time
        import jax
        for i in range(steps):
            state, m = step(state, next(it))
            jax.block_until_ready(state)
            log(i, time.perf_counter() - t)
        """,
        """
        import time
        import jax
        for i in range(steps):
            state, m = step(state, next(it))
            if i % 100 == 0:
                jax.block_until_ready(state)
        """,
    ),
    (
        "a constant moved in the forward",
        "host-constant-transfer",
        "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n"
        "        return x + torch.tensor([1.0, 2.0]).to(x.device)\n",
        "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n"
        "        return x + self.offset\n",
    ),
    (
        "a loop that nothing cuts",
        "missing-step-sync",
        "import torch\nfor x in loader:\n    model(x).backward()\n    optimizer.step()\n",
        "import torch\nimport torch_xla\nfor x in loader:\n    model(x).backward()\n"
        "    optimizer.step()\n    torch_xla.sync()\n",
    ),
    (
        "f01 tied weights",
        "weight-tying",
        """
        import torch
        class LM(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.emb = torch.nn.Embedding(10, 4)
                self.head = torch.nn.Linear(4, 10)
                self.head.weight = self.emb.weight
        """,
        """
        import torch
        class LM(torch.nn.Module):
            def forward(self, x):
                return torch.nn.functional.linear(x, self.emb.weight)
        """,
    ),
    (
        "f03 a tied bias",
        "weight-tying",
        """
        import torch
        class Head(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.decoder = torch.nn.Linear(4, 10)
                self.bias = torch.nn.Parameter(torch.zeros(10))
                self.decoder.bias = self.bias
        """,
        """
        import torch
        class Head(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.decoder = torch.nn.Linear(4, 10)
        """,
    ),
    (
        "f05 a state as it is",
        "checkpoint-device-tensors",
        "import torch\ntorch.save(model.state_dict(), 'ckpt.pt')\n",
        "import torch\n"
        "torch.save({k: v.cpu() for k, v in model.state_dict().items()}, 'ckpt.pt')\n",
    ),
    (
        "f06 every rank writes",
        "checkpoint-device-tensors",
        """
        import torch
        class CheckpointIO:
            def save(self, model, path):
                ckpt = {"model": model.state_dict()}
                torch.save(ckpt, path)
        """,
        """
        import torch_xla.core.xla_model as xm
        class CheckpointIO:
            def save(self, model, path):
                xm.save(model.state_dict(), path)
        """,
    ),
    (
        "f12 a module among the hyperparameters",
        "checkpoint-device-tensors",
        """
        import torch
        from lightning.pytorch import LightningModule
        class Net(LightningModule):
            def __init__(self, norm=torch.nn.LayerNorm):
                super().__init__()
                self.save_hyperparameters()
        """,
        """
        from lightning.pytorch import LightningModule
        class Net(LightningModule):
            def __init__(self, norm="layer"):
                super().__init__()
                self.save_hyperparameters()
        """,
    ),
    (
        "f13 xm.save on one rank",
        "checkpoint-device-tensors",
        "import torch_xla.core.xla_model as xm\ndef save(_):\n    if rank == 0:\n"
        "        xm.save(model.state_dict(), 'm.pt')\n",
        "import torch_xla.core.xla_model as xm\ndef save(_):\n"
        "    xm.save(model.state_dict(), 'm.pt')\n",
    ),
    (
        "f10 recomputation",
        "activation-checkpoint",
        "from torch.utils.checkpoint import checkpoint\ndef forward(layers, x):\n"
        "    for layer in layers:\n        x = checkpoint(layer, x)\n    return x\n",
        "from torch_xla.utils.checkpoint import checkpoint\ndef forward(layers, x):\n"
        "    for layer in layers:\n        x = checkpoint(layer, x)\n    return x\n",
    ),
    (
        "f11 recomputation by a switch",
        "activation-checkpoint",
        "from trl import SFTConfig\nargs = SFTConfig('out', gradient_checkpointing=True)\n",
        "from trl import SFTConfig\nargs = SFTConfig('out', gradient_checkpointing=False)\n",
    ),
    (
        "an item set in a JAX array",
        "inplace-alias",
        "import jax.numpy as jnp\nimport jax\n@jax.jit\ndef fill(n):\n    x = jnp.zeros(4)\n"
        "    x[0] = n\n    return x\n",
        "import jax.numpy as jnp\nimport jax\n@jax.jit\ndef fill(n):\n"
        "    return jnp.zeros(4).at[0].set(n)\n",
    ),
    (
        "Inductor asked for",
        "torch-compile-inductor",
        "import torch\nmodel = torch.compile(model, backend='inductor')\n",
        "import torch\nmodel = torch.compile(model, backend='openxla')\n",
    ),
    (
        "a checkpoint onto CUDA",
        "torch-load-map-location",
        "import torch\nckpt = torch.load(path, map_location='cuda')\n",
        "import torch\nckpt = torch.load(path, map_location='cpu')\n",
    ),
    (
        "a state kept twice",
        "no-buffer-donation",
        "import jax\nstep = jax.jit(train_step)\n",
        "import jax\nstep = jax.jit(train_step, donate_argnums=(0,))\n",
    ),
    (
        "a compiled optimizer step",
        "x-f-adam-capturable",
        "import torch\nopt = torch.optim.Adam(params)\n@torch.compile\ndef update():\n"
        "    opt.step()\n",
        "import torch\nopt = torch.optim.Adam(params, capturable=True)\n@torch.compile\n"
        "def update():\n    opt.step()\n",
    ),
    (
        "inference_mode",
        "x-f-inference-mode-compile",
        "import torch\nnet = torch.compile(net)\nwith torch.inference_mode():\n    y = net(x)\n",
        "import torch\nnet = torch.compile(net)\nwith torch.no_grad():\n    y = net(x)\n",
    ),
]
