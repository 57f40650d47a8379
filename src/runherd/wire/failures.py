"""What kept a response from coming over the network: aiohttp's exceptions in the words of our own errors."""

from __future__ import annotations

import ssl

import aiohttp

from runherd.wire.target import describe
from runherd.wire.transport import (
    CertificateError,
    ConnectError,
    ConnectionLostError,
    DeadlineExceededError,
    ProxyError,
    Request,
    Timeouts,
    TransportError,
)

__all__ = ["translated"]


def translated(
    error: Exception, request: Request, timeouts: Timeouts, *, request_sent: bool, proxy: str | None = None
) -> Exception:
    """The error that the caller gets for ``error``. ``proxy`` is host:port of the proxy that the call went through.

    What isn't a failure of the network (a URL that can't be called, a header with a line break in it) stays as it is:
    those are ``ValueError``, and trying again doesn't help.
    """
    if isinstance(error, TransportError):
        return error
    if isinstance(error, aiohttp.InvalidURL):
        return ValueError(f"{describe(request)}: the URL can't be called")
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return ProxyError(f"{describe(request)}: {_refusal(error.status, proxy)}")
    what = describe(request)
    if isinstance(error, TimeoutError) and getattr(error, "errno", None) is None:
        return _deadline(error, what, timeouts, request_sent=request_sent)
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return CertificateError(
            f"{what}: the certificate of {error.host}:{error.port} was not accepted: {_reason(error.certificate_error)}"
        )
    if not request_sent:
        return _not_connected(error, what, proxy)
    if isinstance(error, aiohttp.ClientPayloadError):
        return ConnectionLostError(f"{what}: the connection ended before the response did", request_sent=True)
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return ConnectionLostError(f"{what}: the server closed the connection without an answer", request_sent=True)
    if isinstance(error, (aiohttp.ClientConnectionError, OSError)):
        rejected = _rejected_certificate(error)
        if rejected is not None:
            return CertificateError(f"{what}: the server did not accept our certificate: {rejected}")
        return ConnectionLostError(f"{what}: the connection was lost: {_reason(error)}", request_sent=True)
    if isinstance(error, aiohttp.ClientError):
        return TransportError(f"{what}: the server's answer is not valid HTTP", request_sent=True)
    return error


def _deadline(error: Exception, what: str, timeouts: Timeouts, *, request_sent: bool) -> DeadlineExceededError:
    if isinstance(error, aiohttp.SocketTimeoutError):
        return DeadlineExceededError(f"{what}: nothing came for {timeouts.idle} s", request_sent=True)
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return DeadlineExceededError(f"{what}: no connection within {timeouts.connect} s", request_sent=False)
    return DeadlineExceededError(f"{what}: not answered within {timeouts.total} s", request_sent=request_sent)


def _not_connected(error: Exception, what: str, proxy: str | None) -> Exception:
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return ProxyError(f"{what}: no connection to the proxy {proxy}: {_reason(error.os_error)}")
    if isinstance(error, aiohttp.ClientConnectorError):
        return ConnectError(f"{what}: no connection to {error.host}:{error.port}: {_reason(error.os_error)}")
    if not isinstance(error, (aiohttp.ClientError, OSError)):
        return error
    if proxy is not None:
        return ProxyError(f"{what}: the proxy {proxy} did not connect us: {_reason(error)}")
    return ConnectError(f"{what}: no connection: {_reason(error)}")


def _refusal(status: int, proxy: str | None) -> str:
    if status == 407:
        return f"the proxy {proxy} asks for other credentials (407 Proxy Authentication Required)"
    return f"the proxy {proxy} refused to connect us (status {status})"


def _rejected_certificate(error: Exception) -> str | None:
    """In TLS 1.3 the server's verdict on our certificate comes after the handshake, when we read the answer."""
    cause = error.__cause__ if error.__cause__ is not None else error
    reason = cause.reason if isinstance(cause, ssl.SSLError) else None
    if reason and "ALERT" in reason and ("CERT" in reason or "UNKNOWN_CA" in reason):
        return str(reason)
    return None


def _reason(error: BaseException) -> str:
    """The system's words for an error of its own; of others the name only, since their text may hold anything."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError):
        return error.reason or "TLS failed"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return type(error).__name__
