"""Memory: what a Job needs on the device (`device`) and on the node (`host`)."""
