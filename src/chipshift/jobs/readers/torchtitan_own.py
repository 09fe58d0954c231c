"""torchtitan's own job files, which a script names and does not bring: ``torchtitan_jobs.toml``."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from chipshift.jobs.draft import Draft
from chipshift.jobs.settings import Setting, flatten

TABLE = Path(__file__).parent / "torchtitan_jobs.toml"
_PLACE = re.compile(r"(?:(?:models|experiments)/(\w+)/)?train_configs/([\w.-]+?)\.toml$")
DEFAULT = "torchtitan/models/llama3/train_configs/debug_model.toml"
"""What ``run_train.sh`` starts where ``CONFIG_FILE`` is not set."""


@cache
def own_jobs() -> dict[str, dict[str, dict[str, Any]]]:
    """Family → name of the file → its tables."""
    return tomllib.loads(TABLE.read_text(encoding="utf-8"))


def own_job(path: str, draft: Draft) -> dict[str, Setting] | None:
    """The settings of torchtitan's own file of that path; None where it is none of its own."""
    match = _PLACE.search(path)
    if match is None:
        return None
    family, name = match.groups()
    families = [family] if family else ["llama3", *own_jobs()]  # llama alone was there at first
    found = next((own_jobs()[f][name] for f in families if name in own_jobs().get(f, {})), None)
    if found is None:
        return None
    draft.note(
        "settings of the job file", f"{name}.toml", "as torchtitan's own of that name has it"
    )
    return flatten(found, f"torchtitan's {name}.toml", {})
