"""The evaluator: expressions of a project's own files, over tensors on meta."""

from __future__ import annotations

import ast
import operator
from collections.abc import Iterator
from typing import Any

import torch

from . import calls, libraries, statements
from .attributes import attribute
from .classes import make_class
from .limits import checked, iterate, multiplied, multiplied_in_place, raised, released, shifted
from .scopes import Dotted, Scope
from .stopped import Budget, Stopped
from .values import Frame, Function, Library, Machine, Native, OwnClass, Unread, Value, truth

_BINARY: dict[type, Any] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: multiplied, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: raised, ast.MatMult: operator.matmul,
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.LShift: shifted,
    ast.RShift: operator.rshift,
}  # fmt: skip
_IN_PLACE: dict[type, Any] = {
    ast.Add: operator.iadd, ast.Sub: operator.isub, ast.Div: operator.itruediv, ast.Mult: multiplied_in_place,
    ast.BitAnd: operator.iand, ast.BitOr: operator.ior,
}  # fmt: skip
_COMPARED: dict[type, Any] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip
_UNARY: dict[type, Any] = {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert}
_SPECIFICATION = 8
"""Characters of the format in an f-string: a width of a billion makes a text of a billion characters."""
PLAIN = (bool, int, float, str, type(None))


class Reader(Machine):
    """Reads files of a project. `sources`: path -> text; `imports`: path -> ("level:name" -> path)."""

    def __init__(self, sources: dict[str, str], imports: dict[str, dict[str, str]]) -> None:
        self.sources, self.imports = sources, imports
        self.budget = Budget()
        self.scopes: dict[str, Scope] = {}
        self.again: Any = None
        """What a recomputation under checkpointing runs in."""

    def scope(self, path: str) -> Scope:
        """A file of the project."""
        found = self.scopes.get(path)
        if found is None:
            if path not in self.sources:
                raise Stopped(f"{path} was not read")
            found = self.scopes[path] = Scope(self, path, self.sources[path], self.imports.get(path, {}))
        return found

    def run(self, body: list[ast.stmt], frame: Frame) -> tuple[str, Any]:
        return statements.run(self, body, frame)

    def is_listed(self, name: str) -> bool:
        return libraries.is_listed(name)

    def named(self, name: str) -> Any:
        return libraries.named(self, name)

    def call(self, callee: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return calls.call(self, callee, args, kwargs)

    def defined(self, node: ast.stmt, frame: Frame) -> Any:
        """The value of a `def` or `class` statement."""
        if isinstance(node, ast.ClassDef):
            return make_class(self, node, frame)
        assert isinstance(node, ast.FunctionDef)
        made = self.function(node, frame, frame.owner)
        for decorator in node.decorator_list:
            named = ast.unparse(decorator)
            if named in ("torch.no_grad()", "torch.inference_mode()", "torch.no_grad"):
                made.without_gradients = True
            elif named not in ("staticmethod", "classmethod", "property", "abstractmethod", "override"):
                raise Stopped(f"the decorator {named} is not known", frame.scope.path, node.lineno)
        return made

    def function(self, node: Any, frame: Frame, owner: OwnClass | None) -> Function:
        """A function or lambda, its defaults evaluated."""
        a = node.args
        defaults = [self.evaluate(one, frame) for one in a.defaults]
        named = [None if one is None else self.evaluate(one, frame) for one in a.kw_defaults]
        parent = None if frame is frame.scope.frame else frame
        made = Function(node, frame.scope, parent, (defaults, named), owner)
        if parent is not None:
            here: Frame | None = parent
            while here is not None:
                here.closures.append(made)
                here = here.parent
        return made

    # --- expressions ----------------------------------------------------------------------------------------------

    def evaluate(self, node: ast.expr, frame: Frame) -> Any:
        """The value of an expression. Raises Stopped, with the place, for what is not known."""
        self.budget.step()
        method = _EXPRESSIONS.get(type(node))
        try:
            if method is None:
                raise Stopped(f"{type(node).__name__} is not read")
            return method(self, node, frame)
        except Stopped as stopped:
            raise stopped.at(frame.scope.path, node.lineno) from None
        except RecursionError:
            raise Stopped("it is nested too deeply", frame.scope.path, node.lineno) from None
        except (RuntimeError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError, NotImplementedError,
                AssertionError, MemoryError) as error:  # fmt: skip
            raise Stopped(_said(error), frame.scope.path, node.lineno) from None

    def _constant(self, node: ast.Constant, frame: Frame) -> Any:
        if not isinstance(node.value, (*PLAIN, type(Ellipsis))):
            raise Stopped("a constant of this type is not read")
        return node.value

    def _name(self, node: ast.Name, frame: Frame) -> Any:
        here: Frame | None = frame
        while here is not None:
            if node.id in here.variables:
                found = here.variables[node.id]
                if isinstance(found, Unread):
                    raise Stopped(found.why)
                return found
            here = here.parent
        try:
            return frame.scope.look_up(node.id)
        except KeyError:
            return calls.builtin(node.id, frame)

    def _attribute(self, node: ast.Attribute, frame: Frame) -> Any:
        holder = self.evaluate(node.value, frame)
        return holder.attribute(node.attr) if isinstance(holder, Dotted) else attribute(self, holder, node.attr)

    def _call(self, node: ast.Call, frame: Frame) -> Any:
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            return calls.parent_of(self, node, frame)
        callee = self.evaluate(node.func, frame)
        args: list[Any] = []
        for one in node.args:
            if isinstance(one, ast.Starred):
                args += iterate(self.evaluate(one.value, frame), self.budget)
            else:
                args.append(self.evaluate(one, frame))
        kwargs: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self.evaluate(keyword.value, frame)
            if keyword.arg is not None:
                kwargs[keyword.arg] = value
            elif isinstance(value, dict):
                kwargs.update({str(key): one for key, one in value.items()})
            else:
                raise Stopped("a spread mapping is not known")
        if getattr(callee, "name", "") == "save_hyperparameters":
            kwargs["_given"] = dict(frame.given)
        made = calls.call(self, callee, args, kwargs)
        if isinstance(callee, Native) and isinstance(node.func, ast.Attribute):
            callee.function = None  # the object goes first, then the arguments in their order, as Python does it
        released(args)
        return made

    def _binary(self, node: ast.BinOp, frame: Frame) -> Any:
        operands = [self.evaluate(node.left, frame)]
        operands.append(self.evaluate(node.right, frame))
        return self.operate(False, node.op, operands)

    def operate(self, in_place: bool, op: ast.operator, operands: list[Any]) -> Any:
        if not all(map(_has_operations, operands)):
            raise Stopped("an operation on this object is not known")
        if isinstance(operands[0], str) and isinstance(op, ast.Mod):
            raise Stopped("a text that is formatted with % is not read")
        function = (_IN_PLACE.get(type(op)) if in_place else None) or _BINARY[type(op)]
        made = function(operands[0], operands[1])
        released(operands)
        return checked(made)

    def _unary(self, node: ast.UnaryOp, frame: Frame) -> Any:
        value = self.evaluate(node.operand, frame)
        if isinstance(node.op, ast.Not):
            return not truth(value)
        if not isinstance(value, (*PLAIN, torch.Tensor)):
            raise Stopped("an operation on this object is not known")
        return _UNARY[type(node.op)](value)

    def _logical(self, node: ast.BoolOp, frame: Frame) -> Any:
        value: Any = None
        for one in node.values:
            value = self.evaluate(one, frame)
            if one is not node.values[-1] and truth(value) is isinstance(node.op, ast.Or):
                return value
        return value

    def _compare(self, node: ast.Compare, frame: Frame) -> Any:
        operands = [self.evaluate(node.left, frame)]
        found: Any = True
        for op, other in zip(node.ops, node.comparators):  # noqa: B905 - Python 3.9
            operands.append(self.evaluate(other, frame))
            found = _compared(op, operands[0], operands[1])
            del operands[0]
            if len(node.ops) > 1 and not truth(found):
                return found
        return found

    def _either(self, node: ast.IfExp, frame: Frame) -> Any:
        return self.evaluate(node.body if truth(self.evaluate(node.test, frame)) else node.orelse, frame)

    def _sequence(self, node: Any, frame: Frame) -> Any:
        found: list[Any] = []
        for one in node.elts:
            if isinstance(one, ast.Starred):
                found += iterate(self.evaluate(one.value, frame), self.budget)
            else:
                found.append(self.evaluate(one, frame))
        return found if isinstance(node, ast.List) else tuple(found) if isinstance(node, ast.Tuple) else set(found)

    def _dictionary(self, node: ast.Dict, frame: Frame) -> Any:
        found: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values):  # noqa: B905 - Python 3.9
            made = self.evaluate(value, frame)
            if key is None:
                if not isinstance(made, dict):
                    raise Stopped("a spread mapping is not known")
                found.update(made)
            else:
                found[self.evaluate(key, frame)] = made
        return found

    def _item(self, node: ast.Subscript, frame: Frame) -> Any:
        holder = self.evaluate(node.value, frame)
        return calls.item(self, holder, self.evaluate(node.slice, frame))

    def _slice(self, node: ast.Slice, frame: Frame) -> slice:
        parts = (None if one is None else self.evaluate(one, frame) for one in (node.lower, node.upper, node.step))
        start, stop, step = parts
        return slice(start, stop, step)

    def _text(self, node: ast.JoinedStr, frame: Frame) -> str:
        found = []
        for one in node.values:
            if isinstance(one, ast.Constant):
                found.append(str(one.value))
                continue
            assert isinstance(one, ast.FormattedValue)
            value = self.evaluate(one.value, frame)
            how = "" if one.format_spec is None else self._text(one.format_spec, frame)  # type: ignore[arg-type]
            if not isinstance(value, (*PLAIN, tuple)) or len(how) > _SPECIFICATION or any(map(str.isdigit, how[3:])):
                raise Stopped("what an f-string shows is not known")
            found.append(format(value, how) if how else str(value))
        return str(checked("".join(found)))

    def _lambda(self, node: ast.Lambda, frame: Frame) -> Function:
        return self.function(node, frame, frame.owner)

    def _list_of(self, node: Any, frame: Frame) -> Any:
        made = list(self.turns(node, frame, node.elt))
        return made if isinstance(node, ast.ListComp) else set(made)

    def _generator(self, node: ast.GeneratorExp, frame: Frame) -> Iterator[Any]:
        return self.turns(node, frame, node.elt)

    def _dictionary_of(self, node: ast.DictComp, frame: Frame) -> dict[Any, Any]:
        return dict(self.turns(node, frame, (node.key, node.value)))

    def turns(self, node: Any, frame: Frame, wanted: Any) -> Iterator[Any]:
        """The values of a comprehension, one after the other as Python makes them."""
        inner = Frame(frame.scope, None if frame is frame.scope.frame else frame, frame.owner)
        inner.self_value = frame.self_value

        def nested(at: int) -> Iterator[Any]:
            if at == len(node.generators):
                if isinstance(wanted, tuple):
                    key = self.evaluate(wanted[0], inner)
                    yield key, self.evaluate(wanted[1], inner)
                else:
                    yield self.evaluate(wanted, inner)
                return
            one = node.generators[at]
            for value in iterate(self.evaluate(one.iter, inner if at else frame), self.budget):
                statements.assign(self, one.target, value, inner)
                if all(truth(self.evaluate(test, inner)) for test in one.ifs):
                    yield from nested(at + 1)

        return nested(0)

    def _named(self, node: ast.NamedExpr, frame: Frame) -> Any:
        value = self.evaluate(node.value, frame)
        statements.assign(self, node.target, value, frame)
        return value


def _has_operations(value: Any) -> bool:
    return not isinstance(value, Value) and isinstance(value, (*PLAIN, torch.Tensor, list, tuple, set, dict))


def _compared(op: ast.cmpop, left: Any, right: Any) -> Any:
    if isinstance(op, (ast.Is, ast.IsNot)):
        return (left is right or (isinstance(left, Library) and left == right)) is isinstance(op, ast.Is)
    if isinstance(op, (ast.In, ast.NotIn)):
        if isinstance(left, torch.Tensor) or not isinstance(right, (str, list, tuple, dict, set, range)):
            raise Stopped("whether it is in there is not known")
        if isinstance(right, (list, tuple)) and any(isinstance(one, torch.Tensor) for one in right):
            raise Stopped("whether it is in there depends on the numbers in a tensor")
        return (left in right) is isinstance(op, ast.In)
    for one in (left, right):
        if isinstance(one, Value) and not isinstance(one, (Library, Function)):
            raise Stopped("a comparison with this object is not known")
    return _COMPARED[type(op)](left, right)


def _said(error: Exception) -> str:
    """What torch says of a wrong shape, in one line of limited length."""
    words = " ".join(str(error).split())[:160]
    return f"{type(error).__name__}: {words}"


_EXPRESSIONS: dict[type, Any] = {
    ast.Constant: Reader._constant, ast.Name: Reader._name, ast.Attribute: Reader._attribute, ast.Call: Reader._call,
    ast.BinOp: Reader._binary, ast.UnaryOp: Reader._unary, ast.BoolOp: Reader._logical, ast.Compare: Reader._compare,
    ast.IfExp: Reader._either, ast.List: Reader._sequence, ast.Tuple: Reader._sequence, ast.Set: Reader._sequence,
    ast.Dict: Reader._dictionary, ast.Subscript: Reader._item, ast.Slice: Reader._slice, ast.JoinedStr: Reader._text,
    ast.Lambda: Reader._lambda, ast.ListComp: Reader._list_of, ast.SetComp: Reader._list_of,
    ast.GeneratorExp: Reader._generator, ast.DictComp: Reader._dictionary_of, ast.NamedExpr: Reader._named,
}  # fmt: skip
