"""The tracer: training steps on PyTorch's meta device, written down as tapes of births and deaths of storages.

Stand-alone: it imports torch (and transformers, peft, timm, torchvision where a model needs them) and nothing of
preflight, so that any interpreter with torch can run it. One request comes in on standard input as JSON and one reply
goes out on standard output (`preflight.tracer.main`). Nothing is downloaded and no tensor memory is allocated.
"""

TRACER_VERSION = "4"
