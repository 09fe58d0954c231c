"""Fit every stack's constants on the carried runs and write ``estimate/stacks/*.toml``.

usage: fit_stacks.py OUT_DIR FITTED_JSON [STACK...]

FITTED_JSON is ``src/chipshift/validate/data/fitted.json``, which `validate --cross` starts from.

Constants set by hand (memory, kernels that a stack lacks) stand in BY_HAND with their evidence.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

from chipshift.validate.case import Case
from chipshift.validate.fit import Fit, supported, usable
from chipshift.validate.free import (
    ERAS,
    FAMILIES,
    KINDS,
    MIN_MODELS,
    MIN_RUNS,
    Free,
    free_of,
    scopes_of,
)
from chipshift.validate.run import carried, read_data
from chipshift.validate.score import summary

SWEEP = "the carried H100 sweep"
NANOTRON = "nanotron (github.com/huggingface/nanotron, 2025-03)"
COMPILED = "buffers alive at the peak of compiled steps (stack jax, docs/compile.md)"
TPU = "all 79 carried TPU recipes, which all ran, fit with it"
XLA_MEMORY = {
    "plans_buffers": (1.0, COMPILED + ": logits and no gradients, or gradients and no logits"),
    "logit_memory_bytes": (4.0, TPU + " (78 with 5, 74 with 6): fp32 logits, whose gradient XLA "
                           "makes inside the head's matmuls"),
    "streams_at_loss": (2.0, COMPILED + ": the last hidden state and its gradient"),
    "gathered_layers": (1.0, COMPILED + ": each weight of the layer at work, once"),
    "whole_gradient_layers": (0.0, COMPILED + ": a weight's gradient is scattered as it is made"),
    "working_layers": (0.85, COMPILED + ": recomputed tensors and the widest gradient"),
    "head_lanes": (128.0, COMPILED + ": heads of 64 in tiles of 128 lanes"),
    "context_bytes": (5.0e8, TPU + "; the runtime's own share is outside the usable bytes"),
    "fragmentation": (0.03, TPU),
    "comm_buffer_bytes": (0.0, COMPILED + ": collectives work in their operands and results"),
}  # fmt: skip
MOE_PY = "MaxText layers/moe.py (github.com/AI-Hypercomputer/maxtext, 2026-08)"
XLA_KERNELS = {
    "reruns_experts": (1.0, MOE_PY + ": the router's weights multiply the experts' results, whose "
                       "gradient needs these again"),
    "permute_row_elements": (4096.0, "of 0, 2048, 4096 and 8192 the one with which models left out "
                             "are timed best, and passes come near the 3 that are counted: a "
                             "gather moves row by row"),
    "regathers_once": (1.0, "counted: one compiled program holds both passes"),
    "tp_regathers": (2.0, "counted: both column-linear maps gather their input again for the "
                     "weight gradient"),
}  # fmt: skip
IDLE = "; fitted, models left out are timed no better (docs/calibration.md)"
WEAK = (
    "measured: growth of a step within the carried runs' 24 series of one plan on 64 to 2,048 GPUs "
    "with the batch in proportion (five models), pooled (docs/calibration.md)"
)
MAXTEXT = {
    "attention_scale": (0.9, "prior: a kernel in a step over the same alone" + IDLE),
    "memory_scale": (0.8, "prior: passes in a step over the stream alone" + IDLE),
    "cast_passes": (1.5, "counted: an operand read in bf16, its copy written in 8 bits" + IDLE),
    "permute_passes": (3.0, "counted: a row read, written and read again" + IDLE),
    "fsdp_overlap": (0.9, "prior: XLA gathers the next layer's weights meanwhile; the runs say "
                     "nothing of it"),
    "cp_overlap": (0.6, "prior: fewer than 3 runs of 2 models touch it"),
    "ep_overlap": (0.15, "prior: fewer than 3 runs of 2 models touch it"),
    "tp_behind_gradients": (1.0, "a layer's weight gradients and recomputation wait for no "
                            "collective: 1 of 0 and 1 by the error on models left out, and on "
                            "MLPerf's runs of v5p, which no constant is fitted on "
                            "(docs/calibration.md)"),
    "range_passes": (0.0, "counted: none with a fixed range; on a TPU 1 where a job gives none: "
                     "an operand is read once for its largest value (MaxText "
                     "layers/quantizations.py)"),
    "casts_weights": (0.0, "counted: with a fixed range shards are cast before they are gathered "
                      "(MaxText layers/moe.py); on a TPU 1 where a job gives none"),
    "jitter_per_doubling": (0.005, "prior; the runs say nothing of it"),
    "step_overhead_s": (0.01, "prior; the runs say nothing of it"),
}  # fmt: skip
BY_HAND: dict[str, dict[str, tuple[float, str]]] = {
    "maxtext": XLA_MEMORY | XLA_KERNELS | MAXTEXT,
    "torch_xla": XLA_MEMORY | XLA_KERNELS,
    "megatron": {
        "ep_once_per_place": (1.0, "DeepEP and the hybrid dispatcher send a token to a node once, "
                                   "inside a node to a device once"),
        "expert_bias_passes": (14.0, "counted in Megatron-Core's _apply_bias (transformer/moe/"
                               "experts.py, core 0.15), op by op in fp32: bias times probability "
                               "(write 2), added (read 3, write 2), put together (2 + 2), to bf16 "
                               "(2 + 1)"),
        "weight_sum_bytes": (4.0, "counted: the matmul of a weight's gradient reads the sum over "
                                  "microbatches and writes it (Megatron-LM, "
                                  "gradient_accumulation_fusion), in bf16 by NVIDIA's recipes "
                                  "(grad_reduce_in_fp32 false)"),
        "gathers_expert_rows": (1.0, "Megatron-Core transformer/moe/token_dispatcher.py, core "
                                     "0.15: rows are gathered over the devices of an expert"),
        "mxfp8_scale": (0.95, "prior: blocks of 32 have more scales than tensors do" + IDLE),
        "fp8_attention_scale": (1.3, "prior: half of attention's matmuls' time would be 2" + IDLE),
        "ep_overlap": (0.15, "prior: little of the exchange without another microbatch" + IDLE),
        "tp_overlap": (0.4, "prior: what overlapped gathers and scatters hide" + IDLE),
        "cp_overlap": (0.6, "prior" + IDLE),
        "pp_overlap": (0.5, "prior: one of two directions" + IDLE),
        "step_overhead_s": (0.01, "prior" + IDLE),
        "jitter_per_doubling": (0.009, WEAK),
        "cast_passes": (1.5, "counted: an operand read in bf16, its copy written in 8 bits" + IDLE),
        "host_s_per_op": (8e-6, "prior: a kernel's launch from Python" + IDLE),
        "narrow_activations": (0.7, "Transformer Engine keeps 8-bit inputs of its linear layers"),
        "logit_memory_bytes": (6.0, "counted: bf16 logits, and their fp32 softmax in whose place "
                               "the gradient is made (Megatron-LM, core/tensor_parallel/"
                               "cross_entropy.py; as much in Transformer Engine's cross entropy)"),
    },
    "torchtitan": {
        "gradients_at_peak": (
            1.0,
            "torchtitan trainer.py, 2026-08: gradients are set to zero "
            "in place and stand through the step, CUDA graphs being on "
            "by default; with them off and before 2026-08-13 they were "
            "made anew, the source's 0 (by which the measured peaks of "
            "14 runs would be 20 % off at the median, 16 % with 1)",
        ),
        "whole_gradient_layers": (
            1.0,
            "PyTorch 2.13, fully_shard's post_backward and "
            "foreach_reduce: the block before's gradients in the dtype "
            "of the sums wait for their reduce-scatter, one buffer by "
            "default, while the next block's activations stand; its "
            "own, in bf16, grow as those are freed",
        ),
    },
    "fms-fsdp": {
        "gradients_at_peak": (
            0.0,
            "fms-fsdp utils/train_utils.py, 2025-07: zero_grad() sets "
            "gradients to None each step, so that FSDP's shards are "
            "made block by block as the activations are freed",
        ),
        "whole_gradient_layers": (
            1.0,
            "PyTorch 2.13, fsdp/_runtime_utils.py _post_backward_hook: "
            "a block's flat gradient, in the dtype of the sums (bf16 in"
            " fms-fsdp's policy), stands until its reduce-scatter has "
            "run beside the next block's backward pass",
        ),
    },
    "automodel": {
        "ep_once_per_place": (1.0, "its recipes dispatch by DeepEP, which sends a token to a node "
                                   "once (github.com/deepseek-ai/DeepEP, README)"),
    },
    "nanotron": {
        "ops_per_layer": (80.0, "unfused layers, counted; only its product with host time matters"),
        "head_in_stages": (1.0, NANOTRON + " models/base.py build_model, and Local Params of the "
                           "carried sweep: a stage takes blocks up to its share of the cost"),
        "tp_regathers": (2.0, NANOTRON + " tensor_parallel/functional.py: both column-linear maps "
                         "gather their input again for the weight gradient"),
        "bucket_bytes": (5.24288e7, SWEEP + ": ddp_bucket_cap_mb 25 of bf16, summed in fp32"),
        "whole_reduction": (1.0, NANOTRON + " optim/gradient_accumulator.py and zero.py: gradients "
                            "are all-reduced under ZeRO-1 too, weights gathered after the step"),
        "accumulate_bytes": (10.0, NANOTRON + " optim/gradient_accumulator.py: each microbatch's "
                             "bf16 gradient (2 bytes) is added to the fp32 sum (read 4, write 4)"),
        "bucket_copy_bytes": (2.0, SWEEP + ": Mem Alloc is 20 bytes a parameter of the first stage "
                              "where dp > 1, 18 where dp = 1: DDP's bf16 buckets"),
        "flat_gather_bytes": (2.0, SWEEP + ": Mem Alloc of ZeRO-1 is 10 + 14/dp bytes a parameter, "
                              "8 + 12/dp of them state: bf16 buffers of the whole and of a part"),
        "wide_tensors": (2.0, SWEEP + ": Mem Alloc grows by two tensors of tokens × width where "
                         "tp > 1, whatever tp is: the buffers of gathered activations"),
        "workspace_bytes": (7.5e7, SWEEP + ": what is left of Mem Alloc; 64 MB are cuBLAS's"),
        "activation_memory_scale": (1.3, "counted: the gate's activation, kept unfused, and "
                                    "queries and keys before and after their rotation, 1.29 to "
                                    "1.30 of the "
                                    "tensors named for widths of 2,048 to 8,192; the sweep's runs "
                                    "without tensor parallelism and with tensors above 32 MB show "
                                    "1.31 to 1.33"),
        "logit_memory_bytes": (10.0, "counted: bf16 gradient, fp32 softmax and its clone in the "
                               "sharded cross-entropy's backward pass"),
        "pool_bytes": (1.5e8, SWEEP + ": what is left of Mem Res in its smallest runs"),
        "fragmentation": (0.05, "the default of every stack of PyTorch's caching allocator; the "
                          "sweep's reserved memory shows 0.04 to 0.08 of the activations"),
        "context_bytes": (6.0e8, "CUDA context and cuBLAS of an H100 process"),
        "comm_buffer_bytes": (4.0e8, "NCCL's channels of one communicator; with the context they "
                              "make the 1.8 GB between the largest peak that ran and the device"),
        "margin_share": (0.23, SWEEP + " (benchmarks/calibration/guard_band.py): a guard band for "
                         "the peak's error, no memory of its own: the 84th percentile, one "
                         "standard deviation to one side, of what reserved memory is above the "
                         "predicted peak, over activations, logits and gathered tensors"),
    },
}  # fmt: skip


SINCE: dict[str, dict[str, dict[str, tuple[float, str]]]] = {
    "megatron": {
        "26.06": {
            "host_s_per_op": (3e-6, "CUDA graphs from 26.06 on (Megatron-Bridge's release notes)")
        }
    },
    "nanotron": {
        "1": {
            "stranded_tensors": (
                40.0,
                SWEEP + ": Mem Res of 449 runs; none in the early pipeline engine, whose "
                "hand-overs hold the host",
            )
        }
    },
}
"""Set by hand from a release on."""

Lines = dict[tuple[str, str], list[str]]


def steps(fit: Fit, x: np.ndarray) -> list[tuple[Free, str, str, float, str]]:
    """Every factor and its evidence: what the runs say, and what is known beforehand alone."""
    out = []
    fitted = set()
    for key, step in zip(fit.keys, x, strict=True):
        free, prior = key.free, key.free.priors.get(key.value)
        fitted.add((free.name, key.value))
        where = {
            "stack": f"of {fit.stack}",
            "kind": f"on {key.value}s",
            "family": f"on {', '.join(FAMILIES.get(key.value, ()))}",
            "chip": f"on {key.value}",
            "release": f"of {fit.stack} from {key.value}",
            "family_release": f"on {key.value.replace('@', ' from ')}",
        }[key.scope]
        runs = f"{key.runs} runs of {key.models} models {where}"
        held = abs(step) < 0.05 * key.sd
        evidence = f"held at its prior: {runs} say nothing of it" if held else f"fitted on {runs}"
        if held and prior:
            evidence = prior[1]
        if key.scope == "stack" or prior or not held:
            out.append((free, key.scope, key.value, step + (prior[0] if prior else 0.0), evidence))
    own = {key.free.name for key in fit.keys}
    few = f"at its prior: fewer than {MIN_RUNS} runs of {MIN_MODELS} models of {fit.stack} touch it"
    out += [(free, "stack", "", 0.0, few) for free in free_of(fit.stack) if free.name not in own]
    reached = {v: s for r in fit.runs for s, vs in scopes_of(r.case).items() for v in vs}
    for free in free_of(fit.stack):
        for value, (step, evidence) in free.priors.items():
            if value in reached and (free.name, value) not in fitted:
                out.append((free, reached[value], value, step, evidence))
    return out


def entry(free: Free, scope: str, step: float, evidence: str) -> str:
    """One line of a table: the stack's own value, or the factor that a scope has."""
    odds = free.prior / (1 - free.prior) * np.exp(step) if free.share else 0.0
    value = odds / (1 + odds) if free.share else free.prior * np.exp(step)
    kind = "value" if scope == "stack" else "odds" if free.share else "times"
    figure = value if scope == "stack" else np.exp(step)
    return f'{free.name} = {{ {kind} = {figure:.4g}, evidence = "{evidence}" }}'


def write(fit: Fit, x: np.ndarray) -> str:
    """The stack's file: its constants, then the factors of families, chips and releases."""
    by_hand = BY_HAND.get(fit.stack, {})
    error = summary(list(np.expm1(fit.log_times(x) - fit.truth)))
    lines: Lines = defaultdict(list)
    for free, scope, value, step, evidence in steps(fit, x):
        lines[scope, value].append(entry(free, scope, step, evidence))
    out = [
        f"# {fit.stack}: fitted by benchmarks/calibration/fit_stacks.py on {len(fit.runs)} runs "
        f"(median error {error.median_abs_rel:.1%}, p90 {error.p90_abs_rel:.1%})",
        "",
        "[constants]",
        *sorted(by_hand_lines(by_hand)),
        *sorted(lines["stack", ""]),
        "",
        *tables(lines, ""),
    ]
    for since in ERAS.get(fit.stack, ())[1:]:
        one = {
            ("family", value.partition("@")[0]): found
            for (scope, value), found in lines.items()
            if scope == "family_release" and value.endswith(f"@{since}")
        }
        own = lines.get(("release", since), []) + by_hand_lines(SINCE.get(fit.stack, {}).get(since))
        if own or one:
            out += ["[[release]]", f'since = "{since}"', ""]
            out += ["[release.constants]", *sorted(own), ""] if own else []
            out += tables(one, "release.")
    return "\n".join(out).rstrip() + "\n"


def by_hand_lines(found: dict[str, tuple[float, str]] | None) -> list[str]:
    """Lines of constants that are set, not fitted."""
    return [
        f'{name} = {{ value = {value:.4g}, evidence = "{why}" }}'
        for name, (value, why) in (found or {}).items()
    ]


def tables(lines: Lines, under: str) -> list[str]:
    """Tables of families, each with its chips, and of chips."""
    out = []
    for (scope, value), found in sorted(lines.items()):
        if scope in ("kind", "family", "chip"):
            chips = ", ".join(f'"{name}"' for name in (KINDS | FAMILIES).get(value, ()))
            out += [f"[{under}{'chip' if scope == 'chip' else 'family'}.{value}]"]
            out += [f"chips = [{chips}]"] if scope != "chip" else []
            out += [*sorted(found), ""]
    return out


INHERITS = {
    "torchax": ("maxtext", "XLA on TPU as well"), "torchtpu": ("maxtext", "XLA on TPU as well"),
    "levanter": ("maxtext", "XLA on TPU as well"), "jax": ("maxtext", "XLA as well"),
    "deepspeed": ("llm-foundry", "sharded data parallel in PyTorch as well"),
    "other": ("megatron", "nothing better is known"),
    "neuron": ("maxtext", "nothing is measured in public"),
}  # fmt: skip


def main() -> None:
    out, store = Path(sys.argv[1]), Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    records = [c for c in read_data(carried("measured_training.jsonl")) if isinstance(c, Case)]
    sweep = [c for c in read_data(carried("nanotron_h100_sweep.csv")) if isinstance(c, Case)]
    stacks: dict[str, list[Case]] = defaultdict(list)
    for case in [*records, *[c for c in sweep if not c.measured.oom]]:
        stacks[case.stack].append(case)
    for stack, (parent, why) in INHERITS.items():
        if (out / f"{stack}.toml").is_file():  # it may hold constants of its own since
            continue
        text = f"# {stack} has too few usable runs of its own: it takes {parent}'s ({why}).\n"
        (out / f"{stack}.toml").write_text(text + f'inherits = "{parent}"\n')
    for stack, cases in stacks.items():
        if sys.argv[3:] and stack not in sys.argv[3:]:
            continue
        runs = usable(cases)
        if not supported([run.case for run in runs]) or stack in INHERITS:
            continue
        fit = Fit(runs)
        x = fit.solve()
        stored = json.loads(store.read_text()) if store.is_file() else {}
        store.write_text(
            json.dumps(stored | {stack: fit.values(x)}, indent=1, sort_keys=True) + "\n"
        )
        (out / f"{stack}.toml").write_text(write(fit, x))
        print(stack, summary(list(np.expm1(fit.log_times(x) - fit.truth))), flush=True)


if __name__ == "__main__":
    main()
