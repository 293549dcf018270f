"""Files of recipes: Makefiles, justfiles and DVC pipelines, whose lines are shell commands."""
