from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from preflight.api import Case, DeviceEstimate, Example, Finding, Rule, Severity, device_of, several
from preflight_rules.shared import remedies
from preflight_rules.shared.gpu import gpu_finding, is_doubted
from preflight_rules.shared.programs import DELETES, FRAGMENTED, KEEPS, LOOP


class GpuMemoryTight(Rule):
    """The job probably fits, but the high end of the estimate is above the memory of the GPU.

    The interval is made so that nine of ten measured runs are inside. This run may stop with `CUDA out of memory`,
    usually late and because the memory of the caching allocator is fragmented.

    It is a warning if the middle between the expected need and the high end is above the GPU too, else a remark. The
    high end of a sharded job is far away, since few were measured, and most of those fit.

    The fixes are those of `gpu-memory-exceeded`. `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` is often enough.
    """

    name = "gpu-memory-tight"
    summary = "The job may not fit its GPU"
    tags = ("gpu-memory",)
    examples = (
        Example(
            "Only the high end of the estimate is above the GPU",
            {"train.py": LOOP.replace("default=64", "default=42")},
            says=("needs",),
            options={"gpu": "T4"},
        ),
        Example(
            "The model's outputs are kept through the backward pass",
            {"train.py": KEEPS},
            fixed={"train.py": DELETES},
            says=("needs",),
            options={"gpu": "T4"},
        ),
        Example(
            "A cache that is emptied makes room",
            {"train.py": FRAGMENTED},
            fixed={"train.py": FRAGMENTED + "    torch.cuda.empty_cache()\n"},
            says=("needs",),
            options={"gpu": "T4"},
        ),
        Example("A batch with room to spare", {"train.py": LOOP.replace("64", "8")}, finds=0, options={"gpu": "T4"}),
    )

    def check(self, case: Case) -> Iterator[Finding]:
        device = device_of(case)
        if device is None or device.verdict != "at-risk" or is_doubted(device) or several(case):
            return
        found = gpu_finding(self, case, device, remedies.device_proposals(case), "may not fit")
        yield found if _is_likely(device) else replace(found, severity=Severity.info)


def _is_likely(device: DeviceEstimate) -> bool:
    """Whether the middle between the expected need and the high end is above the GPU."""
    need = device.process
    return device.capacity is not None and (need.expected + need.high) // 2 > device.capacity
