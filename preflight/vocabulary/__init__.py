"""The words that all rooms share: values with origins, readings, Job, study, verdicts, findings."""
