"""Runs of MLflow and W&B that begin within a trial: they are ended where the guard ends the trial.

Those that were active before are the program's own, and stay. Neither library is imported, and what goes wrong with
one of them is a line: the study goes on.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

MOST = 16
"""Nested runs of MLflow that are ended."""
PARENT = "mlflow.parentRunId"
OF_GUARD = "of_preflight_guard"
"""The attribute of an exception with which the guard prunes a trial by its need."""

_under_way: set[Services] = set()
_lock = threading.Lock()


class Services:
    """The runs that were active when a trial began. MLflow has them for each thread. W&B has one for the process, and
    of trials that run at once nobody knows which began it: then it stays."""

    def __init__(self) -> None:
        active = _active()
        self._mlflow = active.info.run_id if active is not None else None
        self._wandb = _wandb_run()
        self._alone = True

    def __enter__(self) -> Services:
        with _lock:
            _under_way.add(self)
            for one in _under_way if len(_under_way) > 1 else ():
                one._alone = False
        return self

    def __exit__(self, *_: object) -> None:
        with _lock:
            _under_way.discard(self)

    def end(self, why: str) -> None:
        """Ends what began since, as failed. `why`: MLflow's tag `preflight.WHY`."""
        try:
            for _ in range(MOST):
                if not self._end_of_mlflow(why):
                    break
        except Exception as error:  # a server that does not answer, most often
            _tell("MLflow", error)
        run = _wandb_run()
        if run is None or run is self._wandb or not self._alone:
            return
        try:
            run.finish(exit_code=1)
        except Exception as error:
            _tell("W&B", error)

    def end_if_pruned(self, error: BaseException) -> None:
        """The same after a trial that the guard pruned by its need; what the program prunes, it ends itself."""
        if getattr(error, OF_GUARD, False):
            self.end("pruned")

    def _end_of_mlflow(self, why: str) -> bool:
        """Ends the innermost run, if it began since."""
        library: Any = sys.modules.get("mlflow")
        active = _active()
        if active is None or active.info.run_id == self._mlflow:
            return False
        if self._mlflow is not None and PARENT not in active.data.tags:  # the program ended the one that was active
            return False
        try:
            library.set_tag(f"preflight.{why}", "true")
        finally:
            library.end_run("FAILED")
        return True


def _active() -> Any:
    active_run = getattr(sys.modules.get("mlflow"), "active_run", None)
    try:
        return active_run() if active_run is not None else None
    except Exception:  # a library that is being imported, or of another version
        return None


def _wandb_run() -> Any:
    return getattr(sys.modules.get("wandb"), "run", None)


def _tell(library: str, error: Exception) -> None:
    text = (str(error).splitlines() or [""])[0][:200]
    sys.stderr.write(f"preflight guard: a run of {library} cannot be ended: {type(error).__name__}: {text}\n")
