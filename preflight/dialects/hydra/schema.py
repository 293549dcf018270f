"""Shapes of what Hydra's plugins read: the submitit launchers (1.2.0), joblib's launcher, Optuna's sweeper (1.3.0)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Anything = Any  # keys that go to sbatch, joblib or Optuna unread
Positive = Annotated[int, Field(gt=0)]


class Plugin(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)
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

    model_config = ConfigDict(extra="allow", populate_by_name=True)
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


class OptunaAxis(BaseModel):
    """One entry of Optuna's deprecated `search_space`."""

    model_config = ConfigDict(extra="forbid")
    type: Literal["categorical", "int", "float"]
    choices: list[Anything] | None = None
    low: float | None = None
    high: float | None = None
    step: float | None = None
    log: bool = False


LAUNCHERS: dict[str, type[Plugin]] = {"submitit_slurm": Submitit, "submitit_local": Submitit, "joblib": Joblib}
SWEEPERS: dict[str, type[Plugin]] = {"basic": Basic, "optuna": Optuna}
