"""Memory estimates of a Job: on the GPU (`device`) and on the node (`host`)."""
