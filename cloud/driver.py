"""The process that owns the local Ray cluster: starts it, deploys the applications, drains and stops them.

`python -m cloud.driver PLAN` is started by `cloud.supervisor`, which sets its environment: Ray reads most of its
switches from there when it is imported. It ends by itself when the supervisor is gone.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import ray
from ray import serve
from ray.exceptions import RayError
from ray.serve.config import HTTPOptions, ProxyLocation
from ray.serve.exceptions import RayServeException
from ray.serve.schema import LoggingConfig

from cloud import app as openai_app
from cloud import capacity
from cloud.options import INGRESS_NAME, deployment_name, reserved_cpus
from cloud.plan import Plan
from cloud.render import APP_NAME, OPS_NAME, REQUEST_TIMEOUT_S, applications, logging_config
from cloud.stages import Stages
from shared import logs
from shared.errors import BackendError, IsthmusError, SettingsError

_POLL_S = 0.5
_DRAIN_POLL_S = 0.2
_ANSWER_TIMEOUT_S = 2.0


class Driver:
    """One run of the cluster."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._settings = plan.settings
        self._log = logs.get("cloud")
        self._stop = threading.Event()
        self._hurry = threading.Event()
        self._parent = os.getppid()

    def run(self) -> int:
        """Serve until a signal; the exit code."""
        stages = Stages()
        self._listen()
        stages.end("imports")
        self._start_ray()
        stages.end("ray")
        self._listen()  # Ray has put its own handler of SIGTERM in our place
        try:
            self._deploy()
            stages.end("deploy")
            if self._wait_until_ready(stages):
                self._wait_for_stop()
        finally:
            self._end()
        return 0

    def _listen(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, *_: object) -> None:
        (self._hurry if self._stop.is_set() else self._stop).set()

    def _start_ray(self) -> None:
        own = self._settings.ray
        common: dict[str, Any] = {"namespace": "isthmus", "log_to_driver": False, "configure_logging": False}
        if own.address is not None:
            ray.init(address=own.address, **common)
        else:
            ray.init(
                address="local",
                num_cpus=own.num_cpus or reserved_cpus(self._plan.args),
                num_gpus=None if self._settings.accelerator.kind == "gpu" else 0,
                object_store_memory=own.object_store_bytes,
                include_dashboard=own.dashboard,
                dashboard_host="127.0.0.1",
                _node_ip_address="127.0.0.1",
                _temp_dir=self._plan.temp_dir,
                _metrics_export_port=self._plan.metrics_port,
                **common,
            )
        self._log.info("ray_started", temp_dir=self._plan.temp_dir, metrics_port=self._plan.metrics_port)

    def _deploy(self) -> None:
        options = HTTPOptions(host=self._settings.host, port=self._settings.port, request_timeout_s=REQUEST_TIMEOUT_S)
        serve.start(
            proxy_location=ProxyLocation.HeadOnly,
            http_options=options,
            logging_config=LoggingConfig(**logging_config(self._settings)),
        )
        builders = {OPS_NAME: capacity.build, APP_NAME: openai_app.build}
        serve.run_many(
            [
                serve.RunTarget(
                    builders[part["name"]](part["args"]), name=part["name"], route_prefix=part["route_prefix"]
                )
                for part in applications(self._plan.args)
            ],
            wait_for_ingress_deployment_creation=False,
            wait_for_applications_running=False,
        )

    def _wait_until_ready(self, stages: Stages) -> bool:
        """True when every model answers; False when a signal came first.

        Raises:
            BackendError: a model cannot start, or not within `life.start_timeout_s`.
        """
        seen = ""
        while not self._should_stop():
            status, detail = self._status()
            if detail != seen:
                self._log.info("starting", state=detail)
                seen = detail
            if status == "RUNNING":
                stages.end("models")
                self._log.info(
                    "ready",
                    port=self._settings.port,
                    after_s=stages.total_s,
                    stages_s=stages.ended_s,
                    models_s=self._models_s(),
                )
                return True
            if status == "DEPLOY_FAILED":
                raise BackendError("A model could not be started; see the logs of its replica.")
            if stages.total_s > self._settings.life.start_timeout_s:
                raise BackendError(f"The models were not ready after {self._settings.life.start_timeout_s:.0f} s.")
            self._stop.wait(_POLL_S)
        return False

    def _status(self) -> tuple[str, str]:
        """Status of the OpenAI application, and the states of its replicas in words."""
        app = serve.status().applications.get(APP_NAME)
        if app is None:
            return "NOT_STARTED", "not started"
        names = {deployment_name(model.model_id): model.model_id for model in self._plan.args.models}
        parts = [
            f"{names.get(name, INGRESS_NAME)} {str(getattr(state, 'value', state)).lower()}"
            for name, deployment in sorted(app.deployments.items())
            for state in deployment.replica_states
        ]
        return app.status.value, ", ".join(parts) or app.status.value.lower()

    def _models_s(self) -> dict[str, dict[str, float]]:
        """What the start of each model took, told by the first of its replicas; a model that sleeps tells nothing."""
        told = {}
        for model in self._plan.args.models:
            try:
                handle = serve.get_deployment_handle(deployment_name(model.model_id), APP_NAME)
                told[model.model_id] = handle.broadcast("start_stages").results(timeout_s=_ANSWER_TIMEOUT_S)[0]
            except (RayError, RayServeException, TimeoutError, IndexError):
                continue
        return told

    def _wait_for_stop(self) -> None:
        while not self._should_stop():
            self._stop.wait(_POLL_S)

    def _should_stop(self) -> bool:
        """Whether a signal came, or the supervisor is gone (then nobody else will end this cluster)."""
        return self._stop.is_set() or os.getppid() != self._parent

    def _end(self) -> None:
        """Let running requests end, then stop the applications and Ray."""
        if not self._hurry.is_set():
            self._log.info("draining")
            self._drain()
        self._log.info("stopping")
        try:
            if self._settings.ray.address is None:
                serve.shutdown()
            else:
                for name in (APP_NAME, OPS_NAME):
                    serve.delete(name)
        except (RayError, RayServeException) as error:
            self._log.warning("stop_incomplete", cause=type(error).__name__)
        finally:
            ray.shutdown()
            self._log.info("stopped")

    def _drain(self) -> None:
        """Refuse new requests, tell routers, and wait for the running ones up to `life.drain_s`."""
        try:
            ops, ingress = (serve.get_app_handle(name) for name in (OPS_NAME, APP_NAME))
            for handle in (ingress, ops):  # what is told is true already
                _answers(handle, "begin_drain")
            until_s = time.monotonic() + self._settings.life.drain_s
            while sum(_answers(ingress, "open_requests")):
                if self._hurry.is_set() or time.monotonic() > until_s:
                    self._log.warning("drain_cut_short")
                    return
                time.sleep(_DRAIN_POLL_S)
        except (RayError, RayServeException, TimeoutError) as error:
            # Nothing runs there yet, or any more: there is nothing to wait for.
            self._log.info("drain_skipped", cause=type(error).__name__)


def _answers(handle: Any, method: str) -> list[Any]:
    """What each replica says to `method`, of those that answer in time: one that hangs stops nobody."""
    answers = handle.broadcast(method).results(timeout_s=_ANSWER_TIMEOUT_S, return_exceptions=True)
    return [answer for answer in answers if not isinstance(answer, Exception)]


def _failed(message: str) -> int:
    print(f"error: {message}", file=sys.stderr, flush=True)  # noqa: T201 - the one line that a start that failed leaves
    return 1


def main(path: str) -> int:
    """Run the plan in the file at `path`."""
    plan = Plan.model_validate_json(Path(path).read_bytes())
    logs.configure(level=plan.settings.log_level)
    for name in ("ray", "ray.serve"):
        # These print lines of their own format, and all options of every deployment, at info level.
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        return Driver(plan).run()
    except TimeoutError:
        return _failed("Ray did not start in time on this machine; its own logs say more.")
    except RayError as error:
        return _failed(f"Ray failed: {type(error).__name__}; its own logs say more.")
    except IsthmusError as error:
        logs.get("cloud").error("failed", cause=error.message)
        return 2 if isinstance(error, SettingsError) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
