"""The second kind of engine process: onnxruntime-genai behind the same HTTP answers that llama.cpp's server gives.

`options` and `plan` belong to the agent; the other modules run in the child process alone (`../onnx_process.py`),
which loads nothing else of the agent. Only `model` imports the native runtime.
"""
