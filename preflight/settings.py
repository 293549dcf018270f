"""Settings: `[tool.preflight]` of the closest pyproject.toml, or preflight.toml."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class RuleSettings(BaseModel):
    """`[tool.preflight.rules.NAME]`: a rule's own options stand beside these and are checked by the rule."""

    model_config = ConfigDict(extra="allow")
    severity: Literal["error", "warning", "info"] | None = None
    fix: Literal["safe", "unsafe", "never"] | None = None


class Settings(BaseModel):
    """What a project tells preflight about itself."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    gpu: str | None = Field(None, description="The GPU that jobs run on when the files do not say.")
    machine: str | None = Field(None, description="A machine by name, or the path of a cluster file.")
    roots: list[str] = Field([], description="Files that start jobs (globs): a file given alone finds its study here.")
    exclude: list[str] = Field([], description="Globs that are never checked.")
    select: list[str] = Field([], description="Only these rules.")
    ignore: list[str] = Field([], description="Not these rules.")
    per_file_ignores: dict[str, list[str]] = Field({}, alias="per-file-ignores", description="Glob -> rules.")
    map: dict[str, str] = Field({}, description="A project's own spelling -> Job field.")
    set: dict[str, Any] = Field({}, description="Job field -> value, where the files cannot say it.")
    constraints: dict[str, str] = Field({}, description="Name -> an inequality over the project's own settings.")
    rules: dict[str, RuleSettings] = Field({}, description="Per rule: severity, fix, and the rule's own options.")
    interpreter: str | None = Field(None, description="A Python with torch, to trace models that no shipped law knows.")
    trace: bool = Field(True, description="Trace unknown models when torch is there.")
