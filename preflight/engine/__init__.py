"""The arrows in their order, from files to findings: targets, settings, suppressions, the baseline."""
