"""Finds every place of a module where one small change could be made, and makes that change."""

import ast
import copy
from collections.abc import Iterator
from typing import NamedTuple

OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.MatMult: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
UNDECIDED = (ast.JoinedStr, ast.Raise, ast.Assert, ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal)
"""Nothing inside these is changed: texts for people, and what only a bug can break. A raise is removed whole."""


class Mutant(NamedTuple):
    """One change of one module, and where it stands."""

    line: int
    scope: str
    """The function or class around it, with dots; empty at the top of the module."""
    kind: str
    change: str
    """Old -> new, as source on one line."""
    number: int
    """Which node of the walk through the module gives way."""
    new: ast.AST


def find_mutants(source: str) -> list[Mutant]:
    """All mutants of a module, in the order of its lines; annotations, docstrings and messages stay as they are."""
    found = []
    for scope, node in _scoped(_numbered(source), ""):
        for kind, new, shown in _changes(node):
            found.append(
                Mutant(node.lineno, scope, kind, shown or f"{_shown(node)} -> {_shown(new)}", node.number, new)
            )
    return found


def mutated(source: str, mutant: Mutant) -> str:
    """The module's source with the change in it."""
    return ast.unparse(ast.fix_missing_locations(_Replacer(mutant).visit(_numbered(source))))


def _numbered(source: str) -> ast.Module:
    tree = ast.parse(source)
    for number, node in enumerate(ast.walk(tree)):
        node.number = number
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "zip":
            for keyword in node.keywords:
                keyword.of_zip = True
    return tree


def _scoped(node: ast.AST, scope: str) -> Iterator[tuple[str, ast.AST]]:
    """The nodes that may be changed, each with the scope that it stands in."""
    for child in _children(node):
        yield scope, child
        if isinstance(child, UNDECIDED):
            continue
        named = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        yield from _scoped(child, f"{scope}.{child.name}".lstrip(".") if named else scope)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Without annotations, decorators, aliases of types and branches for the type checker."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_for_types(child):
                yield child


def _is_for_types(node: ast.AST) -> bool:
    """Also `zip(..., strict=True)`, which is an assertion: only a bug of ours can break it."""
    if isinstance(node, ast.keyword) and node.arg == "strict" and getattr(node, "of_zip", False):
        return True
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name):
        return node.test.id == "TYPE_CHECKING"
    is_alias = isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp | ast.Subscript)
    return is_alias and node.col_offset == 0 and node.targets[0].id[:1].isupper() and not node.targets[0].id.isupper()


Change = tuple[str, ast.AST, str]
"""The kind, the new node, and how it is shown where that is not old -> new."""


def _changes(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.BinOp | ast.Compare | ast.BoolOp | ast.UnaryOp):
        yield from _other_operators(node)
    elif isinstance(node, ast.Constant):
        for value in _other_values(node.value):
            yield "constant", ast.Constant(value), ""
    elif isinstance(node, ast.Dict | ast.Subscript):
        yield from _other_keys(node)
    elif isinstance(node, ast.IfExp | ast.If | ast.While):
        yield from _other_tests(node)
    elif isinstance(node, ast.With | ast.AsyncWith):
        if all(item.optional_vars is None for item in node.items):
            yield "with", ast.If(ast.Constant(True), node.body, []), ""
    else:
        yield from _other_statements(node)


def _other_operators(node: ast.BinOp | ast.Compare | ast.BoolOp | ast.UnaryOp) -> Iterator[Change]:
    if isinstance(node, ast.BinOp):
        if type(node.op) in OPERATORS:
            yield "operator", ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right), ""
    elif isinstance(node, ast.Compare):
        for other in COMPARISONS[type(node.ops[0])]:
            yield "comparison", ast.Compare(node.left, [other(), *node.ops[1:]], node.comparators), ""
    elif isinstance(node, ast.BoolOp):
        yield "and/or", ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values), ""
    else:
        yield ("not" if isinstance(node.op, ast.Not) else "sign"), node.operand, ""


def _other_values(value: object) -> list[object]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, 0] if value == 1 else [value + 1]
    if isinstance(value, float):
        return [value * 2 if value else 1.0]
    return []


def _other_keys(node: ast.Dict | ast.Subscript) -> Iterator[Change]:
    """A key of a literal, or the key that is looked up, is another."""
    if isinstance(node, ast.Subscript):
        if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            yield "key", ast.Subscript(node.value, ast.Constant(f"{node.slice.value}_"), node.ctx), ""
        return
    for place, key in enumerate(node.keys):
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            keys = [*node.keys[:place], ast.Constant(f"{key.value}_"), *node.keys[place + 1 :]]
            yield "key", ast.Dict(keys, node.values), f"{key.value!r}: -> '{key.value}_':"


def _other_tests(node: ast.IfExp | ast.If | ast.While) -> Iterator[Change]:
    """A condition that is one name or one call has no operator to change."""
    if not isinstance(node.test, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Constant):
        changed = copy.copy(node)
        del changed.number
        changed.test = ast.UnaryOp(ast.Not(), node.test)
        yield "not", changed, ""


def _other_statements(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.Return):
        # Neither is true, so that None in place of False is the same to a caller.
        if node.value is not None and not (isinstance(node.value, ast.Constant) and not node.value.value):
            yield "return", ast.Return(ast.Constant(None)), ""
    elif isinstance(node, ast.Expr):
        if not isinstance(node.value, ast.Constant | ast.Yield | ast.YieldFrom):
            yield "statement", ast.Pass(), ""
    elif isinstance(node, ast.AugAssign | ast.Raise | ast.Delete) or (
        isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute | ast.Subscript)
    ):
        yield "statement", ast.Pass(), ""
    elif isinstance(node, ast.Continue | ast.Break):
        yield "statement", ast.Break() if isinstance(node, ast.Continue) else ast.Continue(), ""


class _Replacer(ast.NodeTransformer):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def visit(self, node: ast.AST) -> ast.AST:
        if getattr(node, "number", None) == self._mutant.number:
            return self._mutant.new
        return self.generic_visit(node)


def _shown(node: ast.AST) -> str:
    """The source on one line; of a statement with a body, its first line."""
    lines = ast.unparse(ast.fix_missing_locations(copy.deepcopy(node))).splitlines()
    has_body = isinstance(node, ast.If | ast.While | ast.With | ast.AsyncWith)
    return lines[0] if has_body else " ".join(map(str.strip, lines))
