"""Packages that exist for NVIDIA GPUs only, and the rule each falls under."""

from __future__ import annotations

import functools
import re

from chipshift.audit.names import words

PACKAGES: dict[str, str] = {
    "flash_attn": "flash-attn-kernel",
    "flash_attn_interface": "flash-attn-kernel",
    "flash_attn_2_cuda": "flash-attn-kernel",
    "flash_attn_3": "flash-attn-kernel",
    "flashattn_hopper": "flash-attn-kernel",
    "flashinfer": "flash-attn-kernel",
    "sageattention": "flash-attn-kernel",
    "ring_flash_attn": "flash-attn-kernel",
    "flash_mla": "flash-attn-kernel",
    "yunchang": "flash-attn-kernel",
    "vllm_flash_attn": "flash-attn-kernel",
    "triton": "triton-kernel",
    "jax_triton": "jax-gpu-kernel",
    "cuequivariance_jax": "jax-gpu-kernel",
    "transformer_engine": "transformer-engine",
    "transformer_engine_torch": "transformer-engine",
    "bitsandbytes": "bitsandbytes",
    "deepspeed": "deepspeed-runtime",
    "apex": "apex-fused",
    "amp_C": "apex-fused",
    "xformers": "xformers-op",
    "pycuda": "cuda-extension",
    "cuda": "cuda-extension",
    "tensorrt": "third-party-gpu-kernel",
    "torch_tensorrt": "third-party-gpu-kernel",
}
PACKAGES.update(
    dict.fromkeys(
        [
            "causal_conv1d",
            "grouped_gemm",
            "stk",
            "megablocks",
            "gsplat",
            "nerfacc",
            "tinycudann",
            "torch_scatter",
            "torch_sparse",
            "torch_cluster",
            "torch_spline_conv",
            "pyg_lib",
            "spconv",
            "MinkowskiEngine",
            "torchsparse",
            "liger_kernel",
            "cut_cross_entropy",
            "mslk",
            "deep_ep",
            "deep_gemm",
            "fbgemm_gpu",
            "fla",
            "cupy",
            "warp_rnnt",
            "k2",
            "mamba_ssm",
            "diff_gaussian_rasterization",
            "simple_knn",
            "pytorch3d",
            "nvdiffrast",
            "kaolin",
            "torchao",
            "float8_experimental",
            "nvshmem",
            "flash_linear_attention",
            "quack",
            "rwkv_cuda",
            "warprnnt_numba",
            "warp_ctc",
            "warpctc_pytorch",
            "apex_C",
            "natten",
            "pointnet2_ops",
            "torchvision_ext",
            "dgl",
            "cuml",
            "cudf",
            "cugraph",
            "faiss_gpu",
            "cuvs",
            "hstu",
            "trt_llm",
            "torch_harmonics_cuda",
            "warpctc",
            "fast_hadamard_transform",
            "flash_muon",
            "marlin",
            "awq_ext",
            "exllama_kernels",
            "gptqmodel",
            "nvtx_plugins",
            "nvidia",
            "pylibraft",
            "nvfuser",
            "cuequivariance_torch",
            "cuequivariance_ops_torch",
            "openfold_kernels",
            "torch_radon",
            "fused_weighted_sum",
            "scattermoe",
            "tutel",
            "nvdiffmodeling",
            "slangtorch",
        ],
        "third-party-gpu-kernel",
    )
)
del PACKAGES["dgl"], PACKAGES["apex_C"], PACKAGES["nvidia"]
PATHS: dict[str, str] = {
    "mmcv.ops": "third-party-gpu-kernel",
    "nvidia.dali": "third-party-gpu-kernel",
    "nvidia.nvcomp": "third-party-gpu-kernel",
    "transformer_engine.jax": "transformer-engine",
    "torch.distributed._symmetric_memory": "third-party-gpu-kernel",
    "jax.experimental.pallas.ops.gpu": "jax-gpu-kernel",
    "jax.experimental.pallas.triton": "jax-gpu-kernel",
    "jax.experimental.pallas.mosaic_gpu": "jax-gpu-kernel",
    "jax.experimental.mosaic.gpu": "jax-gpu-kernel",
    "torch.utils.cpp_extension": "cuda-extension",
    "numba.cuda": "cuda-extension",
    "praxis.layers.gpu_fast_attention": "jax-gpu-kernel",
    "kernels.get_kernel": "triton-kernel",
    "kernels.use_kernel_forward_from_hub": "triton-kernel",
    "liger_kernel": "third-party-gpu-kernel",
}
COMPILED = re.compile(
    r"(^|[._])(\w+_(cuda|ext|gpu_ext)|_C|_ext|_cuda|cuda_ext\w*|\w*_cuda_kernels?)$"
)
NOT_COMPILED = words("is_cuda use_cuda has_cuda to_cuda no_cuda move_to_cuda")
HARMLESS = words(
    """deepspeed.is_deepspeed_available triton.testing torch.utils.cpp_extension.CUDA_HOME_UNUSED
    deepspeed.utils.logging deepspeed.utils.logger cuda.txt apex.__version__"""
)


@functools.lru_cache(maxsize=65536)
def package_rule(module: str) -> str:
    """The rule of a dotted module or name that is outside the tree; "" when it is harmless."""
    for path, rule in PATHS.items():
        if module == path or module.startswith(path + "."):
            return rule
    root = module.split(".", 1)[0]
    if module in HARMLESS:
        return ""
    return PACKAGES.get(root, "")


def compiled_module(package: str, dotted: str) -> bool:
    """Whether an imported module looks like a compiled CUDA extension by its name."""
    last = dotted.rsplit(".", 1)[-1]
    if last in NOT_COMPILED or last.startswith(("is_", "has_", "use_", "to_")):
        return False
    if package.startswith("torch.") or package in ("torch", "jax", "jaxlib", "numpy"):
        return False
    return bool(COMPILED.search(dotted)) or (package != dotted and bool(COMPILED.search(package)))


def gpu_package(package: str, dotted: str) -> bool:
    """Whether an import needs a GPU package, for finding what a guarded import guards."""
    if package_rule(package) or package_rule(dotted) or compiled_module(package, dotted):
        return True
    return any(part in ("triton", "cuda", "flash_attn_triton") for part in package.split(".")[1:])
