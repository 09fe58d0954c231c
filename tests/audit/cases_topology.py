"""Cases of the topology rules (see ``cases``)."""

from __future__ import annotations

TOPOLOGY: list[tuple[str, str, str, str]] = [
    (
        "c01 DDP without a group of the device's backend",
        "nccl-backend",
        """
        import torch
        import torch_xla
        def worker(index):
            net = torch.nn.parallel.DistributedDataParallel(Net().to(torch_xla.device()))
            for x in loader:
                net(x).mean().backward()
        torch_xla.launch(worker)
        """,
        """
        import torch
        import torch_xla
        def worker(index):
            torch.distributed.init_process_group("xla", init_method="xla://")
            net = torch.nn.parallel.DistributedDataParallel(Net().to(torch_xla.device()))
            for x in loader:
                net(x).mean().backward()
        torch_xla.launch(worker)
        """,
    ),
    (
        "NCCL by name, through an alias",
        "nccl-backend",
        "from torch import distributed as td\nKIND = 'nccl'\ntd.init_process_group(backend=KIND)\n",
        "from torch import distributed as td\ntd.init_process_group(backend='tpu_dist')\n",
    ),
    (
        "c02 device_ids",
        "ddp-wrapper",
        """
        import os
        from torch.nn.parallel import DistributedDataParallel as DDP
        local_rank = int(os.environ["LOCAL_RANK"])
        net = DDP(net, device_ids=[local_rank], output_device=local_rank)
        """,
        "from torch.distributed.fsdp import fully_shard\nfully_shard(net)\n",
    ),
    (
        "c03 broadcast of buffers",
        "ddp-wrapper",
        "from torch.nn.parallel import DistributedDataParallel as DDP\n"
        "net = DDP(net, broadcast_buffers=True)\n",
        "import torch_xla.core.xla_model as xm\nxm.optimizer_step(opt)\n",
    ),
    (
        "c04 a helper that knows CUDA and the CPU",
        "cuda-device-pin",
        "def main(args):\n    device = init_distributed_device(args)\n"
        "    model = model.to(device)\n",
        "import torch_xla\ndef main(args):\n    device = torch_xla.device()\n"
        "    model = model.to(device)\n",
    ),
    (
        "c06 a mesh for one number of devices",
        "node8-topology",
        """
        import jax
        import numpy as np
        SHAPE = (4, 16)
        devices = np.array(jax.devices()).reshape(SHAPE)
        """,
        """
        import jax
        mesh = jax.make_mesh((jax.device_count() // 4, 4), ("data", "model"))
        """,
    ),
    (
        "accumulation for eight GPUs",
        "node8-topology",
        "import torch\ngradient_accumulation_steps = 4 * 8\n",
        "import torch\ngradient_accumulation_steps = 32 // world_size\n",
    ),
    (
        "c10 uneven splits",
        "eager-collective",
        """
        import torch
        import torch.distributed as dist
        def dispatch(x, out, sent, received):
            dist.all_to_all_single(out, x, received.tolist(), sent.tolist())
            return out
        """,
        """
        import jax
        def dispatch(x, out, a, b, c, d):
            return jax.lax.ragged_all_to_all(x, out, a, b, c, d, axis_name="expert")
        """,
    ),
    (
        "an evaluation on rank 0",
        "rank-divergent-compute",
        """
        import torch
        for step, x in enumerate(loader):
            model(x).backward()
            opt.step()
            if rank == 0 and step % 500 == 0:
                losses = evaluate(model)
        """,
        """
        import torch
        for step, x in enumerate(loader):
            model(x).backward()
            opt.step()
            if step % 500 == 0:
                losses = evaluate(model)
                if rank == 0:
                    print(losses)
        """,
    ),
    (
        "one process for each GPU of this host",
        "single-host-assumption",
        "import torch\nimport torch.multiprocessing as mp\n"
        "mp.spawn(main, nprocs=torch.cuda.device_count())\n",
        "import torch_xla\ntorch_xla.launch(main)\n",
    ),
    (
        "point-to-point",
        "async-p2p",
        "import torch.distributed as dist\ndef shift(x, right):\n"
        "    return dist.batch_isend_irecv([dist.P2POp(dist.isend, x, right)])\n",
        "import jax\ndef shift(x):\n    return jax.lax.ppermute(x, 'stage', [(0, 1), (1, 0)])\n",
    ),
    (
        "d02 six heads over eight",
        "heads-not-divisible",
        """
        import jax
        mesh = jax.make_mesh((jax.device_count() // 8, 8), ("data", "model"))
        cfg = dict(num_heads=6, d_ff=1024)
        """,
        """
        import jax
        mesh = jax.make_mesh((jax.device_count() // 8, 8), ("data", "model"))
        cfg = dict(num_heads=16, d_ff=1024)
        """,
    ),
    (
        "e11 one replica for every host",
        "data-shard-by-rank",
        "from torch.utils.data import DistributedSampler\n"
        "sampler = DistributedSampler(ds, num_replicas=1, rank=0)\n",
        "import torch_xla.runtime as xr\nfrom torch.utils.data import DistributedSampler\n"
        "sampler = DistributedSampler(ds, num_replicas=xr.process_count(),\n"
        "                             rank=xr.process_index())\n",
    ),
    (
        "f07 weights from a seed by rank",
        "rng-per-rank",
        "import torch\ntorch.manual_seed(args.seed + rank)\nnet = Net()\n",
        "import torch\ntorch.manual_seed(args.seed)\nnet = Net()\n",
    ),
    (
        "f08 equal noise everywhere",
        "rng-per-rank",
        """
        import torch
        torch.manual_seed(0)
        net = Net().to(dev)
        for x in loader:
            noise = torch.randn(x.size(0), z, device=dev)
            loss(net(noise), x).backward()
        """,
        """
        import torch
        torch.manual_seed(seed)
        net = Net().to(dev)
        torch.manual_seed(seed + 1)
        for x in loader:
            noise = torch.randn(x.size(0), z, device=dev)
            loss(net(noise), x).backward()
        """,
    ),
    (
        "f09 equal orders everywhere",
        "rng-per-rank",
        """
        import torch
        from torch.utils.data import DataLoader
        torch.manual_seed(42)
        loader = DataLoader(ds, 64, shuffle=True)
        for x, y in loader:
            step(x, y)
        """,
        """
        import torch
        from torch.utils.data import DataLoader, DistributedSampler
        torch.manual_seed(42)
        loader = DataLoader(ds, 64, sampler=DistributedSampler(ds))
        for x, y in loader:
            step(x, y)
        """,
    ),
]
