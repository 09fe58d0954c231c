"""Fit every stack's constants on the carried runs and write ``estimate/stacks/*.toml``.

usage: fit_stacks.py OUT_DIR FITTED_JSON [STACK...]

FITTED_JSON is ``src/chipshift/validate/data/fitted.json``; a fit starts from what it holds.

Constants set by hand (memory, kernels that a stack lacks) stand in BY_HAND with their evidence.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

from chipshift.validate.case import Case
from chipshift.validate.fit import Fit, usable
from chipshift.validate.free import ERAS, era
from chipshift.validate.run import carried, read_data
from chipshift.validate.score import summary

SWEEP = "the carried H100 sweep"
TPU = "77 of the 79 carried TPU recipes fit with it (all of them ran)"
XLA_MEMORY = {
    "logit_memory_bytes": (1.0, TPU + ": XLA never holds whole fp32 logits"),
    "gathered_layers": (1.0, TPU),
    "context_bytes": (5.0e8, TPU + "; the runtime's own share is outside the usable bytes"),
    "fragmentation": (0.03, TPU),
    "comm_buffer_bytes": (5.0e7, TPU),
}
BY_HAND: dict[str, dict[str, tuple[float, str]]] = {
    "maxtext": XLA_MEMORY,
    "torch_xla": XLA_MEMORY,
    "megatron": {
        "ep_once_per_node": (1.0, "DeepEP and the hybrid dispatcher send a token to a node once"),
        "narrow_activations": (0.7, "Transformer Engine keeps 8-bit inputs of its linear layers"),
    },
    "nanotron": {
        "ops_per_layer": (80.0, "unfused layers, counted; only its product with host time matters"),
        "extra_state_bytes": (2.5, SWEEP + ": Mem Alloc of ZeRO-0 runs is 20 bytes a parameter"),
        "zero_extra_bytes": (2.6, SWEEP + ": Mem Alloc of ZeRO-1 runs at large dp"),
        "workspace_bytes": (3.7e8, SWEEP + ": Mem Alloc of the smallest shards"),
        "activation_memory_scale": (1.4, SWEEP + ": Mem Res"),
        "working_layers": (26.0, SWEEP + ": Mem Res"),
        "logit_memory_bytes": (2.0, SWEEP + ": Mem Res"),
        "fragmentation": (0.0, "part of the scales above, which were fitted on reserved memory"),
        "comm_buffer_bytes": (0.0, "part of context_bytes here"),
        "context_bytes": (
            9.0e9,
            SWEEP + ": 1.8 GB lie between the largest reserved peak that ran (77.4 GiB) and the "
            "device's memory; the rest is a margin for the 10 % error of the peak, set where 2 % "
            "of the runs called fitting ran out",
        ),
    },
}  # fmt: skip


def number(value: float, evidence: str) -> str:
    return f'{{ value = {value:.4g}, evidence = "{evidence}" }}'


def constants(fit: Fit, x: np.ndarray, case: Case) -> dict[str, float]:
    return {name: float(f"{v:.4g}") for name, v in fit.constants(x, case).items()}


def table(title: str, values: dict[str, float], evidence: dict[str, str]) -> list[str]:
    lines = [f"[{title}]"] if title else []
    lines += [f"{k} = {number(v, evidence[k])}" for k, v in sorted(values.items())]
    return [*lines, ""] if values else []


def write(stack: str, fit: Fit, x: np.ndarray) -> str:
    """The stack's file: what all its runs share, then by chip, then by release."""
    by_hand = BY_HAND.get(stack, {})
    cases = [r.case for r in fit.runs]
    found = {(c.chip, era(c)): constants(fit, x, c) for c in cases}
    runs: dict[str, int] = defaultdict(int)
    for c in cases:
        runs[c.chip] += 1
    error = summary(list(np.expm1(fit.log_times(x) - fit.truth)))
    names = sorted({n for values in found.values() for n in values} - set(by_hand))
    shared = {
        n: next(iter(found.values()))[n]
        for n in names
        if len({values[n] for values in found.values()}) == 1
    }
    rest = [n for n in names if n not in shared]
    # A chip without runs takes the middle of those that have some, at their newest release.
    newest = {c.chip: found[(c.chip, era(c))] for c in sorted(cases, key=era)}
    middle = {n: float(f"{np.median([v[n] for v in newest.values()]):.4g}") for n in rest}
    between = dict.fromkeys(rest, f"the middle of the {len(newest)} chips that have runs")
    held = {
        f.name
        for (f, _), z, prior in zip(fit.keys, x, fit.prior, strict=True)
        if abs(z - prior) < 0.01
    }
    evidence = {
        n: f"held at its prior: the {len(cases)} runs of {stack} say nothing of it"
        if n in held
        else f"fitted on {len(cases)} measured runs of {stack}"
        for n in names
    }
    out = [
        f"# {stack}: fitted by benchmarks/calibration/fit_stacks.py on {len(cases)} runs "
        f"(median error {error.median_abs_rel:.1%}, p90 {error.p90_abs_rel:.1%})",
        "",
        "[constants]",
        *(f"{k} = {number(v, why)}" for k, (v, why) in sorted(by_hand.items())),
        *table("", shared, evidence)[:-1],
        *table("", middle, between),
    ]
    chips = sorted(runs)
    eras = ERAS.get(stack, ("",))
    previous: dict[str, dict[str, float]] = {}
    for chip in chips:
        mine = [e for e in eras if (chip, e) in found]
        values = {n: found[(chip, mine[0])][n] for n in rest}
        here = dict.fromkeys(rest, f"fitted on {runs[chip]} runs on {chip}")
        out += table(f"chip.{chip}", values, here)
        previous[chip] = values
    for e in eras:
        changed = {}
        for chip in chips:
            if (chip, e) in found:
                values = {n: v for n, v in found[(chip, e)].items() if n in rest}
                changed[chip] = {n: v for n, v in values.items() if v != previous[chip][n]}
                previous[chip] = values
        if any(changed.values()):
            out += ["[[release]]", f'since = "{e}"', ""]
            for chip, values in changed.items():
                n_runs = sum(c.chip == chip and era(c) == e for c in cases)
                here = dict.fromkeys(values, f"fitted on {n_runs} runs on {chip} from {e}")
                out += table(f"release.chip.{chip}", values, here)
    return "\n".join(out).rstrip() + "\n"


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
    for case in [*records, *[c for c in sweep if not c.measured.oom][::3]]:
        stacks[case.stack].append(case)
    for stack, (parent, why) in INHERITS.items():
        text = f"# {stack} has too few usable runs of its own: it takes {parent}'s ({why}).\n"
        (out / f"{stack}.toml").write_text(text + f'inherits = "{parent}"\n')
    for stack, cases in stacks.items():
        if sys.argv[3:] and stack not in sys.argv[3:]:
            continue
        runs = usable(cases)
        if len(runs) < 3 or stack in INHERITS:
            continue
        fit = Fit(runs)
        x = fit.solve(fit.stored())
        known = json.loads(store.read_text()) if store.is_file() else {}
        store.write_text(
            json.dumps(known | {stack: fit.values(x)}, indent=1, sort_keys=True) + "\n"
        )
        (out / f"{stack}.toml").write_text(write(stack, fit, x))
        print(stack, summary(list(np.expm1(fit.log_times(x) - fit.truth))), flush=True)


if __name__ == "__main__":
    main()
