"""The engine, from files to findings: targets, settings, suppressions, the baseline."""
