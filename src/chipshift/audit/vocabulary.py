"""Names by which libraries, annotations and people say what a value is."""

from __future__ import annotations

import ast
import re

from chipshift.audit.kinds import (
    CONFIG,
    DEVICE,
    DICT,
    DTYPE,
    MODULE,
    NUMBER,
    NUMPY,
    STRING,
    TENSOR,
    TENSORS,
    UNKNOWN,
)
from chipshift.audit.names import (
    words,
)

TENSOR_RESULTS = words(
    """abs add all any argmax argmin argsort bool byte clamp clip clone contiguous cos cuda
    cumsum detach diff div double dot eq exp expand expand_as eye flatten flip float floor
    full_like gather half index_select int item_ log log_softmax logical_and logical_not
    logical_or long lt gt ge le masked_fill masked_fill_ masked_select matmul max mean min mm
    bmm mul narrow ne neg norm nonzero permute pow prod relu repeat repeat_interleave reshape
    round scatter scatter_add sigmoid sin softmax sort split sqrt square squeeze std sub sum
    sum_ t tanh to topk transpose tril triu type type_as unfold unique unsqueeze var view
    view_as where zero_ astype at set block_until_ready isnan isinf isfinite new_zeros
    new_ones new_full new_tensor chunk unbind swapaxes ravel backward requires_grad_ data
    logsumexp amax amin sign erf div_ sub_ add_ mul_ mv outer cross_entropy bfloat16 float16
    nanmean median mode cumprod roll fill_ copy_ nan_to_num lerp square_"""
)
MASK_RESULTS = words(
    """bool isnan isinf isfinite eq ne lt gt le ge logical_and logical_or logical_not logical_xor
    any all greater less equal not_equal isin isclose"""
)
NUMBER_RESULTS = words(
    """item size dim numel nelement ndimension element_size stride get_device tell count index"""
)
TORCH_HOST = words("from_numpy load as_tensor tensor")
TORCH_MAKERS = words(
    """tensor zeros ones empty full rand randn randint arange linspace eye randperm"""
)
NOT_TENSOR_TORCH = words(
    """device dtype is_tensor is_grad_enabled no_grad enable_grad inference_mode load save
    manual_seed compile set_default_dtype set_grad_enabled Generator Size finfo iinfo numel
    is_floating_point get_default_dtype is_autocast_enabled typename seed initial_seed
    autocast get_rng_state promote_types result_type jit are_deterministic_algorithms_enabled
    float32 float16 bfloat16 int64 int32 bool long float half double uint8 int8
    get_float32_matmul_precision __version__ is_complex is_storage is_inference
    is_inference_mode_enabled can_cast"""
)
JAX_ARRAY_ROOTS = ("jax.numpy.", "jax.lax.", "jax.nn.", "jax.random.", "jax.scipy.")
NAME_CONFIG = re.compile(
    r"^(self\.)?(\w+_)?(cfg|config|args|opt|opts|hparams|hps|flags|FLAGS|params_dict|hp|conf"
    r"|settings|options|kwargs|argv)$"
)
NAME_MASK = re.compile(r"(^|_)(mask|masks|keep|valid|is_valid|padding_mask)(_|\d|$)")
NAME_NUMBER = re.compile(
    r"^(n|num|max|min|step|steps|epoch|iter|it|idx|index|lr|rank|world_size|batch_size|seq_len"
    r"|length|size|dim|head|heads|layer|depth|width|height|count|total|start|end|eps|scale|level"
    r"|stage|patience|port|seed|timeout|k|num_.*|n_.*|max_.*|.*_(size|len|length|dim|steps?|iters?"
    r"|epochs?|count|num|idx|index|id|ids_len|rate|interval|freq|ratio|rank|level|path|dir|name))$"
)
NAME_TENSOR = re.compile(
    r"^(loss|losses|total_loss|logits|logit|outputs?|preds?|pred|hidden_states|hidden|x|y|q|k|v|z"
    r"|images?|imgs?|inputs?|labels?|targets?|target|embeds?|embeddings?|features?|feats?|feat"
    r"|scores?|probs?|log_probs?|mask|masks|attn|weights?|noise|latents?|tokens|input_ids|attention"
    r"_mask|hidden_states|advantages?|values|rewards?|boxes|bboxes|queries|keys|grad_norm|.*_loss"
    r"|loss_.*|.*_logits|.*_mask|.*_embeds?|.*_states|.*_probs?)$"
)
NUMBER_TYPES = words("int float bool str bytes Path")
TENSOR_TYPES = re.compile(
    r"(^|\W)(torch\.Tensor|Tensor|FloatTensor|LongTensor|BoolTensor|jnp\.ndarray|jax\.Array"
    r"|Array|Float|Int|Bool|chex\.Array|JTensor|ArrayLike)(\W|$)"
)


def annotated(annotation: ast.expr | None) -> str:
    """The kind an annotation states; UNKNOWN when it states none we know."""
    if annotation is None:
        return UNKNOWN
    written = ast.unparse(annotation)
    if TENSOR_TYPES.search(written):
        if re.search(r"(list|List|tuple|Tuple|Sequence|dict|Dict)\[", written):
            return DICT if re.search(r"(dict|Dict)\[", written) else TENSORS
        return TENSOR
    base = written.split("[")[0].split("|")[0].strip().split(".")[-1]
    inner = written.replace("Optional[", "").rstrip("]").split("|")[0].strip()
    if base in NUMBER_TYPES or inner in NUMBER_TYPES:
        return STRING if inner in ("str", "Path", "bytes") else NUMBER
    if "np.ndarray" in written or "NDArray" in written:
        return NUMPY
    if base in ("Module",) or written.endswith("nn.Module"):
        return MODULE
    if base == "device":
        return DEVICE
    if base == "dtype":
        return DTYPE
    if base.endswith(("Config", "Args", "Namespace")):
        return CONFIG
    return UNKNOWN
