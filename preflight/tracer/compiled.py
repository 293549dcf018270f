"""torch.compile on meta: AOTAutograd's own graphs and partition, run as Inductor would allocate them.

Layers and the loss are each traced to one forward and one backward graph (torch._functorch.aot_autograd, with
Inductor's decompositions), cut by the partitioner that Inductor uses, which decides what is kept for backward and what
is computed again. Of a graph's values only those are storages that a kernel has to write out: results of kernels that
nothing is fused into (matrix products, attention), what those read, and what the graph returns. Pointwise work and
reductions in between live in registers. A storage is freed after its last reader, and may be written over by a result
of its size.

Not modelled: Inductor's templates that fuse into matrix products (max-autotune), and CUDA graphs, whose pool keeps what
it has.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

Run = Callable[[list[Any]], list[Any]]

_OPAQUE = (
    "mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_backward", "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_backward", "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_efficient_attention_backward", "_grouped_mm", "embedding_dense_backward", "sort", "index_put",
    "empty_like", "empty", "empty_strided", "new_empty",
)  # fmt: skip
"""Operators that are kernels of their own to Inductor (torch/_inductor/lowering.py), and those that make memory."""


def compile_layers(model: nn.Module, mark: Callable[[Any], None]) -> None:
    """Replace the forward of each stack's layers by a compiled one, as `module.compile()` of every layer does. Layers
    of a stack share a graph, as equal code with equal shapes does. `mark`: told what each layer returns."""
    for stack in [m for m in model.modules() if isinstance(m, nn.ModuleList) and _is_stack(m)]:
        first = stack[0]
        shared: dict[Any, Any] = {}
        outer = type(first).forward
        plain = getattr(outer, "__wrapped__", outer)  # transformers' layers checkpoint themselves around their forward
        for layer in stack:
            body = functools.partial(_compiled_forward, plain, first, shared, mark, layer)
            layer.forward = functools.partial(_checkpointed, layer, body)


def _is_stack(modules: nn.ModuleList) -> bool:
    kinds = {type(module) for module in modules}
    return len(modules) > 1 and len(kinds) == 1 and next(iter(kinds)).__name__.endswith(("Layer", "Block"))


def _checkpointed(layer: Any, body: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A compiled layer within its checkpoint: the compiled code runs again in backward."""
    if getattr(layer, "gradient_checkpointing", False) and layer.training:
        return layer._gradient_checkpointing_func(functools.partial(body, **kwargs), *args)
    return body(*args, **kwargs)


def _compiled_forward(
    plain: Any, first: nn.Module, shared: dict[Any, Any], mark: Any, layer: nn.Module, *args: Any, **kwargs: Any
) -> Any:
    tensors = {name: value for name, value in kwargs.items() if _has_tensors(value)}
    rest = {name: value for name, value in kwargs.items() if name not in tensors}
    key = (torch.is_grad_enabled(), tuple(sorted(tensors)), tuple(requires(args)), layer.training)
    if key not in shared:

        def whole(values: dict[str, Any], given: tuple[Any, ...], named: dict[str, Any]) -> Any:
            body = functools.partial(plain, first, **rest)
            return _with_values(first, values, lambda: body(*given, **named))

        shared[key] = _made(whole, (_values(layer), args, tensors))
    out = shared[key](_values(layer), args, tensors)
    mark(out)
    return out


def requires(args: Sequence[Any]) -> list[bool]:
    """Which of the arguments want gradients."""
    return [isinstance(a, torch.Tensor) and a.requires_grad for a in args]


def _has_tensors(value: Any) -> bool:
    return any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(value))


def _values(module: nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _with_values(module: nn.Module, values: dict[str, Any], body: Callable[[], Any]) -> Any:
    class Call(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self) -> Any:
            return body()

    return torch.func.functional_call(Call(), {f"inner.{name}": value for name, value in values.items()}, ())


def function(plain: Callable[..., Any]) -> Callable[..., Any]:
    """A compiled function of tensors, with a graph for each set of shapes."""
    made: dict[Any, Any] = {}

    def call(*args: torch.Tensor) -> Any:
        key = (torch.is_grad_enabled(), tuple((tuple(a.shape), a.dtype, a.requires_grad) for a in args))
        if key not in made:
            made[key] = _made(plain, args)
        return made[key](*args)

    return call


def _made(plain: Callable[..., Any], args: tuple[Any, ...]) -> Callable[..., Any]:
    """A function compiled for arguments like these: graphs are made in a first call, which is on no tape, and of
    leaves, as those of what has a history have no gradients."""

    def leaf(value: Any) -> Any:
        return value.detach().requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value

    made, given = aot(plain), F.cross_entropy
    F.cross_entropy = cast(Any, _cross_entropy)
    try:
        # Hooks of a checkpoint around it count what is saved: those on top do not.
        with _disable_current_modes(), torch.autograd.graph.saved_tensors_hooks(_same, _same):
            made(*tree_map(leaf, args))
    finally:
        F.cross_entropy = given
    return made


def _same(value: Any) -> Any:
    return value


def _cross_entropy(
    logits: torch.Tensor, wanted: torch.Tensor, ignore_index: int = -100, reduction: str = "mean", **_: Any
) -> torch.Tensor:
    """Cross-entropy as Inductor sees it: reductions over rows and a gather. (Its own operator has no gradient where
    graphs are made of meta tensors.)"""
    rows = logits - logits.logsumexp(-1, keepdim=True)
    losses = -rows.gather(-1, wanted.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    losses = torch.where(wanted == ignore_index, losses.new_zeros(()), losses)
    return losses.sum() if reduction == "sum" else losses.mean()


def aot(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function compiled ahead of time, forward and backward."""
    from torch._functorch.aot_autograd import aot_function
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch._inductor.decomposition import select_decomp_table

    def lowered(graph: fx.GraphModule, _: Sequence[Any]) -> Any:
        def run(args: list[Any]) -> list[Any]:
            given = list(args)
            args.clear()  # so that what is saved for backward dies when backward has read it
            return allocate(graph, given)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    partition = functools.partial(min_cut_rematerialization_partition, compiler="inductor")
    # Autograd is asked before decompositions are: those of operators that it sees through would hide their parts.
    table = {op: how for op, how in select_decomp_table().items() if not _seen_through(op)}
    made: Callable[..., Any] = aot_function(
        function, fw_compiler=lowered, bw_compiler=lowered, partition_fn=partition, decompositions=table
    )
    return made


def _seen_through(op: Any) -> bool:
    if not isinstance(op, torch._ops.OpOverload):
        return False
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd"))


_GETITEM = operator.getitem


def _opaque(node: fx.Node) -> bool:
    name = getattr(getattr(node.target, "overloadpacket", None), "__name__", "")
    return node.op == "call_function" and name in _OPAQUE


def _is_view(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return bool(schema and schema.returns and schema.returns[0].alias_info is not None) or node.target is _GETITEM


class Plan:
    """Which values of a graph are storages, what each reads, and when each is read last."""

    def __init__(self, graph: fx.Graph) -> None:
        self.nodes = list(graph.nodes)
        self.place = {node: at for at, node in enumerate(self.nodes)}
        output = next(node for node in self.nodes if node.op == "output")
        returned = set(output.all_input_nodes)
        self.written: set[fx.Node] = set()
        for node in self.nodes:
            if node.op != "call_function" or _is_view(node):
                continue
            if _opaque(node) or self._is_read_whole(node, returned):
                self.written.add(node)
        self.sources: dict[fx.Node, frozenset[fx.Node]] = {}
        for node in self.nodes:
            if node in self.written or node.op in ("placeholder", "get_attr"):
                self.sources[node] = frozenset({node})
            else:
                self.sources[node] = frozenset().union(*(self.sources[arg] for arg in node.all_input_nodes))
        self.last: dict[fx.Node, int] = {}
        for at, node in enumerate(self.nodes):
            if node in self.written or node.op == "output":
                for arg in node.all_input_nodes:
                    for source in self.sources[arg]:
                        self.last[source] = at
        self.dying: dict[int, list[fx.Node]] = {}
        for source, at in sorted(self.last.items(), key=lambda pair: self.place[pair[0]]):
            if self.nodes[at].op != "output":
                self.dying.setdefault(at, []).append(source)

    def sources_of(self, node: fx.Node) -> list[fx.Node]:
        """The storages that a kernel reads, in the order of their making."""
        read: set[fx.Node] = set().union(*(self.sources[arg] for arg in node.all_input_nodes))
        return sorted(read, key=self.place.__getitem__)

    def _is_read_whole(self, node: fx.Node, returned: set[fx.Node]) -> bool:
        """Whether it, or a view of it, is returned or read by a separate kernel."""
        if node in returned:
            return True
        return any(_opaque(user) or (_is_view(user) and self._is_read_whole(user, returned)) for user in node.users)


def allocate(module: fx.GraphModule, args: list[Any]) -> list[Any]:
    """The allocations and outputs of a compiled graph; nothing is computed. `args`: its inputs, which die after their
    last use, unless another variable holds them."""
    plan = _plan(module)
    held: dict[fx.Node, Any] = {}
    result: list[Any] = []
    for at, node in enumerate(plan.nodes):
        if node.op == "placeholder":
            held[node] = args.pop(0)
        elif node.op == "get_attr":
            held[node] = getattr(module, str(node.target))
        elif node.op == "output":
            result = [_value(plan, held, arg) for arg in node.args[0]]
        elif node in plan.written:
            held[node] = _written(plan, held, node, at)
        for source in plan.dying.get(at, ()):
            held.pop(source, None)
    return result


@functools.lru_cache(maxsize=64)
def _plan(module: fx.GraphModule) -> Plan:
    return Plan(module.graph)


def _written(plan: Plan, held: dict[fx.Node, Any], node: fx.Node, at: int) -> Any:
    """The storages that a kernel writes: new ones, or one that it reads last, where the kernel is not opaque."""
    value = node.meta["val"]
    if isinstance(value, (tuple, list)):
        return [
            torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device="meta") if isinstance(v, torch.Tensor) else v
            for v in value
        ]
    if not _opaque(node):
        nbytes = value.untyped_storage().nbytes()
        for source in plan.sources_of(node):
            old = held.get(source)
            if source not in plan.written or plan.last.get(source) != at or not isinstance(old, torch.Tensor):
                continue
            if old.untyped_storage().nbytes() == nbytes:
                out = torch.empty(0, dtype=value.dtype, device="meta")
                return out.set_(old.untyped_storage(), 0, value.shape, value.stride())
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")


def _value(plan: Plan, held: dict[fx.Node, Any], arg: Any) -> Any:
    """An output of a graph: the storage behind its views."""
    if not isinstance(arg, fx.Node):
        return arg
    if arg in held:
        return held[arg]
    given = [_value(plan, held, one) for one in arg.all_input_nodes]
    if arg.target is _GETITEM:
        return given[0][arg.args[1]]
    value = arg.meta["val"]
    out = torch.empty(0, dtype=value.dtype, device="meta")
    return out.set_(given[0].untyped_storage(), value.storage_offset(), value.shape, value.stride())
