"""A plugin of mypy: `msgspec.structs.replace(record, name=value)` takes the fields of the record, with their types.

msgspec declares the changes as `Any`: mypy would see neither a name that is no field nor a value of a wrong type.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy.expandtype import expand_type_by_instance
from mypy.nodes import ARG_NAMED_OPT, ARG_POS
from mypy.plugin import FunctionSigContext, Plugin
from mypy.types import CallableType, FunctionLike, Instance, get_proper_type


def signature(context: FunctionSigContext) -> FunctionLike:
    """The signature of a call for the record that it is given; msgspec's own where the record's class is not known."""
    declared = context.default_signature
    if len(context.args) < 1 or not context.args[0]:
        return declared
    record = get_proper_type(context.api.get_expression_type(context.args[0][0]))
    made = record.type.get("__init__") if isinstance(record, Instance) else None
    init = get_proper_type(made.type) if made is not None and made.type is not None else None
    if not isinstance(record, Instance) or not isinstance(init, CallableType):
        return declared
    fields = expand_type_by_instance(init, record)
    names = fields.arg_names[1:]
    return declared.copy_modified(
        arg_types=[record, *fields.arg_types[1:]],
        arg_names=[None, *names],
        arg_kinds=[ARG_POS, *(ARG_NAMED_OPT for _ in names)],
        ret_type=record,
        variables=[],
    )


class RecordsPlugin(Plugin):
    """Asks for the signature above."""

    def get_function_signature_hook(self, fullname: str) -> Callable[[FunctionSigContext], FunctionLike] | None:
        return signature if fullname == "msgspec.structs.replace" else None


def plugin(version: str) -> type[Plugin]:
    """What mypy calls."""
    return RecordsPlugin
