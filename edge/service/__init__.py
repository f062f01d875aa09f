"""L6: the agent's service: OpenAI API over the engine, admission, heat, heartbeat."""
