"""The example of ``docs/actions-client.md`` is an autoscaler that works."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from random import Random
from typing import Any

import pytest

import runherd.actions
from runherd.actions import ActionsClient, PersonalAccessToken, ServiceError, UserAgent
from runherd.simulator.model_runner import ModelRunner
from runherd.simulator.settings import AssignmentMode, Settings
from runherd.simulator.simulator import Simulator
from runherd.wire.clock import EventLoopClock
from runherd.wire.in_process import InProcessTransport
from runherd.wire.transport import Response
from tests.actions.scripted import Scripted, connect, error_body, reply, virtual

PAGE = Path(__file__).parents[2] / "docs" / "actions-client.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def functions() -> dict[str, Any]:
    names: dict[str, Any] = {}
    for example in EXAMPLES:
        exec(compile(example, str(PAGE), "exec"), names)  # noqa: S102  # that is what this test is for
    return names


def test_the_example_is_as_short_as_the_page_says() -> None:
    body = EXAMPLES[0][EXAMPLES[0].index("async def") :]
    assert len(body.splitlines()) <= 30


@pytest.mark.parametrize("mode", AssignmentMode)
@pytest.mark.parametrize("evicted", [False, True], ids=["", "evicted"])
def test_it_runs_all_jobs(mode: AssignmentMode, evicted: bool) -> None:
    @virtual
    async def main() -> None:
        simulator = Simulator(
            clock=EventLoopClock(), random=Random(5), settings=Settings(mode=mode), personal_tokens=["a-token"]
        )
        client = ActionsClient.connect(
            "https://github.com/acme",
            PersonalAccessToken("a-token"),
            transport=InProcessTransport(simulator),
            user_agent=UserAgent("my-autoscaler"),
            clock=EventLoopClock(),
        )
        runners: list[asyncio.Task[int]] = []
        at_once = 0

        async def start(jit_config: str) -> None:
            nonlocal at_once
            runners.append(asyncio.ensure_future(ModelRunner(simulator, jit_config).run()))
            at_once = max(at_once, sum(not runner.done() for runner in runners))

        autoscaler = asyncio.ensure_future(functions()["autoscale"](client, "fleet", 4, start))
        await asyncio.sleep(5)
        if evicted:
            simulator.add_fault("evicted_session", "messages.get", times=2)
        done: list[object] = []
        simulator.queue_jobs("acme/app", ["fleet"], 12, seconds=60.0, on_completed=done.append)
        await asyncio.sleep(1000)
        assert len(done) == 12
        assert at_once <= 4
        assert simulator.ledger.violations() == []
        assert simulator.service.inconsistencies() == []
        autoscaler.cancel()
        with pytest.raises(asyncio.CancelledError):
            await autoscaler
        assert simulator.scale_set("fleet").session is None

    main()


@virtual
async def test_it_goes_on_with_the_statistics_of_a_new_session_and_ends_with_the_error_that_ended_it() -> None:
    def opened(assigned: int) -> Response:
        return reply(
            200,
            {
                "sessionId": "6b1c7a1e-5f0a-4c39-9c0e-0d9a1d0f2b11",
                "messageQueueUrl": "https://queue.example/m",
                "messageQueueAccessToken": "t",
                "statistics": {"totalAssignedJobs": assigned},
            },
        )

    service = Scripted()
    scale_set = reply(200, {"count": 1, "value": [{"id": 1, "name": "fleet"}]})
    # The session is evicted; a job came meanwhile, of which no further message tells.
    service.will(scale_set, opened(0), reply(401), reply(404), opened(1))
    service.will(reply(200, {"runner": {"id": 7, "name": "r"}, "encodedJITConfig": "x"}))
    service.will(reply(403, error_body("AccessDeniedException", "not any more")), reply(400))
    started: list[str] = []

    async def start(jit_config: str) -> None:
        started.append(jit_config)

    with pytest.raises(ServiceError, match="not any more"):
        await functions()["autoscale"](connect(service), "fleet", 4, start)
    assert started == ["x"]
    assert not service.script


async def test_the_other_example_makes_a_client() -> None:
    client = functions()["connect"]("a-token")
    assert client.config.organization == "octo-org"
    await client.close()


def test_every_name_that_the_page_calls_public_is() -> None:
    text = re.sub(r"```.*?```", "", PAGE.read_text(), flags=re.DOTALL)
    named = set(re.findall(r"`([A-Z][A-Za-z]+(?:Error|Policy|Client|Cache|Settings|Limits|Token|App|Source))\b", text))
    assert named <= set(runherd.actions.__all__)
    errors = {name for name in runherd.actions.__all__ if name.endswith("Error")}
    assert errors <= named
