"""The engine's own process for ONNX packages: loads one, and serves until told to end.

Run by file name, with the same protocol as `process.py`: one JSON line in (`options`, `model`, `socket`, `secret`),
one JSON line out (`ready`, or `refused`); the end of standard input, or the parent's death, ends this process.
`model` is a folder with the checked configuration and links to the open, verified files.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

REFUSED_EXIT = 3
_PR_SET_PDEATHSIG = 1
_ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    """Serve until standard input ends."""
    _die_with_parent()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would hold prompts
    os.umask(0o077)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # native code prints to standard output too; that channel is for answers
    sys.path.insert(0, str(_ROOT))  # the code that this file belongs to, whatever else is installed
    order = json.loads(sys.stdin.buffer.readline())
    try:
        server = _loaded(order)
    except (RuntimeError, ValueError, ImportError, OSError) as error:
        sys.stderr.write(f"{error}\n")  # read by the parent for phrases that it knows, never passed on
        _say(answers, {"refused": type(error).__name__})
        os._exit(REFUSED_EXIT)
    asyncio.run(_serve(server, order["socket"], answers))
    os._exit(0)  # a step of the runtime may still run in its thread


def _loaded(order: dict[str, Any]) -> Any:
    from edge.runtime.onnx.model import Model  # noqa: PLC0415 - errors of the native library are answers
    from edge.runtime.onnx.server import Server  # noqa: PLC0415
    from edge.runtime.onnx.text import Vocabulary  # noqa: PLC0415

    folder = Path(order["model"])
    configuration = json.loads((folder / "genai_config.json").read_bytes())["model"]
    stated = configuration["eos_token_id"]
    end_tokens = stated if isinstance(stated, list) else [stated]
    return Server(
        Model(folder),
        Vocabulary((folder / "tokenizer.json").read_text(encoding="utf-8"), end_tokens=end_tokens),
        end_tokens=frozenset(end_tokens),
        options=order["options"],
        secret=order["secret"],
    )


async def _serve(server: Any, socket: str, answers: Any) -> None:
    from aiohttp import web  # noqa: PLC0415 - with the other imports of this process

    # Whoever leaves is noticed at once, and what was computed for them stops.
    runner = web.AppRunner(server.application(), handler_cancellation=True, access_log=None, handle_signals=False)
    await runner.setup()
    await web.UnixSite(runner, socket).start()
    _say(answers, {"ready": True})
    await asyncio.to_thread(sys.stdin.buffer.read)


def _die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies: also while native code holds the interpreter."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _say(stream: Any, message: dict[str, Any]) -> None:
    stream.write(json.dumps(message) + "\n")
    stream.flush()


if __name__ == "__main__":
    main()
