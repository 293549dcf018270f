"""The life of a dry run inside the user's interpreter: install, say so, run the program, report."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import importlib.util
import os
import runpy
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing import util
from typing import Any

from . import endings, places, safety, settings
from .patches import wrap

torch: Any = None

_LIBRARIES = ("torch", "transformers", "peft", "trl", "accelerate", "lightning", "pytorch_lightning", "timm",
              "diffusers")  # fmt: skip
"""Libraries whose versions decide what a step allocates."""


class DryRun:
    """One run: its settings, its tape, and the one report at its end."""

    def __init__(self, path: str) -> None:
        self.settings = settings.read(path)
        self.channel = settings.Channel(self.settings.channel)
        self.tape: Any = None
        self.loops: Any = None
        self.device: Any = None
        self.guard: Any = None
        self.guesses: Any = None
        self.learnt: Any = None
        self.handled: Exception | None = None
        """The last error that the program printed or logged with its lines."""
        self._exit = os._exit

    def refuse(self, reason: str) -> None:
        """This program cannot be run dry: the report is the reason alone."""
        self.channel.end(end="refused", reason=reason)
        self._exit(1)

    def finish(self, reason: str) -> None:
        """The end of the dry run, wherever the program is: nothing of it can catch this."""
        self.report("finished", reason)
        self._leave(0)

    def report(self, end: str, reason: str = "", place: str = "") -> None:
        """The tape, and how the program ended."""
        if self.tape is None or not self.channel.owned:
            return
        self.tape.recording = False
        loops = self.loops
        sizes_made_up = self.guesses.said()
        self.channel.end(
            end=end,
            reason=reason[:500],
            place=place,
            steps=list(loops.steps.values()),
            backwards=loops.stepped_at,
            trained=loops.trained,
            validated=loops.validated,
            saved=loops.saved,
            facts={**loops.facts, "data_made_up": self.tape.data_made_up, "sizes_made_up": sizes_made_up},
            learnt=self.learnt,
            convolutions=self.device.convolutions,
            refused=self.guard.refused,
            allocator=os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""),
            benchmark=bool(torch.backends.cudnn.benchmark),
            sources={**self.guard.configurations, **_own_modules()},
            versions=_versions(),
            seconds=time.process_time(),
            **self.tape.report(),
        )

    def _leave(self, status: int) -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        self._exit(status)

    # --------------------------------------------------------------------------------------------------------- ends

    def failed(self, kind: Any, error: Any, trace: Any) -> None:
        """An error that the program did not catch."""
        words = endings.words(error, trace, self.guard.wanted)
        self.learnt = self.guesses.learnt(error, trace)
        self.report("failed", words, places.of_error(trace))
        sys.__excepthook__(kind, error, trace)
        self._leave(1)

    def exited(self, status: Any) -> None:
        """os._exit, which skips everything else."""
        self.report("exited", f"the program called os._exit({status})", places.here(2)[1])
        self._exit(status if isinstance(status, int) else 1)

    def stopped(self, *_: Any) -> None:
        self.report("stopped", "the time limit was reached", places.here(2)[1])
        self._leave(1)

    def ended(self) -> None:
        if not self.channel.owned:
            return
        error = self.handled if self.loops is not None and not self.loops.trained else None
        if error is None:
            self.report("ended", "the program ended")
            return
        words = endings.words(error, error.__traceback__, self.guard.wanted)
        self.learnt = self.guesses.learnt(error, error.__traceback__)
        self.report(
            "failed", f"{words} (the program went on after this error, and ended)", places.of_error(error.__traceback__)
        )

    def shown(self, real: Any, one: Any, kind: Any, error: Any, trace: Any, **kwargs: Any) -> None:
        """An error is printed or logged: the program has handled it."""
        if kwargs.get("_seen") is None and isinstance(error, Exception) and trace is not None:
            self.handled = error
        real(one, kind, error, trace, **kwargs)

    def in_thread(self, real: Any, arguments: Any) -> None:
        """An error that ended a thread of the program."""
        self.handled = arguments.exc_value if isinstance(arguments.exc_value, Exception) else None
        real(arguments)


def _own_modules() -> dict[str, str]:
    """Files of the program's own modules that were imported, with a hash of each."""
    found: dict[str, str] = {}
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and places.is_users(path) and len(found) < 500:
            try:
                with open(path, "rb") as file:
                    found[os.path.abspath(path)] = hashlib.sha256(file.read()).hexdigest()
            except OSError:
                continue
    return found


def _versions() -> dict[str, str]:
    """Versions of these libraries, as far as they were imported."""
    found = {name: getattr(sys.modules.get(name), "__version__", None) for name in _LIBRARIES}
    return {name: str(version) for name, version in found.items() if version is not None}


def _import_torch(run: DryRun) -> None:
    global torch
    if "torch" in sys.modules:
        run.refuse("torch was imported before the program began (by a .pth file or sitecustomize)")
    if importlib.util.find_spec("torch") is None:
        run.refuse(f"{sys.executable} has no torch")
    try:
        import torch as imported
    except Exception as error:
        run.refuse(f"torch cannot be imported: {type(error).__name__}: {error}")
    else:
        torch = imported


def _install(run: DryRun) -> None:
    """The faked device and all hooks. A torch that cannot be faked is refused."""
    from . import cuda, device, distributed, guard, imports, kernels, loops, saving
    from .stand_ins import hooks
    from .stand_ins.arrays import Arrays
    from .stand_ins.compiled import FlashAttention
    from .stand_ins.guesses import Guesses
    from .tape import Tape

    run.tape = Tape()
    try:
        run.device = device.install(run.tape, run.settings.tracer)
        cuda.install(run.settings, run.tape)
        kernels.packed_sequences()
        guard.self_test(run.tape)
    except Exception as error:
        run.refuse(f"torch {torch.__version__} cannot pretend to have a GPU: {error}")
    run.loops = loops.Loops(run.settings, run.tape, run.finish)
    loops.install(run.loops, run.device)
    run.guesses = Guesses(run.settings.tried, run.tape)
    stated = Arrays(run.settings.arrays, run.tape, run.guesses)
    saving.install(run.tape, run.device, run.loops, stated)
    distributed.install(run.settings, run.tape)
    stand_ins = hooks.of(run.settings, run.tape, run.loops, run.refuse, stated)
    imports.install(stand_ins, run.tape, run.settings.searched, FlashAttention(run.tape).modules())


def _secure(run: DryRun) -> None:
    asked = run.settings
    tempfile.tempdir = os.path.join(asked.scratch, "tmp")
    run.guard = safety.Guard(asked.scratch, asked.isolated, asked.programs)
    if not asked.isolated:
        from . import overlay

        overlay.install(asked.scratch)
    safety.install(run.guard)
    _no_spawned_python(run)


def _no_spawned_python(run: DryRun) -> None:
    """multiprocessing starts interpreters past the audit hook."""

    def refused(*_: Any, **__: Any) -> int:
        run.tape.assume("the program starts interpreters with multiprocessing, which were not started")
        raise PermissionError(13, "a dry run does not allow this: starting another interpreter")

    util.spawnv_passfds = refused


def _start(asked: Any) -> Callable[[], Any]:
    """The function that runs the program as its interpreter would."""
    sys.argv = [asked.target, *asked.arguments]
    if asked.module:
        sys.path.insert(0, os.getcwd())
        return lambda: runpy.run_module(asked.target, run_name="__main__", alter_sys=True)
    path = os.path.abspath(asked.target)
    sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
    return lambda: runpy.run_path(path, run_name="__main__")


def main(path: str) -> None:
    """The whole run. Ends the process."""
    run = DryRun(path)
    sys.dont_write_bytecode = True
    _import_torch(run)
    _install(run)
    _secure(run)
    begin = _start(run.settings)
    sys.excepthook = run.failed
    wrap(traceback.TracebackException, "__init__", run.shown)
    wrap(threading, "excepthook", run.in_thread)
    os._exit = run.exited  # type: ignore[assignment]
    signal.signal(signal.SIGTERM, run.stopped)
    atexit.register(run.ended)
    run.channel.send("ready", torch=str(torch.__version__), python=sys.version.split()[0])
    try:
        begin()
    except SystemExit as end:
        if end.code not in (None, 0):
            words = f"the program ended with {end.code!r}"
            run.report("failed" if not run.loops.trained else "ended", words, places.of_error(end.__traceback__))
    except KeyboardInterrupt:
        run.report("stopped", "interrupted")
    except BaseException as error:  # whatever excepthook the program has set
        run.failed(type(error), error, error.__traceback__)
    _wait_for_threads()
    run.ended()
    run._leave(0)


def _wait_for_threads() -> None:
    """As the interpreter does at its end."""
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join(60)
