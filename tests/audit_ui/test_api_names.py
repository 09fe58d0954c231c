"""No rule names an interface that does not exist.

JAX, optax, tokamax and PyTorch names are looked up live. torch_tpu and torch_xla cannot share an
environment, so their names are looked up in the manifest that scripts/write_api_names.py writes.
Neuron's packages on the public index are stubs: its names carry the page that documents them.
"""

import importlib
import json
import re
import warnings
from importlib import resources
from typing import Any

import pytest

from chipshift.audit.rules import rules
from chipshift.audit.rules.counterpart import counterparts

MANIFEST: dict[str, Any] = json.loads(
    resources.files("chipshift.audit").joinpath("api_names.json").read_text("utf-8")
)
API = re.compile(r"(?<![\w./-])((?:jax|jnp|optax|tokamax|torch|torch_xla)\.[\w.]*\w)")
NEURON = re.compile(r"\bneuron\b|\bNKI\b|\bNEURON_\w+|\bnki\.\w+|\btorch_neuronx?\b|\bneuronx\w*")
GONE = {"torch_xla.amp.GradScaler"}  # named by a text that says so


def listed(package: str) -> list[tuple[str, str]]:
    return [(slug, name) for slug, r in rules().items() for name in getattr(r.names, package)]


def found(name: str) -> Any:
    """The object a dotted name stands for, importing the modules on the way."""
    parts = name.split(".")
    thing = importlib.import_module(parts[0])
    for at, part in enumerate(parts[1:], start=2):
        if not hasattr(thing, part):
            importlib.import_module(".".join(parts[:at]))
        thing = getattr(thing, part)
    return thing


@pytest.mark.parametrize("package", ["jax", "torch"])
def test_names_that_can_be_imported_here_exist(package: str) -> None:
    pytest.importorskip(package, reason="looks names up in the package itself")
    missing = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some of these modules warn when they are imported
        for slug, name in listed(package):
            pytest.importorskip(name.partition(".")[0], reason="looks names up in it")
            try:
                found(name)
            except (ImportError, AttributeError) as error:
                missing.append(f"{slug}: {name}: {error}")
    assert not missing


def in_manifest(name: str) -> bool:
    modules: dict[str, list[str]] = MANIFEST["torch_xla" if "xla" in name else "torch_tpu"]["names"]
    module, _, last = name.rpartition(".")
    return name in modules or last in modules.get(module, [])


@pytest.mark.parametrize("package", ["torchtpu", "torch_xla"])
def test_names_of_packages_that_cannot_be_installed_together_stand_in_the_manifest(
    package: str,
) -> None:
    assert not [(slug, name) for slug, name in listed(package) if not in_manifest(name)]


def test_neuron_names_carry_the_page_that_documents_them() -> None:
    documented: dict[str, dict[str, str]] = MANIFEST["neuron"]["names"]
    words = {name.partition(" ")[0] for name in documented}
    texts = "\n".join(rule.trainium for rule in rules().values())
    assert set(NEURON.findall(texts)) | {name for _, name in listed("neuron")} <= words
    assert all(set(page) == {"publisher", "page", "date"} for page in documented.values())


@pytest.mark.parametrize("slug", list(rules()))
def test_every_interface_that_a_text_mentions_exists(slug: str) -> None:
    """Also those that the rule does not list."""
    rule = rules()[slug]
    ways = "\n".join((rule.jax, rule.torchtpu, rule.torch_xla, rule.trainium))
    assert not missing_from(ways)


@pytest.mark.parametrize("package", list(counterparts()))
def test_every_interface_that_a_counterpart_mentions_exists(package: str) -> None:
    assert not missing_from("\n".join(counterparts()[package].values()))


def missing_from(ways: str) -> list[str]:
    """Names in a text that do not exist."""
    mentioned = {re.sub(r"^jnp\b", "jax.numpy", name) for name in API.findall(ways)}
    missing = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in sorted(mentioned - GONE - {"torch.tpu"}):
            if name.startswith(("torch.tpu.", "torch_xla.")):
                missing += [] if in_manifest(name) else [name]
                continue
            pytest.importorskip(name.partition(".")[0], reason="looks names up in it")
            try:
                found(name)
            except (ImportError, AttributeError):
                missing.append(name)
    return missing


def test_the_versions_looked_up_are_those_in_the_manifest() -> None:
    assert MANIFEST["torch_tpu"]["version"] == "0.2.0"
    assert MANIFEST["torch_xla"]["version"] == "2.9.0"
