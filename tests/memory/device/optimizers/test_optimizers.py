"""Optimizer steps as written down, against torch's own on the meta device."""

from __future__ import annotations

from typing import Any

import pytest

from preflight.memory.device.optimizers import UNKNOWN, as_released, known, step, unknown

torch = pytest.importorskip("torch")
SHAPES = [(64, 48), (48,), (128, 64), (64,), (16, 16)]


# NAdam divides by values that meta tensors do not have; its states and temporaries are Adam's in torch/optim/nadam.py.


def measured(make: Any, second_step: bool) -> tuple[int, int]:
    """(bytes kept, bytes at the step's peak beyond what is kept when it ends) of one `step()`."""
    from preflight.tracer.tape import Tape

    params = [torch.nn.Parameter(torch.zeros(*shape, device="meta")) for shape in SHAPES]
    optimizer = make(params)
    tape = Tape(bool_answer=True)
    for turn in range(2 if second_step else 1):
        for p in params:
            p.grad = torch.zeros_like(p)
            tape.known(p.data)
            tape.known(p.grad)
        tape.recording = turn == (1 if second_step else 0)
        with tape:
            optimizer.step()
        tape.recording = False
    live = peak = 0
    for value, _ in tape.events:
        # Step counters and bias corrections are scalars on the CPU or of a few bytes.
        size = value if value >= 0 else tape.events[-1 - value][0]
        if size > 16:
            live += size if value >= 0 else -size
            peak = max(peak, live)
    return live, peak - live


OPTIMIZERS = {
    "adamw": lambda p, **k: torch.optim.AdamW(p, **k),
    "adam": lambda p, **k: torch.optim.Adam(p, **k),
    "radam": lambda p, **k: torch.optim.RAdam(p, **k),
    "sgd": lambda p, **k: torch.optim.SGD(p, lr=0.1, **k),
    "sgd-momentum": lambda p, **k: torch.optim.SGD(p, lr=0.1, momentum=0.9, **k),
    "adagrad": lambda p, **k: torch.optim.Adagrad(p, **k),
    "rmsprop": lambda p, **k: torch.optim.RMSprop(p, **k),
    "rmsprop-momentum": lambda p, **k: torch.optim.RMSprop(p, momentum=0.9, **k),
    "rmsprop-centered": lambda p, **k: torch.optim.RMSprop(p, centered=True, **k),
    "adam-amsgrad": lambda p, **k: torch.optim.Adam(p, amsgrad=True, **k),
    "adamw-amsgrad": lambda p, **k: torch.optim.AdamW(p, amsgrad=True, **k),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("implementation", ["foreach", "for-loop"])
def test_states_and_temporaries(name: str, implementation: str) -> None:
    written = step(name, implementation, [(int(torch.Size(s).numel()), 4) for s in SHAPES])
    assert written is not None
    how = {"foreach": implementation == "foreach"}
    if name == "adagrad":  # its states are made with the optimizer, before the first step
        states = sum(written.states)
        assert states == 4 * sum(int(torch.Size(s).numel()) for s in SHAPES)
    else:
        states, _ = measured(lambda p: OPTIMIZERS[name](p, **how), False)
        assert sum(written.states) == states
    kept, temporary = measured(lambda p: OPTIMIZERS[name](p, **how), True)
    assert kept == 0, "the second step keeps nothing new"
    assert written.temporary == temporary


@pytest.mark.parametrize("name", ["adamw", "adam", "sgd-momentum"])
def test_fused_holds_nothing(name: str) -> None:
    written = step(name, "fused", [(1000, 4), (24, 4)])
    assert written is not None
    assert written.temporary == 0
    assert sum(written.states) == (2 if name != "sgd-momentum" else 1) * 4096


@pytest.mark.parametrize(
    ("name", "elements", "states"),
    [
        ("adamw-8bit", 4095, 8 * 4095),  # below min_8bit_size states stay fp32
        ("adamw-8bit", 2**20, 2 * 2**20 + 2 * 4 * 2**12),
        ("adamw-fp8", 2**20, 2 * 2**20 + 2 * 4 * 2**12),
    ],
)
def test_quantised_states(name: str, elements: int, states: int) -> None:
    written = step(name, "foreach", [(elements, 4)])
    assert written is not None
    assert sum(written.states) == states


def test_an_unknown_optimizer_is_unknown() -> None:
    assert step("mystery", "foreach", [(10, 4)]) is None


@pytest.mark.parametrize(("name", "states", "wave"), [("schedule-free-adamw", 2, 1), ("schedule-free-sgd", 1, 0)])
def test_schedule_free_keeps_a_second_point_instead_of_the_momentum(name: str, states: int, wave: int) -> None:
    found = step(name, "foreach", [(1000, 4), (10, 4)])
    assert found is not None
    assert sum(found.states) == 4 * 1010 * states
    assert found.temporary == 4 * 1010 * wave


def test_lomo_keeps_nothing_and_widens_one_parameter_at_a_time() -> None:
    found = step("lomo", "foreach", [(1000, 2), (10, 2)])
    assert found is not None
    assert found.states == ()
    assert found.temporary == 2 * 4 * 1000


@pytest.mark.integration
def test_prodigy_is_its_own() -> None:
    prodigy = pytest.importorskip("prodigyopt")
    written = step("prodigy", "foreach", [(int(torch.Size(s).numel()), 4) for s in SHAPES])
    assert written is not None
    kept, _ = measured(lambda p: prodigy.Prodigy(p), False)
    assert sum(written.states) == kept
    assert measured(lambda p: prodigy.Prodigy(p), True) == (0, written.temporary)


BNB = {
    "ademamix": ("AdEMAMix", {}), "ademamix-8bit": ("AdEMAMix8bit", {}), "lion-32bit": ("Lion", {"optim_bits": 32}),
    "lion-8bit": ("Lion8bit", {}), "rmsprop-32bit": ("RMSprop", {"optim_bits": 32}),
    "rmsprop-8bit": ("RMSprop8bit", {}), "adamw-32bit": ("AdamW", {"optim_bits": 32}), "adamw-8bit": ("AdamW8bit", {}),
}  # fmt: skip


@pytest.mark.integration
@pytest.mark.parametrize("name", BNB)
def test_states_are_bitsandbytes_own(name: str) -> None:
    optim = pytest.importorskip("bitsandbytes.optim")
    cls, options = BNB[name]
    params = [torch.nn.Parameter(torch.zeros(n, dtype=torch.bfloat16)) for n in (4000, 5000, 2**16)]
    optimizer = getattr(optim, cls)(params, lr=0.1, **options)
    optimizer.check_overrides()
    for index, one in enumerate(params):
        optimizer.init_state(optimizer.param_groups[0], one, 0, index)
    kept = sum(
        value.nbytes for state in optimizer.state.values() for key, value in state.items()
        if isinstance(value, torch.Tensor) and not key.startswith("qmap")
    )  # fmt: skip
    written = step(name, "foreach", [(p.numel(), 2) for p in params])
    assert written is not None
    assert sum(written.states) == kept


@pytest.mark.integration
def test_four_bits_are_torchaos_own() -> None:
    ao = pytest.importorskip("torchao.optim")
    sizes = (4000, 5000, 2**16)
    params = [torch.nn.Parameter(torch.zeros(n, dtype=torch.bfloat16)) for n in sizes]
    optimizer = ao.AdamW4bit(params)
    states = [optimizer._new_buffer(p, signed) for p in params for signed in (True, False)]
    kept = sum(one.codes.nbytes + one.scale.nbytes if hasattr(one, "codes") else one.nbytes for one in states)
    written = step("adamw-4bit", "foreach", [(n, 2) for n in sizes])
    assert written is not None
    assert sum(written.states) == kept


def test_scales_of_paged_moments_stay_on_the_gpu() -> None:
    """bitsandbytes, init_state: absmax1 and absmax2 are made on the parameter's device."""
    found = step("paged-adamw-8bit", "foreach", [(2**20, 2), (5000, 2)])
    assert found is not None
    small = 2 * 5000 + 2 * 4 * 20
    assert sum(found.states) == 2 * 4 * 2**12 + small
    whole = step("paged-adamw", "foreach", [(2**20, 2), (5000, 2)])
    assert whole is not None
    assert sum(whole.states) == 8 * 5000


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_has_no_law_says_why(name: str) -> None:
    assert step(name, "foreach", [(10, 4)]) is None
    assert UNKNOWN[name] in unknown(name)
    assert name not in known()


@pytest.mark.parametrize("name", known())
def test_every_name_that_is_known_has_a_step(name: str) -> None:
    for how in ("foreach", "fused", "for-loop"):
        assert step(name, how, [(2**20, 2), (64, 2)]) is not None


@pytest.mark.parametrize(("torch_release", "copies"), [((2, 1), 1), (None, 1), ((2, 0, 1), 2), ((1, 13), 0)])
def test_lists_of_parameters_by_release(torch_release: tuple[int, ...] | None, copies: int) -> None:
    found = step("adamw", as_released("foreach", torch_release), [(1000, 4), (500, 4)])
    assert found is not None
    if copies:
        assert found.temporary == copies * 1500 * 4
    else:  # one parameter after the other
        assert found == step("adamw", "for-loop", [(1000, 4), (500, 4)])
    assert as_released("fused", torch_release) == "fused"
