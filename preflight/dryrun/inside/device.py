"""The faked device: FakeTensors with the true `cuda` device, under one dispatch mode that keeps the tape.

Three things make it work in a torch without CUDA (docs/how-to/dry-run.md, "How it works"): the device guard (`guard`);
C++ asks a FakeTensor for its device through `prim.device`, and the autograd engine alone is told "meta", or it would
look for an accelerator, its streams and threads; and backward runs in the thread of the program, since a mode is of one
thread.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    in_kernel_invocation_manager,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only

from . import guard, kernels, places, values
from .patches import replace, wrap
from .tape import Tape

CPU, META, CUDA = torch.device("cpu"), torch.device("meta"), torch.device("cuda", 0)
BUILD_LIMIT = 1 << 18
"""Bytes from which what the constructor of a module makes on the CPU is not allocated."""
_PRIM_DEVICE = torch.ops.prim.device.default
_DRAWN = {"normal", "uniform", "bernoulli", "dropout", "native_dropout", "exponential", "random", "randperm"}
"""Operations whose results are no function of their arguments."""
_FACTORIES = {"empty", "zeros", "ones", "full", "rand", "randn", "empty_strided", "normal", "eye", "tril", "triu",
              "randint"}  # fmt: skip
_ATEN = torch.ops.aten
_VIEWS = {_ATEN.slice.Tensor, _ATEN.select.int, _ATEN.transpose.int, _ATEN.permute.default}
"""Views of one tensor, whose arguments are numbers. Those that FSDP makes of storages that it resizes are not here."""
_DECIDES = {"logical_or": True, "bitwise_or": True, "logical_and": False, "bitwise_and": False}
"""Operations of which one operand decides the result where it has this value. A loop that generates ends so."""
_ANSWERS = {"all": True, "_is_all_true": True, "any": False, "_is_any_true": False}
"""Questions about every value of a tensor, and what is answered where the values are not known."""
_BUILDERS = ("__init__", "resize_token_embeddings", "reset_parameters")


class Device(TorchDispatchMode):
    """Everything that the program asks of tensors passes here."""

    def __init__(self, tape: Tape, tracer: str) -> None:
        super().__init__()
        self.tape = tape
        self.fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._engine = torch.autograd.graph._engine_run_backward.__code__
        self._scratch, self._workspace, attention = _of_tracer(tracer)
        self.kernels = kernels.Kernels(self.fake_mode, self.fake, self._assumed, attention)
        self._own = self.kernels.table()
        self._pending: list[Any] = []
        self.on_update: Callable[[Any], None] = lambda _: None
        """Called with a tensor that an operation outside of an optimizer writes into."""
        self.convolutions = False
        """Whether a convolution has run."""

    def fake(self, shape: Any, stride: Any, dtype: Any, device: Any = CUDA) -> Any:
        """A tensor without memory."""
        base = torch.empty_strided(shape, stride, dtype=dtype, device="meta")
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", self.tape.current)
        return FakeTensor(self.fake_mode, base, device)

    def _assumed(self, what: str, field: str = "") -> None:
        if self.tape.recording:
            library, user = places.here(3)
            self.tape.assume(f"{what}: {user or library or 'a library'}", field)

    def dispatch(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _PRIM_DEVICE:  # C++ asks; Python has the property
            frame = sys._getframe().f_back
            return META if frame is None or frame.f_code is self._engine else args[0].fake_device
        if any(kind.__name__ == "DTensor" for kind in _types):
            return NotImplemented  # it asks for the same of the tensors of this rank, which come here
        kwargs = {k: v for k, v in kwargs.items() if k != "pin_memory"} if kwargs else {}
        asked = kwargs.get("device")
        if asked is not None and asked.type == "meta" and torch._C._current_autograd_node() is not None:
            kwargs["device"] = CUDA
        if func not in self._own and _composite(func):  # in inference mode alone these come here whole
            with self:
                return func.decompose(*args, **kwargs)
        tensors = [*_tensors(args), *_tensors(kwargs.values())]
        fakes = [t for t in tensors if isinstance(t, FakeTensor)]
        device = kwargs.get("device")
        if not fakes and (device is None or device.type != "cuda"):
            if not tensors and (device is None or device.type == "cpu") and _is_building(func, args):
                with self.fake_mode:
                    return func(*args, **kwargs)
            return func(*args, **kwargs)
        if self._pending:
            self._settle()
        made = self._own.get(func)
        out = made(*args, **kwargs) if made is not None else self._run(func, args, kwargs, tensors, fakes)
        self._record(func, args, out)
        return out

    def _record(self, func: Any, args: Any, out: Any) -> None:
        scratch = self._scratch(func, args)
        with_graph = torch.is_grad_enabled() and func is not torch.ops.aten.detach.default
        for one in (*scratch, *_leaves(out)):
            if isinstance(one, FakeTensor) and one.device.type == "cuda":
                self.tape.birth(one)
                if with_graph:
                    self._pending.append(weakref.ref(one))
        del scratch
        if func is torch.ops.aten.convolution.default:
            self.convolutions = True
        space = self._workspace(func, args)
        if space is not None:
            self.tape.birth(space, "workspace")

    def _run(self, func: Any, args: Any, kwargs: Any, tensors: Any, fakes: Any) -> Any:
        """An operation on shapes, and on values where all of them are known."""
        if func in _VIEWS:
            return self._viewed(func, args, kwargs)
        if func.namespace == "c10d":
            return _collective(func, args)
        known = [values.known(t) for t in tensors]
        shapes = (args, kwargs)
        if len(fakes) < len(tensors):
            shapes = tree_map_only(torch.Tensor, self._as_fake, (args, kwargs))
        try:
            with self.fake_mode:
                out = func(*shapes[0], **shapes[1])
        except (DynamicOutputShapeException, DataDependentOutputException):
            out = self._by_values(func, args, kwargs)
        name = func._schema.name.split("::")[1]
        by_program = not self.tape.optimizing and torch._C._current_autograd_node() is None
        if func._schema.is_mutable and fakes and by_program:
            self.on_update(fakes[0])
        outs = [t for t in _leaves(out) if isinstance(t, FakeTensor)]
        all_known = all(value is not None for value in known) and name.rstrip("_") not in _DRAWN
        if all_known and outs and all(map(values.small, outs)) and _computed(func, args, kwargs, fakes, outs):
            return out
        if func._schema.is_mutable:
            _forget_written(func, args)
        if name in _ANSWERS:
            for t in outs:
                t._dry_answer = _ANSWERS[name]
        decided = _DECIDES.get(name)
        if decided is not None and any(v is not None and v.numel() and bool((v == decided).all()) for v in known):
            for t in (t for t in outs if values.small(t) and (t.dtype is torch.bool or not decided)):
                values.give(t, torch.full(t.shape, decided, dtype=t.dtype))
        return out

    def _viewed(self, func: Any, args: Any, kwargs: Any) -> Any:
        """A view of a tensor. FakeTensorMode would look each place of a slice up anew, which takes ten times as long:
        programs cut batches out of their data one by one."""
        with in_kernel_invocation_manager(self.fake_mode):
            seen = func(*args, **kwargs)
        out, value = FakeTensor(self.fake_mode, seen, args[0].fake_device), values.known(args[0])
        if value is not None:
            values.give(out, func(value, *args[1:], **kwargs), values.token_of(args[0]))
        return out

    def _as_fake(self, t: Any) -> Any:
        return t if isinstance(t, FakeTensor) else self.fake(t.shape, t.stride(), t.dtype, t.device)

    def _by_values(self, func: Any, args: Any, kwargs: Any) -> Any:
        """An operation whose result has a shape that depends on values: tried on made-up ones."""
        words = f"{func._schema.name} has a shape that depends on values, which were made up"
        self._assumed(words, "train.seq_len")
        made = values.made_up
        true = func(*tree_map_only(torch.Tensor, made, args), **tree_map_only(torch.Tensor, made, kwargs))
        return tree_map_only(torch.Tensor, lambda t: self.fake(t.shape, t.stride(), t.dtype), true)

    def _settle(self) -> None:
        """Autograd's nodes of the last operation's results learn where they were made.

        A view's node may have to be made anew, which locks: views are left out.
        """
        for reference in self._pending:
            t = reference()
            node = t.grad_fn if t is not None and not t._is_view() else None
            if node is not None and "dry" not in node.metadata:
                number = self.tape.number(t)
                if number is not None:
                    node.metadata["dry"] = self.tape.at[number]
        self._pending.clear()


Device.__torch_dispatch__ = Device.dispatch  # set afterwards: dynamo wraps what a class statement defines


def _tensors(given: Any) -> Iterator[Any]:
    """The tensors among the arguments of an operation, and in lists of them: no schema nests deeper."""
    for one in given:
        if isinstance(one, torch.Tensor):
            yield one
        elif isinstance(one, (list, tuple)):
            yield from (t for t in one if isinstance(t, torch.Tensor))


def _leaves(out: Any) -> list[Any]:
    """What an operation returned, one by one."""
    return [out] if isinstance(out, torch.Tensor) else tree_flatten(out)[0]


def _known_of(one: Any) -> Any:
    """An argument of an operation with the values of its tensors."""
    if isinstance(one, torch.Tensor):
        return values.known(one)
    return type(one)(map(_known_of, one)) if type(one) in (list, tuple) else one


@functools.cache
def _composite(func: Any) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"))


def _is_building(func: Any, args: Any) -> bool:
    """Whether an operation makes something large on the CPU inside the constructor of a module."""
    name = func._schema.name.split("::")[1]
    if name not in _FACTORIES or not args:
        return False
    size = args[1] if name == "randint" and len(args) > 1 else args[0]
    total = 4
    for one in size if isinstance(size, (list, tuple)) else size.shape if isinstance(size, torch.Tensor) else [size]:
        total *= one if isinstance(one, int) else 1
    frame: Any = sys._getframe(2) if total >= BUILD_LIMIT else None
    while frame is not None:
        if frame.f_code.co_name in _BUILDERS and isinstance(frame.f_locals.get("self"), torch.nn.Module):
            return True
        frame = frame.f_back
    return False


def _forget_written(func: Any, args: Any) -> None:
    """Values that an operation in place has written over."""
    for argument, value in zip(func._schema.arguments, args):
        if argument.alias_info is not None and argument.alias_info.is_write:
            for t in tree_flatten(value)[0]:
                values.forget(t)


def _computed(func: Any, args: Any, kwargs: Any, fakes: Any, outs: Any) -> bool:
    """Whether an operation was done on the values as well."""
    more = {**kwargs, "device": CPU} if "device" in kwargs else kwargs
    try:
        true = func(*map(_known_of, args), **{name: _known_of(one) for name, one in more.items()})
    except Exception:  # a kernel that the CPU has not
        return False
    tokens = {t.untyped_storage()._cdata: values.token_of(t) for t in fakes}
    results = [v for v in _leaves(true) if isinstance(v, torch.Tensor)]
    for t, value in zip(outs, results):
        values.give(t, value, tokens.get(t.untyped_storage()._cdata))
    return True


def _collective(func: Any, args: Any) -> Any:
    """What a collective returns: its tensors, and work that is done."""
    from torch._C._distributed_c10d import FakeWork

    work = FakeWork().boxed()
    return work if len(func._schema.returns) == 1 else (args[0], work)


def _of_tracer(folder: str) -> tuple[Callable[..., Any], ...]:
    """What preflight's tracer knows of CUDA's kernels: scratch memory, workspaces of convolutions, attention."""
    spec = importlib.util.spec_from_file_location(
        "preflight_tracer", f"{folder}/__init__.py", submodule_search_locations=[folder]
    )
    if spec is None or spec.loader is None:
        raise guard.NotFakeable("the tracer of preflight is missing")
    package = importlib.util.module_from_spec(spec)
    sys.modules["preflight_tracer"] = package
    spec.loader.exec_module(package)
    of_cuda = importlib.import_module("preflight_tracer.kernels")
    convolutions = importlib.import_module("preflight_tracer.convolutions")
    return of_cuda.kernel_scratch, convolutions.workspace, of_cuda.attention


def install(tape: Tape, tracer: str) -> Device:
    """Put the device in place, for this thread and those that the program starts."""
    guard.install()
    torch._C._set_only_lift_cpu_tensors(True)
    torch.autograd.set_multithreading_enabled(False)
    torch.set_num_threads(1)  # what is computed is small: to wake other threads takes longer
    torch.__future__.set_swap_module_params_on_conversion(True)  # an optimizer keeps the parameters that it was given
    # FakeTensorMode holds a weak reference to all that it makes, which torch.utils.swap_tensors does not allow.
    torch.utils.weakref = types.SimpleNamespace(getweakrefs=lambda _: ())
    _admit_to_foreach()
    device = Device(tape, tracer)
    library = torch.library.Library("aten", "IMPL")
    library.impl("scaled_dot_product_attention", device.kernels.attention, "AutogradCUDA")
    device._library = library
    device.__enter__()

    def in_thread(real: Any, self: Any) -> Any:
        with device:
            return real(self)

    wrap(threading.Thread, "run", in_thread)
    _methods(device)
    return device


def _admit_to_foreach() -> None:
    """Which implementation an optimizer takes by itself depends on the type of its tensors."""
    from torch.optim import optimizer
    from torch.utils import _foreach_utils

    for home in (optimizer, _foreach_utils):
        known = getattr(home, "_foreach_supported_types", None)
        if isinstance(known, list) and FakeTensor not in known:
            known.append(FakeTensor)


def _numbered(real: Any, *args: Any, **kwargs: Any) -> Any:
    """`device=0`: the number of a device alone means the accelerator's, which C++ looks for."""
    if type(kwargs.get("device")) is int:
        kwargs["device"] = torch.device("cuda", kwargs["device"])
    return real(*args, **kwargs)


def _moved_to_number(real: Any, one: Any, *args: Any, **kwargs: Any) -> Any:
    """`to(0)`."""
    if args and type(args[0]) is int:
        args = (torch.device("cuda", args[0]), *args[1:])
    return _numbered(real, one, *args, **kwargs)


def _numbered_factories() -> None:
    """`torch.zeros(2, device=0)` and its like."""
    from torch.utils import _device

    constructors: Any = _device._device_constructors()  # it keeps them: set_default_device knows them by identity
    for function in constructors:
        name = getattr(function, "__name__", "")
        if getattr(torch, name, None) is function:
            wrap(torch, name, _numbered)
    for name in ("zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "randint_like"):
        wrap(torch, name, _numbered)


def _of_numbers(real: Any, data: Any, *args: Any, **kwargs: Any) -> Any:
    """torch.tensor([...]) of lists with tensors of the device in them: C++ asks these for their numbers by itself."""
    return _numbered(real, _numbers(data), *args, **kwargs)


def _numbers(data: Any) -> Any:
    if isinstance(data, (list, tuple)) and any(isinstance(one, (FakeTensor, list, tuple)) for one in data):
        return [values.made_up(one).tolist() if isinstance(one, FakeTensor) else _numbers(one) for one in data]
    return data


def _methods(device: Device) -> None:
    """Methods of tensors that ask for values or addresses outside of the dispatcher."""

    def formatted(real: Any, t: Any, spec: str) -> str:
        if isinstance(t, FakeTensor) and not t.dim():
            return str(values.item(t).__format__(spec))
        return str(real(t, spec))

    def finite(real: Any, t: Any) -> Any:
        if not isinstance(t, FakeTensor) or t.numel() >= 1 << 20:
            return real(t)
        return values.give(torch.ones_like(t, dtype=torch.bool), torch.ones(t.shape, dtype=torch.bool))

    def listed(real: Any, t: Any) -> Any:
        return real(values.made_up(t)) if isinstance(t, FakeTensor) else real(t)

    def address(real: Any, t: Any) -> Any:
        return t.untyped_storage()._cdata if isinstance(t, FakeTensor) else real(t)

    def resized(real: Any, storage: Any, size: Any) -> Any:
        found = real(storage, size)
        device.tape.resized(storage)
        return found

    wrap(torch.UntypedStorage, "resize_", resized)
    replace(torch.Tensor, "record_stream", lambda *_: None)
    wrap(torch.Tensor, "__format__", formatted)
    wrap(torch, "isfinite", finite)
    replace(torch.Tensor, "isfinite", lambda t: torch.isfinite(t))
    wrap(torch.Tensor, "tolist", listed)
    wrap(torch.Tensor, "data_ptr", address)
    replace(torch.UntypedStorage, "data_ptr", lambda storage: storage._cdata)
    for home in (torch.Tensor, torch.nn.Module):
        wrap(home, "to", _moved_to_number)
    _numbered_factories()
    for name in ("tensor", "as_tensor"):
        wrap(torch, name, _of_numbers)

    def moved(t: Any, to: Any = None, *_: Any, **__: Any) -> Any:
        return t.to("cuda" if to is None else to)

    def applied(real: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
        """Weights that old hooks compute (weight_norm) hold the graph of their parts, which cannot be moved then."""
        for hook in module._forward_pre_hooks.values():
            computed = getattr(module, str(getattr(hook, "name", "")), None)
            if isinstance(computed, torch.Tensor) and not isinstance(computed, torch.nn.Parameter):
                setattr(module, hook.name, computed.detach())
            del computed
        return real(module, *args, **kwargs)

    wrap(torch.nn.Module, "_apply", applied)
    replace(torch.Tensor, "cuda", moved)
    replace(torch.Tensor, "pin_memory", lambda t, *_, **__: t)
