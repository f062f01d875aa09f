"""One engine process as its parent holds it: spawned, proven by one real token, watched, ended."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import secrets
import shutil
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import aiohttp

from edge.packages.formats.files import Files
from edge.runtime.crash import reason_of_exit
from edge.runtime.launch import Launch
from edge.runtime.options import ProcessOptions
from edge.runtime.port import AppliedAdapter, EngineConnection
from edge.runtime.session import engine_session
from shared.errors import SettingsError
from shared.settings import environment

_STDERR_TAIL_BYTES = 16 << 10
_BASE_URL = "http://engine"
_FILES_SUFFIX = ".files"
_EXIT_GRACE_S = 2.0
_SOCKET_NAME_SAMPLE = "01234567.sock"
_SOCKET_PATH_LIMIT_BYTES = 103  # sun_path of the smallest platform, with its end mark

# The engine needs its libraries and its thread settings; keys and tokens of the agent are none of its business.
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV")
_PASSED_ON_PREFIXES = ("OMP_", "GOMP_", "GGML_", "LLAMA_")


class StartFailed(Exception):
    """The process ended or stayed silent before it served a token. `refused`: it will do so again."""

    def __init__(self, reason: str, *, refused: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.refused = refused


class EngineChild:
    """A running engine process. Built by `spawn`; `prove` must succeed before it may serve."""

    def __init__(
        self, process: asyncio.subprocess.Process, path: Path, secret: str, adapters: tuple[str, ...] = ()
    ) -> None:
        self._process = process
        self._path = path
        self._adapters = adapters
        self._headers = {"Authorization": f"Bearer {secret}"}
        self._tail = bytearray()
        self._users = 0
        self.heard = 0
        self._unused = asyncio.Event()
        self._unused.set()
        self._stderr = asyncio.create_task(self._keep_stderr_tail())

    @classmethod
    async def spawn(
        cls,
        launch: Launch,
        options: ProcessOptions,
        files: Files,
        folder: Path,
        adapters: Sequence[tuple[str, int]] = (),
        draft: int | None = None,
    ) -> EngineChild:
        """Start a process that loads the open `files`, `adapters` (digest, open file) and draft model (open file), and
        listens in the private `folder`.

        The message on standard input carries the secret: command lines and environments can be read by other
        processes.

        Raises:
            OSError: there is no room for a process or for its files.
        """
        secret = secrets.token_urlsafe(32)
        path = folder / f"{secrets.token_hex(4)}.sock"
        own_files = path.with_suffix(_FILES_SUFFIX)
        own_files.mkdir(mode=0o700)
        try:
            wire = options.wire()
            handed = launch.hand_over(files, wire, own_files)
            more = (*(fd for _, fd in adapters), *(() if draft is None else (draft,)))
            process = await cls._started(launch, options, (*handed.descriptors, *more))
        except BaseException:
            shutil.rmtree(own_files, ignore_errors=True)
            raise
        child = cls(process, path, secret, tuple(digest for digest, _ in adapters))
        order = {
            "options": wire,
            "model": handed.model,
            "draft": "" if draft is None else f"/dev/fd/{draft}",
            "adapters": [f"/dev/fd/{fd}" for _, fd in adapters],
            "socket": str(path),
            "secret": secret,
        }
        assert process.stdin is not None  # noqa: S101 - it was asked for above
        # Not drained: it fits the pipe, and an await here could be cancelled with nobody holding the process.
        process.stdin.write(json.dumps(order).encode() + b"\n")
        return child

    @staticmethod
    async def _started(
        launch: Launch, options: ProcessOptions, descriptors: tuple[int, ...]
    ) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            str(launch.program),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**_environment(), **launch.environment, **options.environment},
            pass_fds=descriptors,
            start_new_session=True,  # Ctrl-C at a terminal reaches the agent alone, which drains first
        )

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def connection(self) -> EngineConnection:
        """Where it listens."""
        return EngineConnection(
            base_url=_BASE_URL, socket_path=self._path, headers=self._headers, adapters=self._adapters
        )

    @contextlib.contextmanager
    def using(self) -> Iterator[EngineConnection]:
        """Where it listens, for a request that `unused` waits for."""
        self._users += 1
        self._unused.clear()
        try:
            yield self.connection
        finally:
            self._users -= 1
            if self._users == 0:
                self._unused.set()

    async def unused(self, limit_s: float) -> None:
        """Wait until no request is under way, or the process has ended; at most `limit_s`."""
        waits = [asyncio.ensure_future(self._unused.wait()), asyncio.ensure_future(self.ended())]
        try:
            await asyncio.wait(waits, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def prove(self, limit_s: float) -> None:
        """Wait until the process has loaded its model and has generated one token, and one with each adapter.

        Raises:
            StartFailed: it ended, refused the model, or did neither within `limit_s`.
        """
        try:
            async with asyncio.timeout(limit_s):
                await self._loaded()
                for applied in ((), *((AppliedAdapter(digest, 1.0),) for digest in self._adapters)):
                    await self._one_token(applied)
        except TimeoutError:
            raise StartFailed(f"The engine did not become ready within {limit_s:g} s.") from None

    async def answers(self, limit_s: float) -> bool:
        """Whether the health route answers within `limit_s`."""
        try:
            async with (
                asyncio.timeout(limit_s),
                engine_session(self.connection) as session,
                session.get("/health") as answer,
            ):
                return answer.status == 200
        except (TimeoutError, aiohttp.ClientError, OSError):
            return False

    async def computes(self, limit_s: float) -> bool:
        """Whether the process generates one token within `limit_s`."""
        try:
            async with asyncio.timeout(limit_s):
                await self._one_token()
        except (TimeoutError, StartFailed):
            return False
        return True

    @property
    def running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.returncode is None

    async def ended(self) -> None:
        """Wait for the end of the process."""
        await self._process.wait()

    def kill(self) -> None:
        """SIGKILL, also to a process that is stopped."""
        self._signal(signal.SIGKILL)

    async def exited(self) -> str:
        """Wait for the end of the process; the reason in words without content."""
        status = await self._process.wait()
        with contextlib.suppress(TimeoutError):  # a grandchild may hold the pipe open
            await asyncio.wait_for(asyncio.shield(self._stderr), _EXIT_GRACE_S)
        return reason_of_exit(status, bytes(self._tail))

    async def stop(self, grace_s: float) -> None:
        """End the process: SIGTERM, after `grace_s` SIGKILL; then remove its socket. Safe to call twice."""
        self._signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._process.wait(), grace_s)
        except (TimeoutError, asyncio.CancelledError) as end:
            # Also when nobody waits any longer: no process is left behind.
            self._signal(signal.SIGKILL)
            await self._process.wait()
            if isinstance(end, asyncio.CancelledError):
                raise
        finally:
            self._stderr.cancel()
            if self._process.stdin is not None:
                self._process.stdin.close()
            self._path.unlink(missing_ok=True)
            shutil.rmtree(self._path.with_suffix(_FILES_SUFFIX), ignore_errors=True)

    def _signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def _loaded(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - it was asked for in `spawn`
        line = await self._process.stdout.readline()
        answer = json.loads(line) if line.endswith(b"\n") else {}
        if answer.get("ready") is True:
            return
        raise StartFailed(await self.exited(), refused="refused" in answer)

    async def _one_token(self, applied: tuple[AppliedAdapter, ...] = ()) -> None:
        body: dict[str, object] = {"prompt": [1], "n_predict": 1, "temperature": 0, "cache_prompt": False}
        if self._adapters:
            body["lora"] = self.connection.lora(applied)
        try:
            async with (
                engine_session(self.connection) as session,
                session.post("/completion", json=body) as answer,
            ):
                if answer.status != 200:
                    raise StartFailed(f"The engine answered the first request with status {answer.status}.")
                predicted = (await answer.json()).get("tokens_predicted")
        except (aiohttp.ClientError, ValueError):
            if self._process.returncode is None:
                raise StartFailed("The engine broke off the first request.") from None
            raise StartFailed(await self.exited()) from None
        if not predicted:
            raise StartFailed("The engine answered the first request without a token.")

    async def _keep_stderr_tail(self) -> None:
        assert self._process.stderr is not None  # noqa: S101 - it was asked for in `spawn`
        while chunk := await self._process.stderr.read(4096):
            self._tail += chunk
            del self._tail[:-_STDERR_TAIL_BYTES]


def _environment() -> dict[str, str]:
    """The part of the agent's environment that the engine may see."""
    return {
        name: value
        for name, value in environment().items()
        if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)
    }


def private_folder(run_dir: Path) -> Path:
    """A folder for sockets under `run_dir` that no other user can enter, cleared of those that nobody serves.

    Raises:
        OSError: it cannot be made, or its name is too long for the address of a socket.
    """
    folder = run_dir / "engine"
    if len(os.fsencode(folder / _SOCKET_NAME_SAMPLE)) > _SOCKET_PATH_LIMIT_BYTES:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)  # it may have existed with another mode
    for left in folder.glob("*.sock"):
        if not _listens(left):
            left.unlink(missing_ok=True)
            shutil.rmtree(left.with_suffix(_FILES_SUFFIX), ignore_errors=True)
    return folder


def socket_folder(run_dir: Path) -> Path:
    """`private_folder`, or what is wrong with it.

    Raises:
        SettingsError: it cannot be made.
    """
    try:
        return private_folder(run_dir)
    except OSError as error:
        raise SettingsError(
            f"The folder {run_dir} for the engine's socket cannot be made: {error.strerror}.", param="run_dir"
        ) from None


def _listens(path: Path) -> bool:
    """Whether a process serves this socket: another agent may share the folder."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True
