"""The part of a dry run that is inside the user's interpreter: CUDA faked, and a tape of what the program allocates.

It needs the standard library and torch alone, runs on Python 3.9 and later, and imports nothing of preflight, whose
dependencies may clash with the program's. preflight starts `main.py` by its path in the interpreter of the command.
The package is loaded under a name of its own (`preflight_dry_run`), so that no module of it hides one of the user's.

Tensors on `cuda` are FakeTensors: they have the true device type and no memory. Tensors on the CPU stay real, so the
program's own data and arithmetic decide what it does. Values of small tensors are computed beside the fakes.
"""
