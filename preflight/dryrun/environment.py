"""The environment variables of a dry run: the user's own without secrets, and those that keep libraries offline."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

_SECRET = re.compile(
    r"TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE|COOKIE|_AUTH|AUTH_|(^|_)(KEY|DSN|PAT)$|_PROXY$"
    r"|^(AWS|AZURE|GOOGLE|GCP|GCLOUD|GITHUB|GITLAB|DBUS|KRB5|GPG|VAULT|DOCKER|KUBE)|^SSH_|^XAUTHORITY$|DATABASE_URL",
    re.IGNORECASE,
)
"""Names of variables that hold secrets or lead to services. A variable too many is no loss: nothing is reached."""
_KEPT = re.compile(r"^(TOKENIZERS_PARALLELISM|PYTHON\w*)$")

OFFLINE = {
    "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "WANDB_MODE": "disabled",
    "COMET_MODE": "DISABLED", "CLEARML_OFFLINE_MODE": "1", "CUDA_VISIBLE_DEVICES": "",
    "TOKENIZERS_PARALLELISM": "false", "MPLBACKEND": "agg", "PYTHONDONTWRITEBYTECODE": "1", "HYDRA_FULL_ERROR": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1", "NO_ALBUMENTATIONS_UPDATE": "1",
    "PYTHONUNBUFFERED": "1", "DS_ACCELERATOR": "cuda",
}  # fmt: skip
"""Libraries do not look for what they cannot reach, and record to no service. DeepSpeed does not look for a driver."""
_CACHES = {"TRITON_CACHE_DIR": "triton", "MLFLOW_TRACKING_URI": "mlflow", "XDG_CACHE_HOME": "cache"}
_HOMES = {"HF_HOME": ".cache/huggingface", "TORCH_HOME": ".cache/torch"}
"""Caches that may hold configurations, tokenizers and data sets: they are found where they are, and read alone."""


def for_program(more: Mapping[str, str], scratch: str, stated: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables of the program. `more`: those of its launcher."""
    own = dict(os.environ if stated is None else stated)
    kept = {name: value for name, value in own.items() if not _SECRET.search(name) or _KEPT.match(name)}
    home = own.get("HOME", "")
    cache = own.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    homes = {name: own.get(name) or os.path.join(cache, path.partition("/")[2]) for name, path in _HOMES.items()}
    caches = {name: os.path.join(scratch, "tmp", folder) for name, folder in _CACHES.items()}
    temporary = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), os.path.join(scratch, "tmp"))
    return {**kept, **more, **homes, **caches, **temporary, **OFFLINE}
