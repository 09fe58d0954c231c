"""Megatron-LM's dtypes: of matmuls, weights, gradients and optimizer state.

Arguments and defaults: as in megatron.py.
"""

from __future__ import annotations

from chipshift.jobs.dtypes import read_dtype
from chipshift.jobs.job import Assumed, Given
from chipshift.jobs.near_value import near_text
from chipshift.jobs.settings import Sheet
from chipshift.units import DTYPE_BYTES

BF16_WHY = (
    "Megatron keeps bf16 weights, fp32 main gradients, fp32 master weights and fp32 moments "
    "under --bf16"
)
FP16_WHY = (
    "Megatron keeps fp16 weights and gradients, fp32 master weights and fp32 moments under --fp16"
)

FSDP2_WHY = (
    "Megatron shards by PyTorch's fully_shard without a mixed-precision policy: gradients are "
    "reduced and kept as the weights are"
)


def put_precision(sheet: Sheet) -> None:
    """``--bf16``, ``--fp16`` or neither; what the optimizer keeps; 8- and 4-bit matmuls."""
    draft = sheet.draft
    half = sheet.boolean("bf16", into="bf16 weights and matmuls")
    fp16 = sheet.boolean("fp16", into="fp16 weights and matmuls")
    low = half or fp16
    dtype = "bf16" if half else "fp16" if fp16 else "fp32"
    draft.put("compute", Given(dtype, draft.file, low.line if low else None))
    halved = BF16_WHY if half else FP16_WHY
    why = halved if low else "Megatron's default without --bf16 or --fp16 is fp32"
    draft.assume("weights", dtype, why)
    draft.assume("master", "fp32" if low else "none", why)
    _gradients(sheet, dtype, why)
    draft.put("master", read_dtype(sheet, "main-params-dtype", into="master"))
    _moments(sheet, why)
    _eight_bit(sheet)
    _remainders(sheet)


def _moments(sheet: Sheet, why: str) -> None:
    """Adam's two, which may have a dtype each (fp32 by default): the wider is taken."""
    draft = sheet.draft
    keys = ("exp-avg-dtype", "exp-avg-sq-dtype")
    stated = [read_dtype(sheet, key, into="moments") for key in keys]
    given = [one for one in stated if one is not None]
    if not given:
        draft.assume("moments", "fp32", why)
        return
    names = [one.value if one is not None else "fp32" for one in stated]
    wider = max(names, key=DTYPE_BYTES.__getitem__)
    draft.put("moments", Given(wider, given[0].file, given[0].line))
    if names[0] != names[1]:
        draft.note("moments", wider, f"{names[0]} and {names[1]}: the wider is taken for both")


REMAINDERS_WHY = (
    "--use-precision-aware-optimizer keeps of each fp32 master weight the 16 bits that its bf16 "
    "weight lacks (store_param_remainders)"
)
"""NVIDIA, Megatron-LM, core/optimizer/__init__.py and optimizer_config.py, 2026-08: so from
Transformer Engine 2.1, but under fp8 recipes other than delayed scaling."""


def _remainders(sheet: Sheet) -> None:
    """Master weights of two bytes, held beside bf16 weights."""
    draft = sheet.draft
    aware = sheet.boolean("use-precision-aware-optimizer", into="dtypes of the optimizer's tensors")
    recipe = sheet.settings.get("fp8-recipe")
    other = recipe is not None and str(recipe.value).lower() not in ("delayed", "none", "")
    host = "optimizer-cpu-offload" in sheet.settings
    if aware is None or not aware.value or draft.get("weights") != "bf16" or other or host:
        return
    if draft.get("master") == "fp32":
        draft.put("master", Assumed("bf16", REMAINDERS_WHY))


def _gradients(sheet: Sheet, dtype: str, why: str) -> None:
    draft = sheet.draft
    sheet.boolean("accumulate-allreduce-grads-in-fp32", into="fp32 gradients")
    narrow = sheet.boolean("grad-reduce-in-bf16", into="gradients reduced in bf16")
    if any(flag.kind == "torch_fsdp2" for flag in draft.flags) and dtype != "fp32":
        draft.assume("gradients", dtype, FSDP2_WHY)
        draft.assume("reduce", dtype, FSDP2_WHY)
    wide = "accumulate-allreduce-grads-in-fp32" in sheet.settings
    main = read_dtype(
        sheet, "main-grads-dtype", "megatron-fsdp-main-grads-dtype", into="dtype of main gradients"
    )
    kept = "fp16" if dtype == "fp16" and not wide else "fp32"
    if narrow:
        draft.put("gradients", Given("bf16", narrow.file, narrow.line))
        draft.put("reduce", Given("bf16", narrow.file, narrow.line))
    elif main:
        draft.put("gradients", Given(main.value, main.file, main.line))
        draft.assume("reduce", main.value, "as the main gradients")
    moved = read_dtype(
        sheet, "megatron-fsdp-grad-comm-dtype", into="dtype of the gradient reduction"
    )
    if moved:
        draft.put("reduce", Given(moved.value, moved.file, moved.line))
    draft.assume("gradients", kept, why)
    draft.assume("reduce", kept, why)


FP8_RECIPES = ("tensorwise", "delayed", "mxfp8", "blockwise", "custom")
"""NVIDIA, Megatron-LM, arguments.py, ``--fp8-recipe``, 2026-12."""


def _eight_bit(sheet: Sheet) -> None:
    """fp8 and fp4 matmuls through Transformer Engine; weights stay bf16 unless kept so.

    MXFP8's are gathered in bf16 (estimate/narrow_weights.py).
    """
    draft = sheet.draft
    keys = ("fp8-format", "fp8", "fp8-e4m3", "fp8-hybrid")
    form = near_text(sheet, *keys, into="fp8 matmuls", known=("e4m3", "hybrid"))
    recipe = near_text(sheet, "fp8-recipe", into="fp8 recipe", known=FP8_RECIPES)
    four = sheet.text("fp4-format", "fp4", into="fp4 matmuls")
    gathered = sheet.boolean("fp8-param-gather", "fp8-param", into="weights kept in fp8")
    if four is not None:
        draft.put("compute", Given("fp4", four.file, four.line))
        draft.flag("fp8_recipe", "--fp4-format", four.value, four.line)
    elif form is not None:
        draft.put("compute", Given("fp8", form.file, form.line))
        shown = f"{form.value} {recipe.value if recipe else 'delayed'}"
        draft.flag("fp8_recipe", "--fp8-format", shown, form.line)
        if gathered and gathered.value:
            kind = recipe.value if recipe else "delayed"
            draft.flag("fp8_params", "--fp8-param-gather", kind, gathered.line)
            sent = "bf16" if "mx" in kind.lower() else "fp8"
            draft.put("gather", Given(sent, gathered.file, gathered.line))
