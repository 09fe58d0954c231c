"""What is known at the line being read, and what a detector may ask about it."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

from chipshift.audit import guards as g
from chipshift.audit.facts import EVAL, STARTUP, STEP, FileFacts, FuncFact, Hazard
from chipshift.audit.finding import Confidence, Severity, Target
from chipshift.audit.infer import Inference
from chipshift.audit.kinds import Binding, Scope
from chipshift.audit.names import dotted, tail, text, words
from chipshift.audit.prepass import Outline
from chipshift.audit.registry import Detectors
from chipshift.audit.roles import LoopRole, loop_role
from chipshift.audit.syntax import defaults

KERNELS = words(
    """flash-attn-kernel triton-kernel cuda-extension third-party-gpu-kernel transformer-engine
    xformers-op apex-fused jax-gpu-kernel"""
)
DEAD = frozenset({g.CUDA, g.PACKAGE, g.NEVER, g.OLD_TORCH, f"-{g.XLA}"})


@dataclass(slots=True)
class Func:
    """The function being read; ``node`` is None for the module body."""

    name: str
    node: ast.FunctionDef | ast.AsyncFunctionDef | None
    owner: ast.ClassDef | None
    scope: Scope
    fact: FuncFact
    role: str = ""
    guards: tuple[frozenset[str], ...] = ()
    attributes: dict[str, Binding] = field(default_factory=dict)
    sizes: set[str] | None = None
    """Names that size something in the body; filled when first asked."""


@dataclass(slots=True)
class Loop:
    """A loop around the line being read, with the names that vary in it."""

    node: ast.For | ast.AsyncFor | ast.While
    role: LoopRole
    names: set[str]


class Reader:
    """One module being read. ``outline`` is what a first look at its statements gave."""

    def __init__(
        self,
        tree: ast.Module,
        facts: FileFacts,
        outline: Outline,
        source: str,
        detectors: Detectors,
    ) -> None:
        self.tree = tree
        self.facts = facts
        self.outline = outline
        self.source = source
        self.aliases = outline.aliases
        self.infer = Inference(self.aliases)
        self.infer.returns = outline.returns
        self.infer.modules = outline.modules
        self.infer.jitted = outline.jitted if facts.uses_jax else set()
        self.guards: list[frozenset[str]] = []
        self.loops: list[Loop] = []
        self.parents: list[ast.AST] = []
        self.pending: list[
            tuple[ast.AST, str, ast.ClassDef | None, Func, tuple[frozenset[str], ...]]
        ] = []
        self.func = Func("", None, None, Scope(), FuncFact("", 1, 1, role=STARTUP))
        self.tries: list[ast.Try] = []
        self.withs: list[str] = []
        self.branches = g.GuardReader(self.aliases, self.value, outline.packages, self.off_flag)
        self.notes: dict[str, list[ast.AST]] = {}
        self.enclosing: list[ast.If] = []
        self.classes: list[ast.ClassDef] = []
        self.words: dict[str, bool] = {}
        self.decoding: dict[int, bool] = {}
        self.testing = False
        """Whether the expression being visited is the test of a branch."""
        self.detectors = detectors

    # What a detector may ask.

    def full(self, node: ast.expr) -> str:
        """Qualified name, "" when it does not start at an import."""
        return dotted(node, self.aliases) or ""

    def kind(self, node: ast.expr | None) -> str:
        return self.infer.of(node)

    def value(self, node: ast.expr, depth: int = 0) -> ast.expr | None:
        """The expression that a name or ``self`` attribute was last bound to."""
        binding: Binding | None = None
        if isinstance(node, ast.Name):
            binding = self.func.scope.find(node.id)
        elif isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                binding = self.func.attributes.get(node.attr)
            if binding is None:
                option = self.outline.options.get(node.attr)
                return option if depth == 0 else None
        if binding is None or binding.how != "value":
            return None
        return binding.node if isinstance(binding.node, ast.expr) else None

    def default(self, node: ast.expr) -> ast.expr | None:
        """``value``, or the default of the parameter that a name is."""
        found = self.value(node)
        if found is None and isinstance(node, ast.Name) and self.func.node is not None:
            return defaults(self.func.node).get(node.id)
        return found

    def off_flag(self, test: ast.expr) -> str:
        """The name of an option that is False by default and that ``test`` asks; else ""."""
        name = tail(test) if isinstance(test, ast.Name | ast.Attribute) else ""
        if not name:
            return ""
        if isinstance(test, ast.Attribute) or name in self.outline.options:
            option = self.outline.options.get(name)
        else:
            option = self.default(test)
        off = isinstance(option, ast.Constant) and (option.value is False)
        return name if off else ""

    def mentions(self, word: str) -> bool:
        """Whether the source has ``word`` anywhere: asked before a costly look."""
        known = self.words.get(word)
        if known is None:
            known = self.words[word] = word in self.source
        return known

    def has(self, *wanted: str) -> bool:
        return any(one in group for group in self.guards for one in wanted)

    @property
    def flag(self) -> str:
        for group in self.guards:
            for one in group:
                if one.startswith(f"{g.FLAG}:"):
                    return one.split(":", 1)[1]
        return ""

    @property
    def dead(self) -> bool:
        """Whether the line does not run on the target: a CUDA, package or never branch."""
        return any(group & DEAD for group in self.guards)

    @property
    def local(self) -> str:
        """Where the surrounding loops put the line; "" leaves it to the function."""
        for loop in reversed(self.loops):
            if loop.role in (LoopRole.STEP, LoopRole.MICRO):
                return STEP
            if loop.role is LoopRole.EVAL:
                return EVAL
        if any(loop.role is LoopRole.EPOCH for loop in self.loops):
            return "epoch"
        return "quiet" if self.withs else ""

    def parent(self, up: int = 1) -> ast.AST | None:
        """The enclosing node: 1 is the direct parent of the node being visited."""
        return self.parents[-up] if len(self.parents) >= up else None

    def within(self, *types: type) -> bool:
        return any(isinstance(node, types) for node in self.parents)

    def hit(
        self,
        rule: str,
        node: ast.AST,
        what: str,
        *,
        cause: str = "",
        targets: tuple[Target, ...] = (),
        severity: Severity | None = None,
        confidence: Confidence = "sure",
        needs_step: bool = False,
        raises: bool = False,
        anyway: bool = False,
        places: Iterable[int] = (),
        figures: dict[str, float] | None = None,
        flag: str = "",
    ) -> None:
        """Record a hazard at ``node`` unless its line is dead on the target (``anyway``: even so).

        Hazards of one rule with one ``cause`` become one finding with several places.
        """
        if self.dead and not anyway:
            return
        line = int(getattr(node, "lineno", 1))
        if rule in KERNELS and not self.enclosing and not self.has("choice") and self.func.node:
            self.func.fact.kernel = self.func.fact.kernel or rule
        self.facts.hazards.append(
            Hazard(
                rule=rule,
                line=line,
                end_line=int(getattr(node, "end_lineno", None) or line),
                what=what,
                func=self.func.name,
                local=self.local,
                cadence=self.has(g.CADENCE, g.NAN),
                flag=flag or self.flag,
                severity=severity,
                confidence=confidence,
                targets=targets,
                needs_step=needs_step,
                raises=raises,
                looped=bool(self.loops),
                cause=cause,
                places=list(places),
                figures=figures or {},
            )
        )

    def close(self) -> None:
        """Let go of the tree. The reader and its guards refer to each other, and the collector is
        off while many files are read, so that memory would grow with the trees."""
        self.__dict__.clear()

    def upcoming(self, node: ast.For | ast.AsyncFor | ast.While) -> LoopRole:
        """The role of a loop that is about to be read."""
        over = ""
        if not isinstance(node, ast.While):
            named: ast.expr = node.iter
            while isinstance(named, ast.Call) and named.args:
                named = named.args[0]
            made = self.value(named) if isinstance(named, ast.Name) else None
            over = f"{text(named)} {ast.unparse(made)[:200] if made is not None else ''}"
        roles = [one.role for one in self.loops]
        name = "" if self.withs else self.func.name.rsplit(".", 1)[-1].lstrip("_")
        return loop_role(node, self.outline, roles, self.func.role, over, name)

    def bind(self, target: ast.expr, node: ast.expr, how: str, index: int = -1) -> None:
        """Bind the names of a target to (a part of) an expression."""
        if isinstance(target, ast.Name):
            names = self.func.scope.names
            names[target.id] = Binding(how, node, index, names.get(target.id), line=node.lineno)
        elif isinstance(target, ast.Tuple | ast.List):
            inner = "element" if how == "value" else how
            for position, item in enumerate(target.elts):
                self.bind(item, node, inner, position)
        elif isinstance(target, ast.Starred):
            self.bind(target.value, node, how, index)
