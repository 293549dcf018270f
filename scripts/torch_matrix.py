"""Dry runs on other releases of torch: `python scripts/torch_matrix.py [RELEASE ...] [--keep FOLDER]`. By hand alone.

A release gets an environment of its own. A program with autocast, attention, dropout, AdamW and a sharded model is run
dry in it: the self-test of torch's private interface, and what each case allocates beside the installed release.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from preflight.dryrun.answer import dry_run
from preflight.vocabulary.errors import PreflightError

RELEASES = ("2.10.*", "2.12.*", "")
"""The oldest with the function that a dry run needs, one between, and the newest."""
PROGRAM = """\
import torch
from torch import nn
layer = nn.TransformerEncoderLayer(256, 8, batch_first=True).cuda().train()
optimizer = torch.optim.AdamW(layer.parameters())
for _ in range(2):
    with torch.autocast("cuda", torch.bfloat16):
        loss = layer(torch.zeros(8, 128, 256, device="cuda")).float().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    del loss
"""


def environment(release: str, folder: Path) -> str:
    """The interpreter of a new environment with this release of torch. Raises CalledProcessError."""
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    wanted = f"torch=={release}" if release else "torch"
    subprocess.run([python, "-m", "pip", "install", "--quiet", wanted, "numpy"], check=True)
    return python


def outcome(python: str, program: Path) -> str:
    """One line: the version, the steps and the bytes; or why there is no answer."""
    try:
        found = dry_run([python, str(program)], None, None)
    except PreflightError as error:
        return str(error)
    device = found.found.estimates.device
    requested = f"{device.requested.expected:,} bytes requested" if device is not None else "no figure"
    return f"torch {found.report.versions.get('torch', '?')}: steps {list(found.report.steps)}, {requested}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("releases", nargs="*", default=RELEASES)
    parser.add_argument("--keep", type=Path, help="folder for the environments")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as spare:
        home = asked.keep or Path(spare)
        program = Path(spare) / "program.py"
        program.write_text(PROGRAM, encoding="utf-8")
        print(f"installed: {outcome(sys.executable, program)}", flush=True)
        for release in asked.releases:
            try:
                python = environment(release, home / f"torch-{release.strip('.*') or 'newest'}")
            except (subprocess.CalledProcessError, OSError) as error:
                print(f"{release or 'newest'}: not installed ({os.path.basename(str(error))})", flush=True)
                continue
            print(f"{release or 'newest'}: {outcome(python, program)}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
