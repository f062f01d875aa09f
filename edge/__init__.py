"""The edge agent: a device that serves a quantised model, one folder a layer (L1 packages to L6 service)."""
