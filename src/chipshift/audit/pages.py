"""What a rule teaches, as a page: ``--explain``, the documentation and SARIF share this text."""

from __future__ import annotations

from collections.abc import Mapping

from chipshift.audit.finding import SEVERITIES, TOPICS
from chipshift.audit.rules import Rule, rules
from chipshift.audit.rules.counterpart import counterparts

TOPIC_TITLES: Mapping[str, str] = {
    "kernels": "Kernels: who writes them",
    "shapes": "Shapes: how they must behave",
    "topology": "Topology: what to shard against",
    "other": "The rest: precision, host reads, input, state",
}


def rule_page(rule: Rule) -> str:
    """A self-contained Markdown page without links."""
    ways = (
        ("JAX", rule.jax),
        ("PyTorch on TPU (TorchTPU)", rule.torchtpu),
        ("torch_xla (deprecated)", rule.torch_xla),
        ("Trainium", rule.trainium),
    )
    parts = [
        f"# `{rule.slug}`: {rule.title}",
        f"{rule.severity.capitalize()} in the training step. Topic: {rule.topic}. "
        f"Holds for {', '.join(rule.applies_to)}.",
        rule.summary,
        _section("What happens on the device", _sentence(rule.on_device)),
        _section("What it costs", _sentence(rule.cost)),
        _section("Before", _code(rule.before)),
        _section("After", _code(rule.after)),
        _section("Instead", "\n".join(f"- **{name}**: {text}" for name, text in ways if text)),
        _section("By library", _libraries()) if rule.slug == "third-party-gpu-kernel" else "",
        _section("Not a finding", rule.not_a_finding),
        _section(
            "Sources",
            "\n".join(f"- {s.publisher}, {s.page}, {s.date}" for s in rule.source),
        ),
        _section(
            "Silencing it",
            f"`# chipshift: ignore[{rule.slug}] reason` on the line, or `{rule.slug} = "
            '"off"` under `[tool.chipshift.audit.severity]` in pyproject.toml.',
        ),
    ]
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def _section(title: str, text: str) -> str:
    return f"## {title}\n\n{text.strip()}" if text.strip() else ""


def _libraries() -> str:
    """The counterpart of each library, those that share one together."""
    names = {"jax": "JAX", "torch": "PyTorch", "torchtpu": "TorchTPU", "trainium": "Trainium"}
    shared: dict[str, list[str]] = {}
    for package, texts in counterparts().items():
        told = [f"  - {names.get(k, k)}: {text}" for k, text in texts.items() if k != "none"]
        shared.setdefault("\n".join(told) or f"  - {texts['none']}", []).append(package)
    return "\n".join(f"- **{', '.join(packages)}**\n{told}" for told, packages in shared.items())


def _sentence(text: str) -> str:
    return text if not text or text.rstrip().endswith((".", "?", "!")) else f"{text.rstrip()}."


def _code(text: str) -> str:
    return f"```python\n{text.strip()}\n```" if text.strip() else ""


def index_page() -> str:
    """The list of all rules, by topic, worst first."""
    parts = [
        "# The rules of `chipshift audit`",
        "Severity is that of a finding inside the training step; one that runs only in evaluation "
        "counts one level lower, one that runs once at start-up two, except what stops the run.",
    ]
    for topic in TOPICS:
        rows = [rule for rule in rules().values() if rule.topic == topic]
        if not rows:
            continue
        rows.sort(key=lambda rule: (SEVERITIES.index(rule.severity), rule.slug))
        table = ["| rule | severity | what |", "| --- | --- | --- |"]
        table += [f"| `{rule.slug}` | {rule.severity} | {rule.title} |" for rule in rows]
        parts.append(f"## {TOPIC_TITLES[topic]}\n\n" + "\n".join(table))
    return "\n\n".join(parts) + "\n"


def all_pages() -> dict[str, str]:
    """Every page of ``docs/rules`` by its file name."""
    pages = {f"{slug}.md": rule_page(rule) for slug, rule in rules().items()}
    return {"README.md": index_page(), **pages}
