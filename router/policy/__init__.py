"""Pure decisions over frozen values: which backends may, can and should serve a request."""
