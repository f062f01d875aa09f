"""Where the extra is not installed: everything works without traces, and a start that asks for them says what to do."""

from __future__ import annotations

import subprocess
import sys

from tests.architecture.sources import ROOT

_CODE = """
import sys

class Absent:
    asked = []
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "opentelemetry":
            self.asked.append(name)
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None

sys.meta_path.insert(0, Absent())
import router.app, edge.app
from shared.errors import SettingsError
from shared.tracing.build import build_tracer
from shared.tracing.settings import TracingSettings

print(type(build_tracer(TracingSettings(), tier="edge", on_spans=print)).__name__, Absent.asked)
try:
    build_tracer(TracingSettings(endpoint="http://127.0.0.1:4318/v1/traces"), tier="edge", on_spans=print)
except SettingsError as error:
    print(error.param, error.message)
"""


def test_without_the_packages_tiers_work_and_traces_are_refused_with_a_remedy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _CODE], cwd=ROOT, capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines() == [
        "NoTracer []",
        "edge.tracing.endpoint Setting edge.tracing.endpoint needs more packages: pip install 'isthmus[otel]'.",
    ]
