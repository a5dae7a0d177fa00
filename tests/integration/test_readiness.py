"""No request reaches a replica before its gate says ready."""

from __future__ import annotations

import requests

from tests.eventually import eventually
from tests.integration.stack import docker, new_stack
from tests.load import Load


def test_a_replica_that_loads_gets_no_request_and_the_others_serve() -> None:
    with new_stack("load") as stack:
        stack.settings(stub__load_s=6, engine__drain_s=20, gateway__drain_s=20)
        up = stack.start("up", "--profile", "stub")
        eventually(lambda: docker("ps", "-q", "--filter", f"label=com.docker.compose.project={stack.project}"), 240)
        eventually(lambda: stack.gate("engine-0")["phase"] in ("starting", "loading"), 30)
        url = eventually(lambda: stack.status()["url"], 30)
        base = url.removesuffix("/v1")
        assert eventually(lambda: requests.get(f"{base}/health", timeout=5).status_code, 10) == 503
        out, _ = up.communicate(timeout=120)
        assert up.returncode == 0, out
        target = stack.target()
        with Load(target, rate=50) as load:
            eventually(lambda: len(load.outcomes.started) > 20, 20)
            docker("kill", stack.container("engine-1"))
            docker("start", stack.container("engine-1"))
            eventually(lambda: stack.gate("engine-1")["phase"] in ("starting", "loading"), 20)
            loading_from = len(load.outcomes.started)
            stack.wait_ready(2, 60)
            assert len(load.outcomes.started) > loading_from, "no request was sent while engine-1 loaded"
        failures = [words for _, words in load.outcomes.failures]
        assert len(failures) <= 5, failures  # in flight on engine-1 when it was killed
        assert not any("no_replica" in words for words in failures), failures
