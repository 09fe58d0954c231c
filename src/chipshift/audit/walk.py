"""Reads one module in execution order, keeps what is known at each line, and calls the detectors.

Function bodies are read after the body that defines them, so that module names are known. A
detector is called by the last name of what it looks for, so that other code costs a lookup.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

from chipshift.audit import guards as g
from chipshift.audit.facts import EVAL, HOST, STARTUP, STEP, CallSite, FileFacts, FuncFact, Hazard
from chipshift.audit.finding import Confidence, Severity, Target
from chipshift.audit.kinds import Binding, Inference, Scope
from chipshift.audit.names import children, dotted, tail, text, walk, words
from chipshift.audit.prepass import Outline
from chipshift.audit.registry import Detectors, Visit
from chipshift.audit.roles import LoopRole, function_role, loop_role
from chipshift.audit.syntax import DEFS, Block, defaults, gpu_kernel, leaves

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

    def __init__(self, tree: ast.Module, facts: FileFacts, outline: Outline, source: str) -> None:
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
        self.reader = g.GuardReader(self.aliases, self.value, outline.packages, self.off_flag)
        self.notes: dict[str, list[ast.AST]] = {}
        self.enclosing: list[ast.If] = []
        self.classes: list[ast.ClassDef] = []
        self.words: dict[str, bool] = {}
        self.decoding: dict[int, bool] = {}
        self.testing = False
        """Whether the expression being visited is the test of a branch."""
        self.detectors = _detectors()

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

    # Statements.

    def read(self) -> None:
        """Read the whole module, then the functions in the order of their definition."""
        self.func.fact.end_line = self.facts.lines
        self.facts.funcs.append(self.func.fact)
        self.func.scope.names.update(self.outline.constants)
        self.infer.scope = self.func.scope
        self.block(self.tree.body)
        index = 0
        while index < len(self.pending):
            node, prefix, owner, outer, held = self.pending[index]
            index += 1
            self.function(node, prefix, owner, outer, held)
        for finish in self.detectors.finish:
            finish(self)

    def close(self) -> None:
        """Let go of the tree. The reader and its guards refer to each other, and the collector is
        off while many files are read, so that memory would grow with the trees."""
        self.__dict__.clear()

    def block(self, body: Block) -> None:
        """Statements in order; an ``if`` that leaves puts its opposite on the rest."""
        pushed = 0
        for statement in body:
            self.statement(statement)
            if isinstance(statement, ast.If) and not statement.orelse and leaves(statement.body):
                opposite = self.reader.opposite(statement.test)
                if opposite:
                    self.guards.append(opposite)
                    pushed += 1
        if pushed:
            del self.guards[-pushed:]

    def statement(self, node: ast.stmt) -> None:
        method = STATEMENTS.get(type(node))
        for detect in self.detectors.statements.get(type(node), ()):
            detect(self, node)
        if method is not None:
            method(self, node)
        else:
            for child in children(node):
                if isinstance(child, ast.expr):
                    self.expr(child)

    def guarded(self, guards: frozenset[str], body: Block) -> None:
        self.guards.append(guards)
        self.block(body)
        self.guards.pop()

    def test(self, node: ast.expr) -> None:
        self.testing = True
        self.expr(node)
        self.testing = False

    def if_(self, node: ast.If) -> None:
        self.test(node.test)
        choice = g.CHOICE if node.orelse or leaves(node.body) else frozenset()
        self.enclosing.append(node)
        self.guarded(self.reader.read(node.test) | choice, node.body)
        if node.orelse:
            self.guarded(self.reader.opposite(node.test) | choice, node.orelse)
        self.enclosing.pop()

    def for_(self, node: ast.For | ast.AsyncFor) -> None:
        self.expr(node.iter)
        self.bind(node.target, node.iter, "iter")
        self.loop(node, {one.id for one in walk(node.target) if isinstance(one, ast.Name)})

    def while_(self, node: ast.While) -> None:
        names = {
            one.target.id
            for one in node.body
            if isinstance(one, ast.AugAssign) and isinstance(one.target, ast.Name)
        }
        self.test(node.test)
        self.loop(node, names)

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

    def loop(self, node: ast.For | ast.AsyncFor | ast.While, names: set[str]) -> None:
        role = self.upcoming(node)
        if role in (LoopRole.STEP, LoopRole.MICRO):
            self.func.fact.step_spans.append((node.lineno, node.end_lineno or node.lineno))
        self.loops.append(Loop(node, role, names))
        self.block(node.body)
        self.loops.pop()
        self.block(node.orelse)

    def with_(self, node: ast.With | ast.AsyncWith) -> None:
        quiet = False
        for item in node.items:
            self.expr(item.context_expr)
            called = item.context_expr
            name = tail(called.func if isinstance(called, ast.Call) else called)
            quiet = quiet or name in ("no_grad", "inference_mode")
            if item.optional_vars is not None:
                self.bind(item.optional_vars, item.context_expr, "with")
        if quiet:
            self.withs.append("no_grad")
        self.block(node.body)
        if quiet:
            self.withs.pop()

    def assert_(self, node: ast.Assert) -> None:
        self.test(node.test)
        if node.msg is not None:
            self.expr(node.msg)

    def try_(self, node: ast.Try) -> None:
        self.tries.append(node)
        self.block(node.body)
        self.tries.pop()
        for handler in node.handlers:
            self.block(handler.body)
        self.block(node.orelse)
        self.block(node.finalbody)

    def assign(self, node: ast.Assign) -> None:
        self.parents.append(node)
        self.expr(node.value)
        for target in node.targets:
            self.store(target)
        self.parents.pop()
        for target in node.targets:
            self.bind(target, node.value, "value")

    def annotated(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.parents.append(node)
            self.expr(node.value)
            self.store(node.target)
            self.parents.pop()
            self.bind(node.target, node.value, "value")

    def augmented(self, node: ast.AugAssign) -> None:
        self.parents.append(node)
        self.expr(node.value)
        self.store(node.target)
        self.parents.pop()

    def store(self, target: ast.expr) -> None:
        if isinstance(target, ast.Subscript | ast.Attribute):
            self.expr(target)
        elif isinstance(target, ast.Tuple | ast.List):
            for item in target.elts:
                self.store(item)
        elif isinstance(target, ast.Starred):
            self.store(target.value)

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

    def define(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for decorator in node.decorator_list:
            self.expr(decorator)
        self.parents.append(node)
        for value in (*node.args.defaults, *node.args.kw_defaults):
            if value is not None:
                self.expr(value)
        self.parents.pop()
        prefix = f"{self.func.name}." if self.func.name else ""
        owned = self.classes[-1] if self.classes else None
        if owned is not None:
            prefix = f"{prefix}{owned.name}."
        self.pending.append((node, prefix, owned, self.func, tuple(self.guards)))

    def class_(self, node: ast.ClassDef) -> None:
        for one in (*node.decorator_list, *node.bases, *(k.value for k in node.keywords)):
            self.expr(one)
        self.classes.append(node)
        self.block(node.body)
        self.classes.pop()

    def function(
        self,
        node: ast.AST,
        prefix: str,
        owner: ast.ClassDef | None,
        outer: Func,
        held: tuple[frozenset[str], ...],
    ) -> None:
        """Read a function's body in its own scope, under the guards of its definition."""
        assert isinstance(node, DEFS)
        name = f"{prefix}{node.name}"
        role, sure = function_role(node, owner, self.outline, self.aliases)
        if not role and outer.role in (HOST, EVAL):
            role, sure = outer.role, False
        fact = FuncFact(name, node.lineno, node.end_lineno or node.lineno, role=role, sure=sure)
        if owner is not None:
            fact.bases = tuple(text(base) for base in owner.bases)
        self.facts.funcs.append(fact)
        scope = Scope(parent=outer.scope)
        attributes = self.outline.attributes.get(owner.name, {}) if owner else outer.attributes
        arguments = node.args
        for argument in (
            *arguments.posonlyargs,
            *arguments.args,
            *arguments.kwonlyargs,
            *([arguments.vararg] if arguments.vararg else []),
            *([arguments.kwarg] if arguments.kwarg else []),
        ):
            scope.names[argument.arg] = Binding("param", argument)
        saved = self.func, self.guards, self.loops, self.withs, self.tries
        self.func = Func(name, node, owner, scope, fact, role, held, attributes)
        self.guards, self.loops, self.withs, self.tries = list(held), [], [], []
        self.infer.scope, self.infer.attributes = scope, attributes
        self.infer.forward = role == STEP and sure
        self.classes = []
        if not gpu_kernel(node):
            self.block(node.body)
        for finish in self.detectors.functions:
            finish(self)
        self.func, self.guards, self.loops, self.withs, self.tries = saved
        self.infer.scope, self.infer.attributes = self.func.scope, self.func.attributes
        self.infer.forward = False

    # Expressions.

    def expr(self, node: ast.expr | ast.keyword) -> None:
        special = EXPRESSIONS.get(type(node))
        if special is not None:
            special(self, node)
        else:
            self.children(node)

    def children(self, node: ast.AST) -> None:
        self.parents.append(node)
        for name in FIELDS.get(type(node), ()):
            child = getattr(node, name)
            if child.__class__ is list:
                for item in child:
                    if item is not None:
                        self.expr(item)
            elif child is not None:
                self.expr(child)
        self.parents.pop()

    def call(self, node: ast.Call) -> None:
        name = tail(node.func)
        if node.func.__class__ is ast.Name:
            # Detectors are keyed by the real last name, whatever it was imported as.
            name = self.aliases.get(name, name).rsplit(".", 1)[-1]
        found = self.detectors.calls.get(name)
        if found is not None:
            full = self.full(node.func)
            for detect in found:
                detect(self, node, full)
        self.site(node, name)
        self.children(node)

    def site(self, node: ast.Call, name: str) -> None:
        """Note a call that may lead into the tree, and calls of imported packages."""
        func = node.func
        callee = ""
        if isinstance(func, ast.Name):
            callee = self.aliases.get(func.id, func.id)
        elif isinstance(func, ast.Attribute):
            full = dotted(func, self.aliases)
            if full is not None:
                callee = full
            elif isinstance(func.value, ast.Name) and func.value.id in ("self", "cls"):
                callee = f"self.{name}"
            elif isinstance(func.value, ast.Name) and func.value.id in self.outline.classes:
                callee = f"{func.value.id}.{name}"
            else:
                callee = f".{name}"
        if not callee or (name in COMMON and ("." not in callee or callee[0] == ".")):
            return
        for detect in self.detectors.any_call:
            detect(self, node, callee)
        self.func.fact.calls.append(
            CallSite(
                callee,
                node.lineno,
                node.end_lineno or node.lineno,
                self.local,
                self.has(g.CADENCE, g.NAN),
                self.dead,
                self.has(g.RANK0),
                bool(self.loops),
            )
        )

    def attribute(self, node: ast.Attribute) -> None:
        found = self.detectors.attributes.get(node.attr)
        if found is not None:
            full = self.full(node)
            for detect in found:
                detect(self, node, full)
        self.children(node)

    def name(self, node: ast.Name) -> None:
        found = self.detectors.names.get(node.id)
        if found is not None:
            for detect in found:
                detect(self, node, self.aliases.get(node.id, ""))

    def constant(self, node: ast.Constant) -> None:
        value = node.value
        if value.__class__ is str:
            if len(value) < 60:
                for detect in self.detectors.strings.get(value.lower(), ()):
                    detect(self, node, value)
                if value.startswith("cuda:"):
                    for detect in self.detectors.strings.get("cuda", ()):
                        detect(self, node, value)
        elif (value.__class__ is float or value.__class__ is int) and value > 1e12:
            for detect in self.detectors.numbers:
                detect(self, node, float(value))

    def choose(self, node: ast.IfExp) -> None:
        for detect in self.detectors.conditional:
            detect(self, node)
        self.parents.append(node)
        outer, self.testing = self.testing, True
        self.expr(node.test)
        self.testing = outer
        self.guards.append(self.reader.read(node.test))
        self.expr(node.body)
        self.guards[-1] = self.reader.opposite(node.test)
        self.expr(node.orelse)
        self.guards.pop()
        self.parents.pop()

    def logic(self, node: ast.BoolOp) -> None:
        self.parents.append(node)
        pushed = 0
        both = isinstance(node.op, ast.And)
        for value in node.values:
            self.expr(value)
            found = self.reader.read(value) if both else self.reader.opposite(value)
            self.guards.append(found)
            pushed += 1
        del self.guards[-pushed:]
        self.parents.pop()

    def comprehend(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
    ) -> None:
        self.parents.append(node)
        for one in node.generators:
            self.expr(one.iter)
            self.bind(one.target, one.iter, "iter")
            for test in one.ifs:
                self.expr(test)
        if isinstance(node, ast.DictComp):
            self.expr(node.key)
            self.expr(node.value)
        else:
            self.expr(node.elt)
        self.parents.pop()

    def lambda_(self, node: ast.Lambda) -> None:
        for argument in node.args.args:
            names = self.func.scope.names
            names[argument.arg] = Binding("param", argument, previous=names.get(argument.arg))
        self.parents.append(node)
        self.expr(node.body)
        self.parents.pop()

    def walrus(self, node: ast.NamedExpr) -> None:
        self.expr(node.value)
        self.bind(node.target, node.value, "value")

    def subscript(self, node: ast.Subscript) -> None:
        for detect in self.detectors.subscripts:
            detect(self, node)
        self.children(node)

    def operate(self, node: ast.BinOp) -> None:
        for detect in self.detectors.operators.get(type(node.op), ()):
            detect(self, node)
        self.children(node)


COMMON = words(
    """print len range isinstance super getattr setattr hasattr append extend format join split
    items keys values int float str list dict tuple set zip enumerate max min sum get update
    add_argument type sorted open size view reshape transpose permute unsqueeze squeeze"""
)
FIELDS: dict[type[ast.AST], tuple[str, ...]] = {
    ast.Call: ("func", "args", "keywords"),
    ast.keyword: ("value",),
    ast.Attribute: ("value",),
    ast.Subscript: ("value", "slice"),
    ast.BinOp: ("left", "right"),
    ast.UnaryOp: ("operand",),
    ast.BoolOp: ("values",),
    ast.Compare: ("left", "comparators"),
    ast.List: ("elts",),
    ast.Tuple: ("elts",),
    ast.Set: ("elts",),
    ast.Dict: ("keys", "values"),
    ast.JoinedStr: ("values",),
    ast.FormattedValue: ("value", "format_spec"),
    ast.Starred: ("value",),
    ast.Slice: ("lower", "upper", "step"),
    ast.Await: ("value",),
    ast.Yield: ("value",),
    ast.YieldFrom: ("value",),
    ast.IfExp: ("test", "body", "orelse"),
}
EXPRESSIONS: dict[type[ast.AST], Visit] = {
    ast.Call: Reader.call,
    ast.Attribute: Reader.attribute,
    ast.Name: Reader.name,
    ast.Constant: Reader.constant,
    ast.IfExp: Reader.choose,
    ast.BoolOp: Reader.logic,
    ast.ListComp: Reader.comprehend,
    ast.SetComp: Reader.comprehend,
    ast.GeneratorExp: Reader.comprehend,
    ast.DictComp: Reader.comprehend,
    ast.Lambda: Reader.lambda_,
    ast.NamedExpr: Reader.walrus,
    ast.Subscript: Reader.subscript,
    ast.BinOp: Reader.operate,
}
STATEMENTS: dict[type[ast.AST], Visit] = {
    ast.If: Reader.if_,
    ast.For: Reader.for_,
    ast.AsyncFor: Reader.for_,
    ast.While: Reader.while_,
    ast.With: Reader.with_,
    ast.AsyncWith: Reader.with_,
    ast.Try: Reader.try_,
    ast.Assert: Reader.assert_,
    ast.Assign: Reader.assign,
    ast.AnnAssign: Reader.annotated,
    ast.AugAssign: Reader.augmented,
    ast.FunctionDef: Reader.define,
    ast.AsyncFunctionDef: Reader.define,
    ast.ClassDef: Reader.class_,
}


def _detectors() -> Detectors:
    from chipshift.audit.detect import detectors

    return detectors()
