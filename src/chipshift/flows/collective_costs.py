"""What settings of the GPU's collectives are worth on the target: overlap, dtype, dispatch."""

from __future__ import annotations

from typing import Any

from chipshift.flows.port import Cost, Port, difference, step_of, unaffected, with_bytes
from chipshift.jobs.job import Flag
from chipshift.worked import formula, rename

Number = Any

STEERING = ("ALGO", "PROTO", "NVLS", "CHANNELS", "NTHREADS", "BUFFSIZE", "CROSS_NIC", "P2P",
            "SHARP", "COLLNET", "GDR", "SPLIT_DATA", "GRAPH", "CTAS", "CONFIG", "UB")  # fmt: skip
"""Words of NCCL settings that change how fast collectives run; others name interfaces, time-outs
and logs."""

CAPACITY = 1.25
CAPACITY_SOURCE = "Fedus et al. 2021, Switch Transformers, section 2.2: capacity factor 1.25"


@formula(unit="s", source="collectives whole, less what of them is exposed")
def hidden_of(whole_s: Number, exposed_s: Number) -> Number:
    """Seconds of collectives that compute hides, what they slow down taken off."""
    return whole_s - exposed_s


def hidden_s(p: Port, axes: tuple[str, ...]) -> Number:
    """Seconds of collectives on these mesh axes that the target's plan hides behind compute."""
    hidden: Number = 0.0
    for axis in axes:
        whole, left = p.target.collectives_total[axis], p.target.collectives_exposed[axis]
        hidden = hidden + rename(hidden_of(whole, left), f"hidden_{axis}_s")
    return hidden


def overlap(p: Port, axes: tuple[str, ...]) -> Cost:
    """What overlapping these collectives is worth there: XLA's scheduler must find it anew."""
    seconds = rename(hidden_s(p, axes), "hidden_s")
    names = axes[0] if len(axes) == 1 else f"{', '.join(axes[:-1])} and {axes[-1]}"
    return Cost(seconds, f"{names} collectives whole less exposed: what is hidden there, and comes "
                "back where XLA's scheduler does not overlap them")  # fmt: skip


def tp_overlap(p: Port, flag: Flag) -> Cost:
    """Tensor parallelism's collectives behind matmuls."""
    del flag
    return overlap(p, ("tp",))


def dp_overlap(p: Port, flag: Flag) -> Cost:
    """Gradient reductions and weight gathers behind the passes."""
    del flag
    return overlap(p, ("fsdp", "dp"))


def ep_overlap(p: Port, flag: Flag) -> Cost:
    """The experts' all-to-all behind another microbatch."""
    del flag
    return overlap(p, ("ep",))


def nccl(p: Port, flag: Flag) -> Cost:
    """What tunes collectives is worth what is hidden there; routes, time-outs and logs nothing."""
    key = flag.key.upper().replace("-", "_")
    if any(word in key for word in STEERING):
        return overlap(p, ("tp", "cp", "ep", "fsdp", "dp", "pp"))
    return unaffected(p, "it names routes, time-outs or logs of NCCL: the target's collectives run "
                      "over its own network, whose estimate has no such setting")  # fmt: skip


def cuda_environment(p: Port, flag: Flag) -> Cost:
    """One hardware queue orders collectives before matmuls; other settings steer CUDA alone."""
    if flag.key == "CUDA_DEVICE_MAX_CONNECTIONS":
        return overlap(p, ("tp", "fsdp", "dp"))
    return unaffected(
        p, "it steers CUDA's own libraries: nothing of the target's estimate reads it"
    )


def quantised_collectives(p: Port, flag: Flag) -> Cost:
    """The step with weights and gradients moved in bf16, against in 8 bits."""
    del flag
    sizes = {
        name: p.given(size, "B", "collective_bytes_each", f"{name} as they are moved")
        for name, size in (("bf16", 2.0), ("8 bits", 1.0))
    }
    wide, narrow = (
        with_bytes(p, gathered=size, reduce=size) for size in (sizes["bf16"], sizes["8 bits"])
    )
    seconds = difference(rename(step_of(wide), "step_in_bf16_s"),
                         rename(step_of(narrow), "step_in_8_bits_s"))  # fmt: skip
    return Cost(seconds, "the step with gathers and reductions in bf16 against in 8 bits")


@formula(unit="s", source="a dense exchange is padded to an expert's capacity")
def padded_exchange(exposed_s: Number, capacity: Number) -> Number:
    """Extra seconds of an all-to-all whose rows are padded to a capacity."""
    return exposed_s * (capacity - 1)


def expert_kernels(p: Port, flag: Flag) -> Cost:
    """A dense all-to-all padded to the experts' capacity, against one of the rows there are."""
    del flag
    capacity = p.given(CAPACITY, "1", "capacity_factor", CAPACITY_SOURCE)
    seconds = padded_exchange(p.target.collectives_exposed["ep"], capacity)
    return Cost(seconds, "a dense all-to-all padded to a capacity of 1.25 against a ragged one")


def activation_partitioning(p: Port, flag: Flag) -> Cost:
    """Gathering activations that are kept cut over tp: the tp collectives of the plan itself."""
    del flag
    whole = p.target.collectives_exposed["tp"]
    again = rename(whole / 3, "one_pass_s")
    return Cost(again, "tensor-parallel collectives of one pass: kept parts are gathered once more")
