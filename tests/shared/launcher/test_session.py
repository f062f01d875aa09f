"""`isthmus up` from start to last process, with played tiers that fail in every way a real one can."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import aiohttp
import pytest

from shared.errors import SettingsError, StartFailed
from shared.launcher import preflight
from shared.launcher.preflight import SOCKET_NAME
from shared.launcher.processes import child_environment, marked
from shared.testing.certificates import Authority

from .conftest import PLAYED, Run, Start


@pytest.fixture(autouse=True)
def all_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Played tiers need no packages and no compiler."""
    monkeypatch.setattr(preflight, "check_installed", lambda tier: None)
    monkeypatch.setattr(preflight, "check_compiler", lambda: None)


def _signal(number: int = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_signal_ends_every_process_in_good_order(start: Start, number: int) -> None:
    run = start()
    run.tell("edge", "stray")
    await run.until_ready()
    assert len(run.processes()) == 3
    _signal(number)
    assert await run.task == 0
    assert run.processes() == []
    assert not (run.folder / SOCKET_NAME).exists()


@pytest.mark.parametrize("mutual", [False, True])
async def test_a_router_that_speaks_tls_is_reached_by_tls(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mutual: bool
) -> None:
    """By the certificate of its settings alone, which no authority of the system signed; its agent is told of it."""
    authority, name = Authority(tmp_path), "ISTHMUS__ROUTER__"
    server, client = authority.pair("server"), authority.pair("client")
    files = {"TLS__CERT_FILE": server.cert, "TLS__KEY_FILE": server.key}
    if mutual:
        files |= {"TLS__CLIENT_CA_FILE": authority.ca, "CLIENT__CA_FILE": authority.ca}
        files |= {"CLIENT__CERT_FILE": client.cert, "CLIENT__KEY_FILE": client.key}
    for setting, path in files.items():
        monkeypatch.setenv(name + setting, str(path))
    run = start()
    await run.until_ready()
    assert run.heard.readies[-1].endpoint.startswith("https://127.0.0.1:")
    told = json.loads((run.home / "edge.env").read_text())
    assert told["ISTHMUS__EDGE__ROUTER__URL"].startswith("https://127.0.0.1:")
    trusted = {name.rpartition("__")[2]: value for name, value in told.items() if "EDGE__ROUTER__TLS" in name}
    shown = {"CERT_FILE": str(client.cert), "KEY_FILE": str(client.key)} if mutual else {}
    assert trusted == {"CA_FILE": str(authority.ca if mutual else server.cert), **shown}


async def test_a_router_that_nobody_here_could_ask_is_not_started(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    server = authority.pair("server")
    for setting, path in {"CERT_FILE": server.cert, "KEY_FILE": server.key, "CLIENT_CA_FILE": authority.ca}.items():
        monkeypatch.setenv(f"ISTHMUS__ROUTER__TLS__{setting}", str(path))
    with pytest.raises(SettingsError) as refused:
        start()
    assert refused.value.param == "router.client.cert_file"


async def test_the_edge_pair_is_announced_first_and_the_cloud_later(start: Start) -> None:
    run = start(("edge", "cloud"))
    await run.until_ready()
    assert [ready.tiers for ready in run.heard.readies] == [("edge", "router"), ("edge", "router", "cloud")]
    assert run.calls().index("edge serve") < run.calls().index("cloud checkpoint") < run.calls().index("cloud serve")


async def test_a_second_start_prepares_nothing_again(start: Start) -> None:
    first = start()
    await first.until_ready()
    _signal()
    await first.task
    second = start()
    await second.until_ready()
    assert second.calls().count("edge pull") == 1


async def test_the_tiers_are_told_of_each_other_and_marked(start: Start) -> None:
    run = start(("edge", "cloud"))
    await run.until_ready()
    told = {name: json.loads((run.home / f"{name}.env").read_text()) for name in ("edge", "router", "cloud")}
    router_port, cloud_port = told["router"]["ISTHMUS__ROUTER__PORT"], told["cloud"]["ISTHMUS__CLOUD__PORT"]
    assert told["edge"]["ISTHMUS__EDGE__ROUTER__URL"] == f"http://127.0.0.1:{router_port}"
    (cloud,) = json.loads(told["router"]["ISTHMUS__ROUTER__CLOUDS"])
    assert cloud["url"] == f"http://127.0.0.1:{cloud_port}"
    roots = json.loads(told["edge"]["ISTHMUS__EDGE__THERMAL__ROOTS"])
    assert roots[0] == "/sys"
    assert Path(roots[1]).is_dir()
    for name, environment in told.items():
        assert environment["ISTHMUS_RUN_TIER"] == name
        assert environment["ISTHMUS_RUN_ID"] in roots[1]


async def test_a_failed_start_is_the_tiers_own_line_and_leaves_nothing(start: Start) -> None:
    run = start()
    run.tell("edge", "fail")
    with pytest.raises(SettingsError) as caught:  # the tier ended with the code for settings; so does isthmus up
        await asyncio.wait_for(run.task, 30)
    assert "edge: Setting edge.slots: too many" in caught.value.message
    assert "\n" not in caught.value.message
    assert run.processes() == []


async def test_an_interrupted_download_is_one_line_and_leaves_nothing(start: Start) -> None:
    run = start()
    run.tell("edge", "broken-pull")
    with pytest.raises(StartFailed, match="interrupted after 12 of 98 MB"):
        await asyncio.wait_for(run.task, 30)
    assert run.processes() == []


async def test_a_tier_that_never_gets_ready_fails_at_its_limit(start: Start) -> None:
    run = start(ready_limits_s={"edge": 0.5})
    run.tell("edge", "mute")
    run.tell("edge", "stray")
    with pytest.raises(StartFailed, match=r"edge: not ready within 0\.5 s"):
        await asyncio.wait_for(run.task, 30)
    assert run.processes() == []


@pytest.mark.parametrize("tier", ["edge", "router", "cloud"])
async def test_a_crash_restarts_that_tier_alone(start: Start, tier: str) -> None:
    run = start(("edge", "cloud"))
    run.tell(tier, "stray")
    await run.until_ready()
    before = {name: runner.pid for name, runner in run.session.runners.items()}
    run.tell(tier, "crash")
    await run.until(lambda: run.session.runners[tier].restarts == 1)
    await run.until(lambda: run.session.runners[tier].state == "ready")
    after = {name: runner.pid for name, runner in run.session.runners.items()}
    assert {name for name in after if after[name] != before[name]} == {tier}
    assert run.heard.said(tier, "ended with code 9; starts again")
    # Three tiers and one stray: the crashed process's stray went with it.
    assert len(run.processes()) == 4


async def test_a_tier_that_crashes_again_and_again_waits_longer_each_time(start: Start) -> None:
    run = start(restart={"base_s": 0.001, "cap_s": 0.01, "stable_s": 3600})
    await run.until_ready()
    for crashes in range(1, 4):
        await run.until(lambda: run.session.runners["router"].state == "ready")
        run.tell("router", "crash")
        await run.until(lambda n=crashes: run.session.runners["router"].restarts == n)
    assert not run.task.done()


async def test_a_second_signal_does_not_wait_for_a_deaf_tier(start: Start) -> None:
    run = start(stop_limit_s=3600)
    run.tell("edge", "deaf")
    await run.until_ready()
    _signal()
    await run.until(lambda: run.heard.said("up", "stopping"))
    async with asyncio.timeout(30):
        while not run.task.done():
            _signal()
            await asyncio.sleep(0.05)
    assert run.task.result() == 130
    assert run.processes() == []


async def test_one_signal_that_arrives_twice_is_one(start: Start) -> None:
    """A terminal or supervisor signals the whole group, and make passes the signal on once more."""
    run = start()
    await run.until_ready()
    _signal(signal.SIGTERM)
    _signal(signal.SIGINT)
    assert await run.task == 0


async def test_a_deaf_tier_is_killed_at_the_limit(start: Start) -> None:
    run = start(stop_limit_s=0.2)
    run.tell("edge", "deaf")
    await run.until_ready()
    _signal()
    assert await asyncio.wait_for(run.task, 30) == 0
    assert run.processes() == []


async def test_a_signal_during_the_start_ends_what_was_started(start: Start) -> None:
    run = start()
    run.tell("edge", "mute")
    await run.until(lambda: len(run.processes()) == 2)
    _signal()
    assert await run.task == 0
    assert run.processes() == []


async def test_leftovers_of_a_killed_run_are_ended_at_the_next_start(
    start: Start, isolated_environment: Path, tmp_path: Path
) -> None:
    stray = await asyncio.create_subprocess_exec(
        PLAYED[0], "-c", "import time; time.sleep(600)",
        env=child_environment(isolated_environment / "run", "an-earlier-run", "edge", {}), start_new_session=True,
    )  # fmt: skip
    foreign = await asyncio.create_subprocess_exec(
        PLAYED[0], "-c", "import time; time.sleep(600)",
        env=child_environment(tmp_path, "another-home", "edge", {}), start_new_session=True,
    )  # fmt: skip
    run = start()
    try:
        await run.until_ready()
        assert await asyncio.wait_for(stray.wait(), 10) == -signal.SIGKILL
        assert run.heard.said("up", "ended 1 processes")
        assert foreign.returncode is None
        assert len(marked(tmp_path)) == 1
    finally:
        foreign.kill()
        await foreign.wait()


@pytest.mark.parametrize("tier", ["edge", "router", "cloud"])
async def test_a_taken_port_is_one_line_before_anything_starts(
    start: Start, monkeypatch: pytest.MonkeyPatch, tier: str
) -> None:
    taken = preflight.bind("127.0.0.1", 0, setting="x")
    try:
        port = taken.getsockname()[1]
        monkeypatch.setenv(f"ISTHMUS__{tier.upper()}__PORT", str(port))
        run = start(("edge", "cloud"))
        with pytest.raises(SettingsError, match=f"Port {port} .* already in use. Choose another with {tier}.port"):
            await run.task
    finally:
        taken.close()
    assert not (run.home / "calls").exists()


@pytest.mark.parametrize(
    ("name", "value", "setting"),
    [
        ("ISTHMUS__ROUTER__TIMEOUTS__IDLE_S", "-1", "router.timeouts.idle_s"),
        ("ISTHMUS__ROUTER__TIMEOUTS", '{"connect_s": 1, "idle_s": -1}', "router.timeouts.idle_s"),
        ("ISTHMUS__EDGE__THERMAL__WARM_C", "200", "edge.thermal"),
        ("ISTHMUS__CLOUD__LIFE__DRAIN_S", "soon", "cloud.life.drain_s"),
        ("ISTHMUS__ROUTER__TIMEOUTS__IDEL_S", "3", "ISTHMUS__ROUTER__TIMEOUTS__IDEL_S"),
    ],
)
async def test_a_wrong_value_is_one_line_before_anything_starts(
    start: Start, monkeypatch: pytest.MonkeyPatch, name: str, value: str, setting: str
) -> None:
    """Of any tier that is to start: its own process would say so when the others have begun."""
    monkeypatch.setenv(name, value)
    run = start(("edge", "cloud"))
    with pytest.raises(SettingsError) as refused:
        await run.task
    assert refused.value.param == setting and refused.value.exit_code == 2
    assert name in refused.value.message or setting == "edge.thermal"
    assert not (run.home / "calls").exists()


async def test_a_tier_that_is_left_out_may_have_any_settings(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS__CLOUD__LIFE__DRAIN_S", "soon")
    await start(("edge",)).until_ready()


async def test_two_tiers_on_one_port_are_told_so(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS__EDGE__PORT", os.environ["ISTHMUS__ROUTER__PORT"])
    with pytest.raises(SettingsError, match=r"router.port and edge.port are both"):
        await start().task


async def test_a_full_disk_is_one_line_before_anything_starts(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    run = start()
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda _: preflight.shutil._ntuple_diskusage(10**9, 10**9, 0))
    with pytest.raises(SettingsError, match=r"0 MiB free; 464 MiB are needed"):
        await run.task
    assert not (run.home / "calls").exists()


async def test_folders_of_old_runs_go_and_others_stay(start: Start) -> None:
    run = start(kept_runs=2)
    for name in ("1600000000-0000000a", "1600000001-0000000a", "1600000002-0000000a", "edge"):
        (run.folder / name).mkdir()
    await run.until_ready()
    left = sorted(path.name for path in run.folder.iterdir() if path.is_dir())
    assert left[0] == "1600000002-0000000a"
    assert left[-1] == "edge"
    assert len(left) == 3


async def test_the_logs_of_the_tiers_are_followed(start: Start) -> None:
    run = start()
    await run.until(lambda: {tier for tier, _ in run.heard.lines} == {"edge", "router"})
    assert all(b"listening" in line for _, line in run.heard.lines)


async def _control(run: Run, method: str, path: str) -> tuple[int, bytes]:
    connector = aiohttp.UnixConnector(str(run.folder / SOCKET_NAME))
    url = f"http://up{path}"
    async with aiohttp.ClientSession(connector=connector) as session, session.request(method, url) as answer:
        return answer.status, await answer.read()


async def test_the_control_socket_tells_the_state_to_its_owner_alone(start: Start) -> None:
    run = start()
    await run.until_ready()
    assert (run.folder / SOCKET_NAME).stat().st_mode & 0o777 == 0o600
    status, body = await _control(run, "GET", "/state")
    state = json.loads(body)
    assert status == 200
    assert state["endpoint"].endswith("/v1")
    assert Path(state["sensors"]).is_dir()
    assert set(state["tiers"]) == {"edge", "router"}
    edge = state["tiers"]["edge"]
    assert edge["state"] == "ready"
    os.kill(edge["pid"], 0)
    assert (await _control(run, "POST", "/tiers/cloud/kill"))[0] == 404
    assert (await _control(run, "GET", "/nothing"))[0] == 404


async def test_a_killed_tier_stays_down_until_it_is_started(start: Start) -> None:
    run = start()
    run.tell("edge", "stray")
    await run.until_ready()
    assert (await _control(run, "POST", "/tiers/edge/kill"))[0] == 204
    await run.until(lambda: run.session.runners["edge"].state == "held")
    assert len(run.processes()) == 1
    assert run.session.runners["edge"].restarts == 0
    assert (await _control(run, "POST", "/tiers/edge/start"))[0] == 204
    await run.until(lambda: run.session.runners["edge"].state == "ready")
    assert len(run.processes()) == 3
    _signal()
    assert await run.task == 0


async def test_a_held_tier_does_not_hold_the_end_back(start: Start) -> None:
    run = start()
    await run.until_ready()
    await _control(run, "POST", "/tiers/edge/kill")
    _signal()
    assert await run.task == 0
    assert run.processes() == []


async def test_a_simulated_device_is_written_from_the_start_and_its_scenario_begins_when_all_is_ready(
    start: Start,
) -> None:
    run = start(heat={"scenario": "ramp", "compression": 50})
    await run.until_ready()
    environment = json.loads((run.home / "edge.env").read_text())
    tree = Path(json.loads(environment["ISTHMUS__EDGE__THERMAL__ROOTS"])[0])
    zone = tree / "class/thermal/thermal_zone0/temp"
    await run.until(lambda: zone.exists() and float(zone.read_text()) > 40_000)
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(run.folder / SOCKET_NAME))) as http:
        async with http.get("http://up/state") as answer:
            heat = (await answer.json())["heat"]
        assert (heat["scenario"], heat["compression"], heat["duration_s"]) == ("ramp", 50, 300)
        async with http.post("http://up/heat/restart") as answer:
            assert answer.status == 204
        async with http.get("http://up/state") as answer:
            assert (await answer.json())["heat"]["elapsed_s"] < heat["elapsed_s"]
    _signal()
    assert await run.task == 0


async def test_without_simulated_heat_there_is_nothing_to_begin(start: Start) -> None:
    run = start()
    await run.until_ready()
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(run.folder / SOCKET_NAME))) as http:
        async with http.get("http://up/state") as answer:
            assert (await answer.json())["heat"] is None
        async with http.post("http://up/heat/restart") as answer:
            assert answer.status == 404
    _signal()
    assert await run.task == 0


async def test_simulated_heat_needs_a_device(start: Start) -> None:
    with pytest.raises(SettingsError) as refused:
        start(("cloud",), heat={"scenario": "ramp"})
    assert refused.value.param == "up.heat.scenario"
