"""torchtitan's Python configurations as a command names them: ``--config llama3_8b``.

The function of that name is read from the file that holds it, where that is given; what
torchtitan's own set is carried here. Source: PyTorch, torchtitan, torchtitan/models/*/
config_registry.py, config/configs.py and run_train.sh (``MODULE``, ``CONFIG``), 2026-06.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Assumed
from chipshift.jobs.readers.torchtitan_recipe import CHUNKS, settings_of
from chipshift.jobs.settings import Setting
from chipshift.jobs.source import Source

OWN: dict[str, tuple[str, int, int, str, dict[str, int | bool | list[str]]]] = {
    # flavour, sequences a replica, their length, recomputation, degrees and converters
    "llama3_8b": ("8B", 1, 8192, "selective", {}),
    "llama3_70b": ("70B", 8, 8192, "full", {"tensor_parallel_degree": 8}),
    "llama3_405b": (
        "405B",
        2,
        8192,
        "full",
        {
            "tensor_parallel_degree": 8,
            "enable_async_tensor_parallel": True,
            "converters": ["float8"],
        },
    ),
    "qwen3_0_6b": ("0.6B", 4, 4096, "selective", {}),
    "qwen3_1_7b": ("1.7B", 4, 4096, "selective", {}),
    "qwen3_14b": ("14B", 4, 4096, "full", {}),
    "qwen3_32b": ("32B", 2, 4096, "full", {}),
    "deepseek_v3_16b": ("16B", 4, 4096, "selective", {"expert_parallel_degree": 8}),
    "deepseek_v3_671b": (
        "671B",
        4,
        4096,
        "selective",
        {"expert_parallel_degree": 2, "converters": ["float8"]},
    ),
}
_SIZE = re.compile(r"(?:^|_)(\d+)(?:_(\d+))?b(?=_|$)")


def registry_settings(
    words: Mapping[str, Setting], draft: Draft, context: Context
) -> dict[str, Setting] | None:
    """The settings of the configuration that a command names; None where it names none.

    Args:
        words: the command's own, ``module`` and ``config`` among them.
    """
    named, module = words.get("config"), words.get("module")
    if named is None or module is None:
        return None
    name = str(named.value)
    given = _holding(name, context)
    if given is not None:
        return settings_of(given, name, draft, context)
    family = str(module.value).rsplit(".", 1)[-1]
    found = {"model.name": Setting(family, module.file, module.line)}
    bare = re.sub(r"^graph_trainer_", "", name)
    if bare in OWN:
        flavor, size, length, mode, degrees = OWN[bare]
        own: dict[str, object] = {
            "model.flavor": flavor,
            "training.local_batch_size": size,
            "training.seq_len": length,
            "activation_checkpoint.mode": mode,
            "activation_checkpoint.selective_ac_option": "op",
        }
        for key, value in degrees.items():
            own["model.converters" if key == "converters" else f"parallelism.{key}"] = value
        found |= {key: Setting(value, named.file, named.line) for key, value in own.items()}
        draft.put("loss_chunks", Assumed(CHUNKS, "torchtitan's own configurations chunk the loss"))
        draft.note("settings of the configuration", name, "as torchtitan's own registry has them")
        return found
    size_of = _SIZE.search(name)
    whole, part = size_of.groups() if size_of else ("", None)
    flavor = f"{whole}.{part}B" if part else f"{whole}B" if whole else name
    found["model.flavor"] = Setting(flavor, named.file, named.line)
    draft.note("settings", "of the command alone", f"the configuration {name} was not given")
    return found


def _holding(name: str, context: Context) -> Source | None:
    """The file given that defines the configuration's function."""
    for base, source in context.beside.items():
        if re.search(rf"^def {re.escape(name)}\(", source.text, re.M):
            context.consumed.add(base)
            return source
    return None
