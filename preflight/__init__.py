"""Static pre-flight checker for machine-learning jobs."""

__version__ = "0.1.0"

REPOSITORY = "https://github.com/OWNER/preflight"
"""The project's address. Its owner replaces OWNER here, and in README.md, docs/, mkdocs.yml and pyproject.toml,
which a test compares. Every other address is made of this one."""

RULE_PAGES = f"{REPOSITORY}/blob/main/docs/rules"
"""The address of the pages of preflight's own rules."""
