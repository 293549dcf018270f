"""Schemas of Hydra's plugins: submitit's launchers (1.2.0), joblib's launcher, Optuna's sweeper (1.3.0)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Anything = Any  # handed on to sbatch, joblib or Optuna without a check
Positive = Annotated[int, Field(gt=0)]


class Plugin(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True, defer_build=True)
    target: str | None = Field(None, alias="_target_")


class Submitit(Plugin):
    """hydra_plugins.hydra_submitit_launcher.config.BaseQueueConf and SlurmQueueConf."""

    submitit_folder: str | None = None
    timeout_min: Positive | None = 60
    cpus_per_task: Positive | None = None
    gpus_per_node: int | str | None = None
    tasks_per_node: Positive | None = 1
    mem_gb: Annotated[float, Field(gt=0)] | None = None
    nodes: Positive | None = 1
    name: str | None = None
    stderr_to_stdout: bool = False
    partition: str | None = None
    qos: str | None = None
    comment: str | None = None
    constraint: str | None = None
    exclude: str | None = None
    gres: str | None = None
    cpus_per_gpu: Positive | None = None
    gpus_per_task: Positive | None = None
    mem_per_gpu: str | None = None
    mem_per_cpu: str | None = None
    account: str | None = None
    signal_delay_s: int = 120
    max_num_timeout: int = 0
    additional_parameters: dict[str, Anything] = {}
    array_parallelism: Positive | None = 256
    setup: list[str] | None = None
    srun_args: list[str] | None = None
    use_srun: bool = True
    python: str | None = None


class Joblib(Plugin):
    """hydra_plugins.hydra_joblib_launcher.config.JobLibLauncherConf; n_jobs -1 is one per CPU."""

    model_config = ConfigDict(extra="allow")
    n_jobs: int = -1


class Optuna(Plugin):
    """hydra_plugins.hydra_optuna_sweeper.config.OptunaSweeperConf."""

    sampler: Anything = None
    direction: Anything = "minimize"
    storage: str | None = None
    study_name: str | None = None
    n_trials: Positive = 20
    n_jobs: Positive = 2
    max_failure_rate: float = 0.0
    search_space: dict[str, Anything] | None = None
    params: dict[str, Anything] | None = None
    custom_search_space: str | None = None


class Basic(Plugin):
    """hydra._internal.core_plugins.basic_sweeper.BasicSweeperConf."""

    max_batch_size: Positive | None = None
    params: dict[str, Anything] | None = None


REQUEST_FIELDS = {
    "mem_gb": "memory", "mem": "memory", "mem_per_cpu": "memory_per_cpu", "mem_per_gpu": "memory_per_gpu",
    "timeout_min": "time_minutes", "gres": "gpus_per_node",
}  # fmt: skip
"""Settings of the SLURM launcher -> the field of Request, where it has another name."""

LAUNCHERS: dict[str, type[Plugin]] = {"submitit_slurm": Submitit, "submitit_local": Submitit, "joblib": Joblib}
SWEEPERS: dict[str, type[Plugin]] = {"basic": Basic, "optuna": Optuna}


def defaults(model: type[Plugin]) -> dict[str, Any]:
    """The plugin's default for a missing setting."""
    return {name: info.default for name, info in model.model_fields.items()}
