"""An allocator's history reduced to what was alive at its peak, by size and place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_INSIDE = ("/torch/", "torch\\", "<frozen", "/gpu/step.py", "/gpu/measure.py")
"""Files whose frames say nothing about the model."""
MOST_GROUPS = 4000
"""Groups that a record keeps, the largest; the bytes of the others are summed up."""


def peak_blocks(snapshot: Mapping[str, Any], device: int = 0) -> dict[str, Any]:
    """{"bytes": requested at the peak, "label": what ran, "blocks": [[size, count, label, place], ...], "rest": bytes}.

    `snapshot`: torch.cuda.memory._snapshot(), recorded since before the first allocation. Sizes are requested ones.
    """
    traces = snapshot.get("device_traces") or []
    events = traces[device] if device < len(traces) else []
    at, most = _peak(events)
    live: dict[int, Mapping[str, Any]] = {}
    for event in events[: at + 1]:
        if event["action"] == "alloc":
            live[event["addr"]] = event
        elif event["action"] == "free_requested":
            live.pop(event["addr"], None)
    groups: dict[tuple[int, str, str], int] = {}
    for event in live.values():
        key = (int(event["size"]), str(event.get("user_metadata") or ""), place(event.get("frames") or ()))
        groups[key] = groups.get(key, 0) + 1
    ordered = sorted(groups.items(), key=lambda item: (-item[0][0] * item[1], item[0]))
    kept, rest = ordered[:MOST_GROUPS], ordered[MOST_GROUPS:]
    return {
        "bytes": most,
        "label": str(events[at].get("user_metadata") or "") if events else "",
        "blocks": [[size, count, label, where] for (size, label, where), count in kept],
        "rest": sum(size * count for (size, _, _), count in rest),
    }


def _peak(events: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """(index of the event that made the peak, bytes). A block counts as free from the moment the program frees it."""
    sizes: dict[int, int] = {}
    live = most = at = 0
    for index, event in enumerate(events):
        if event["action"] == "alloc":
            sizes[event["addr"]] = int(event["size"])
            live += int(event["size"])
            if live > most:
                most, at = live, index
        elif event["action"] == "free_requested":
            live -= sizes.pop(event["addr"], 0)
    return at, most


def place(frames: Sequence[Mapping[str, Any]]) -> str:
    """The innermost frame of the model's own code: "modeling_gpt2.py:310 forward"; "" where there is none."""
    for frame in frames:
        name = str(frame.get("filename", ""))
        if name and not any(part in name.replace("\\", "/") for part in _INSIDE):
            return f"{name.replace(chr(92), '/').rpartition('/')[2]}:{frame.get('line', 0)} {frame.get('name', '')}"
    return ""
