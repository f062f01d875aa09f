"""Ollama's API over the same engine, admission and checks as OpenAI's, for the front ends that speak it."""
