"""Stand-ins for quantised layers, against the libraries' own code where it is installed."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from preflight.tracer import packed  # noqa: E402
from preflight.tracer.tape import Tape  # noqa: E402

BATCH, LENGTH, INPUTS, OUTPUTS = 3, 40, 256, 512
HALF = torch.float16


def standing(kind: str, dtype: Any = HALF, **options: Any) -> Any:
    with torch.device("meta"):
        plain = torch.nn.Linear(INPUTS, OUTPUTS, bias=False, dtype=dtype)
    return packed.KINDS[kind](plain, {"bits": 8 if kind in ("fp8", "eetq", "torchao-int8") else 4, **options})


def measured(call: Callable[[Any], Any], known: Any = (), dtype: Any = HALF) -> tuple[int, int, int]:
    """Bytes kept for backward (the output left out), and the peaks of forward and backward, of a call on meta."""
    x = torch.zeros(BATCH, LENGTH, INPUTS, dtype=dtype, device="meta", requires_grad=True)
    tape = Tape(bool_answer=True)
    for tensor in (x, *known):
        tape.known(tensor)
    tape.recording = True
    with tape:
        out = call(x)
        size = out.untyped_storage().nbytes()
        kept, forward = swept(tape)
        gradient = torch.zeros_like(out)
        tape.recording = False
        tape.known(gradient)
        tape.events.clear()
        tape.recording = True
        out.backward(gradient)
    live = peak = 0
    births = {}
    for index, (value, _) in enumerate(tape.events):
        if value >= 0:
            births[index] = value
            live += value
        elif -1 - value in births:
            live -= births[-1 - value]
        peak = max(peak, live)
    return kept - size, forward, peak


def swept(tape: Any) -> tuple[int, int]:
    live = peak = 0
    for value, _ in tape.events:
        live += value if value >= 0 else -tape.events[-1 - value][0]
        peak = max(peak, live)
    return live, peak


def own(layer: Any) -> list[Any]:
    return list(layer.parameters())


def test_eetq_is_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    # The identity is made on the host and moved: it costs the GPU its copy alone.
    eye = torch.eye
    monkeypatch.setattr(torch, "eye", lambda n: eye(n, device="meta"))
    eetq = pytest.importorskip("transformers.integrations.eetq")
    weight = torch.empty(INPUTS, OUTPUTS, dtype=torch.int8, device="meta")
    scales = torch.empty(OUTPUTS, dtype=HALF, device="meta")
    hub = SimpleNamespace(w8_a16_gemm=lambda x, w, s: x.new_empty(*x.shape[:-1], w.shape[1]))
    monkeypatch.setattr(eetq, "eetq_kernels_hub", hub, raising=False)
    real = measured(lambda x: eetq.EetqLinearMMFunction.apply(x, weight, scales, None), (weight, scales))
    layer = standing("eetq")
    assert measured(layer, own(layer)) == real


def test_fp8_is_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    fp8 = pytest.importorskip("transformers.integrations.finegrained_fp8")
    if not hasattr(fp8, "FP8LinearFunction"):
        pytest.skip("a release that does not train over FP8")
    monkeypatch.setattr(fp8, "fp8_linear", lambda x, w, *_: x.new_empty(*x.shape[:-1], w.shape[0]))
    weight = torch.empty(OUTPUTS, INPUTS, dtype=torch.float8_e4m3fn, device="meta")
    scales = torch.empty(OUTPUTS // 128, INPUTS // 128, device="meta")

    def call(x: Any) -> Any:
        return fp8.FP8LinearFunction.apply(x, weight, scales, [128, 128], None, None, True)

    kept, _, backward = measured(call, (weight, scales))
    layer = standing("fp8")
    assert measured(layer, own(layer))[0] == kept == 0
    scale_rows = 2 * OUTPUTS * INPUTS // 128 + 2 * scales.numel()  # the scales, made 16-bit and spread over rows
    assert measured(layer, own(layer))[2] <= backward <= measured(layer, own(layer))[2] + scale_rows


@pytest.mark.integration
def test_hqq_is_hqqs() -> None:
    quantize = pytest.importorskip("hqq.core.quantize")
    config = quantize.BaseQuantizeConfig(nbits=4, group_size=64, axis=1)
    plain = torch.nn.Linear(INPUTS, OUTPUTS, bias=False, dtype=HALF)
    real = quantize.HQQLinear(plain, config, compute_dtype=HALF, device="cpu")
    costs = real.W_q.numel() * real.W_q.element_size(), sum(real.meta[k].nbytes for k in ("zero", "scale"))
    real.W_q = torch.nn.Parameter(real.W_q.to("meta"), requires_grad=False)
    real.meta = {k: v.to("meta") if isinstance(v, torch.Tensor) else v for k, v in real.meta.items()}
    known = (real.W_q, *(v for v in real.meta.values() if isinstance(v, torch.Tensor)))
    layer = standing("hqq", group=64)
    assert measured(layer, own(layer)) == measured(real, known)
    sizes = [p.numel() * p._preflight_bytes for p in layer.parameters()]
    assert (sizes[0], sum(sizes[1:])) == costs


@pytest.mark.integration
def test_torchao_keeps_the_weight_in_16_bits() -> None:
    ao = pytest.importorskip("torchao.quantization")
    linear = torch.nn.Linear(INPUTS, OUTPUTS, bias=False, dtype=torch.bfloat16)
    linear.requires_grad_(False)
    ao.quantize_(linear, ao.Int8WeightOnlyConfig())
    saved: list[int] = []
    x = torch.zeros(BATCH, LENGTH, INPUTS, dtype=torch.bfloat16, requires_grad=True)

    def pack(tensor: Any) -> Any:
        saved.append(tensor.untyped_storage().nbytes())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        linear(x)
    layer = standing("torchao-int8", torch.bfloat16)
    scale = 2 * OUTPUTS
    assert max(saved) == 2 * INPUTS * OUTPUTS
    assert sum(saved) == measured(layer, own(layer), torch.bfloat16)[0] == 2 * INPUTS * OUTPUTS + scale


@pytest.mark.parametrize(
    ("backend", "keeps"), [("torch", 2), ("cuda", 2), ("cuda-old", 2), ("tritonv2", 0), ("triton", 0)]
)
def test_which_kernels_of_gptq_keep_the_dequantised_weight(backend: str, keeps: int) -> None:
    layer = standing("gptq", group=128, backend=backend)
    kept, forward, backward = measured(layer, own(layer))
    whole, out = INPUTS * OUTPUTS, 2 * BATCH * LENGTH * OUTPUTS
    assert kept == keeps * whole
    assert forward == {"cuda": 6 * whole, "cuda-old": 5 * whole, "triton": out}.get(backend, 2 * whole + out)
    assert backward == 2 * BATCH * LENGTH * INPUTS + (2 * whole if backend == "tritonv2" else 0)
    sizes = [p.numel() * getattr(p, "_preflight_bytes", p.element_size()) for p in layer.parameters()]
    groups = INPUTS // 128
    assert sizes == [
        whole // 2,
        groups * OUTPUTS // 2,
        2 * groups * OUTPUTS,
        4 * INPUTS,
    ]  # qweight, qzeros, scales, g_idx


def test_awq_repeats_the_weight_for_each_row_of_the_batch() -> None:
    layer = standing("awq", group=128)
    kept, forward, backward = measured(layer, own(layer))
    whole = 2 * INPUTS * OUTPUTS
    assert kept == 0  # the input, which is its caller's
    assert forward == whole + 2 * BATCH * LENGTH * OUTPUTS
    assert backward == (1 + BATCH) * whole + 2 * BATCH * LENGTH * INPUTS
    assert measured(standing("awq", group=128), own(layer), torch.float32)[0] >= 2 * BATCH * LENGTH * INPUTS


@pytest.mark.parametrize("method", ["gptq", "awq", "hqq"])
def test_adapters_over_them_run_as_pefts_do(method: str) -> None:
    """The same operations in the same order as peft's layer, by the dtypes that it adds in."""
    peft = pytest.importorskip("peft")
    from preflight.tracer import quantized

    with torch.device("meta"):
        model = torch.nn.Sequential(
            torch.nn.Linear(INPUTS, OUTPUTS, dtype=HALF), torch.nn.Linear(OUTPUTS, 8, dtype=HALF)
        )
    quantized.quantise(model, {"type": method, "bits": 4, "group": 64, "backend": "torch"}, {"fp16": HALF})
    with torch.device("meta"):
        adapted = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=["0"]))
    quantized.adapt_forwards(adapted, autocast=False)
    x = torch.zeros(2, 5, INPUTS, dtype=HALF, device="meta")
    out = adapted(x)
    assert out.dtype is HALF
    layer = adapted.base_model.model[0]
    assert type(layer.base_layer) is packed.KINDS[method]
    assert layer.lora_A["default"].weight.dtype is torch.float32
