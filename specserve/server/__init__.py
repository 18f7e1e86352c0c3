"""HTTP: OpenAI's API in front of the engine's thread. The only package that knows HTTP."""
