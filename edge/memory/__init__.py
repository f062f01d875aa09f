"""L5: how much memory a model needs, as pure arithmetic over its geometry."""
