"""Make the table of what Liger replaces: `python scripts/make_liger_table.py`. Needs liger-kernel to be installed; its
source is read, and not imported, because it needs Triton."""

from __future__ import annotations

import ast
import importlib.util
import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

TABLE = Path(__file__).parents[1] / "preflight" / "memory" / "device" / "law" / "liger_models.json"
PARTS = {"rope": "rope", "rms_norm": "norm", "swiglu": "mlp", "geglu": "mlp", "fused_linear_cross_entropy": "loss"}
"""Parameter of `apply_liger_kernel_to_*` -> our name of what it replaces."""


def replaced() -> dict[str, list[str]]:
    """Model type -> the parts that are replaced by default, of the installed release. Raises ModuleNotFoundError."""
    found = importlib.util.find_spec("liger_kernel")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("liger-kernel is not installed")
    source = Path(found.submodule_search_locations[0]) / "transformers" / "monkey_patch.py"
    return replaced_by(ast.parse(source.read_text(encoding="utf-8")))


def replaced_by(module: ast.Module) -> dict[str, list[str]]:
    """The same, of the module that has the functions and MODEL_TYPE_TO_APPLY_LIGER_FN."""
    functions = {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}
    (table,) = (
        node.value
        for node in module.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "MODEL_TYPE_TO_APPLY_LIGER_FN"
    )
    assert isinstance(table, ast.Dict)
    return {
        ast.literal_eval(key): _defaults(functions[ast.unparse(value)])
        for key, value in zip(table.keys, table.values, strict=True)
        if key is not None
    }


def _defaults(function: ast.FunctionDef) -> list[str]:
    named = function.args.args[-len(function.args.defaults) :]
    given = {one.arg: default for one, default in zip(named, function.args.defaults, strict=True)}
    return sorted({PARTS[name] for name, default in given.items() if name in PARTS and ast.unparse(default) == "True"})


def text(parts: Mapping[str, Sequence[str]], release: str) -> str:
    """The file."""
    source = f"liger-kernel {release}, transformers/monkey_patch.py: MODEL_TYPE_TO_APPLY_LIGER_FN"
    rows = ",\n".join(f"    {json.dumps(name)}: {json.dumps(list(found))}" for name, found in sorted(parts.items()))
    return f'{{\n  "source": {json.dumps(source)},\n  "replaced": {{\n{rows}\n  }}\n}}\n'


if __name__ == "__main__":
    TABLE.write_text(text(replaced(), version("liger_kernel")), encoding="utf-8")
