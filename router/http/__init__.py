"""The router's HTTP side: the OpenAI surface, fleet reports, explanations, probes and metrics."""
