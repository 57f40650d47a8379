"""The logs of pods, which the server asks of whoever runs them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from multidict import CIMultiDict

from runherd.local.apiserver.errors import ApiError, bad_request, not_found
from runherd.local.apiserver.kinds import Object
from runherd.local.apiserver.targets import Query
from runherd.wire.transport import StreamingResponse

__all__ = ["LogRequest", "PodLogs", "pod_log"]


@dataclass(frozen=True, slots=True)
class LogRequest:
    """Which log, and which part of it. ``None`` means all; ``follow`` goes on as the container writes."""

    namespace: str
    pod: str
    container: str
    uid: str
    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    since_seconds: int | None = None
    limit_bytes: int | None = None


#: Opens a log. Raises :class:`LookupError`, with a text for the client, where there is none.
PodLogs = Callable[[LogRequest], Awaitable[AsyncIterator[bytes]]]


async def pod_log(pod: Object, query: Query, source: PodLogs | None) -> StreamingResponse:
    """Answer a request for ``pods/log``. Raises a 400 for bad parameters, a 404 or 501 where there is no log."""
    meta = pod["metadata"]
    request = LogRequest(
        namespace=meta["namespace"],
        pod=meta["name"],
        container=_container(pod, query.text("container")),
        uid=meta["uid"],
        follow=query.flag("follow"),
        previous=query.flag("previous"),
        timestamps=query.flag("timestamps"),
        tail_lines=query.integer("tailLines"),
        since_seconds=query.integer("sinceSeconds"),
        limit_bytes=query.integer("limitBytes"),
    )
    if source is None:
        raise ApiError(
            501, "NotImplemented", f"no kubelet is connected to this API server: pod {request.pod} has no logs here"
        )
    if not pod.get("spec", {}).get("nodeName"):
        raise bad_request(f"pod {request.pod} does not have a host assigned")
    try:
        chunks = await source(request)
    except LookupError as error:
        raise not_found("", "pods", f"{request.pod}: {error}") from error
    return StreamingResponse(200, chunks, CIMultiDict({"Content-Type": "text/plain"}))


def _container(pod: Object, asked: str) -> str:
    spec, name = pod.get("spec", {}), pod["metadata"]["name"]
    names = [c["name"] for kind in ("containers", "initContainers") for c in spec.get(kind, ())]
    if asked:
        if asked not in names:
            raise bad_request(f"container {asked} is not valid for pod {name}")
        return asked
    regular = [container["name"] for container in spec.get("containers", ())]
    if len(regular) != 1:
        raise bad_request(f"a container name must be specified for pod {name}, choose one of: [{' '.join(regular)}]")
    return str(regular[0])
