"""Tool calls: how tools come before the model, what its answer may be, and how calls are read out of it."""
