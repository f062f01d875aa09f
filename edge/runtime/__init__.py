"""L2: the engine as a supervised child process, its static plan and its life."""
