"""What kept a response from coming over the network: aiohttp's exceptions in the words of our own errors."""

from __future__ import annotations

import os
import socket
import ssl

import aiohttp
import aiohttp_socks

from runherd.wire.proxy import ProxyServer
from runherd.wire.target import describe
from runherd.wire.transport import (
    CertificateError,
    ConnectError,
    ConnectionLostError,
    DeadlineExceededError,
    ProxyCredentialsError,
    ProxyError,
    Request,
    Timeouts,
    TransportError,
)

__all__ = ["closed", "proxy_refused", "translated"]


def closed(request: Request, *, request_sent: bool) -> ConnectionLostError:
    """What a call ends with when its transport is closed."""
    return ConnectionLostError(f"{describe(request)}: the transport is closed", request_sent=request_sent)


def proxy_refused(request: Request, proxy: ProxyServer | None, status: int) -> ProxyError:
    """What a call ends with when the proxy answers in the server's place."""
    what = f"{describe(request)}: the proxy {proxy}"
    if status == 407:
        return ProxyCredentialsError(f"{what} asks for other credentials (407 Proxy Authentication Required)")
    return ProxyError(f"{what} refused to connect us (status {status})")


def translated(
    error: Exception, request: Request, timeouts: Timeouts, proxy: ProxyServer | None, *, request_sent: bool
) -> Exception:
    """The error that the caller gets for ``error``, in a call that went through ``proxy`` if at all.

    What isn't a failure of the network (a URL that can't be called, a header with a line break in it) stays as it is:
    those are ``ValueError``, and trying again doesn't help.
    """
    if isinstance(error, TransportError):
        return error
    if isinstance(error, aiohttp.InvalidURL):
        return ValueError(f"{describe(request)}: the URL can't be called")
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return proxy_refused(request, proxy, error.status)
    what = describe(request)
    if isinstance(error, TimeoutError) and error.errno is None:
        return _deadline_passed(error, what, timeouts, request_sent=request_sent)
    if request_sent:
        return _lost(error, what)
    return _not_connected(error, what, proxy)


def _deadline_passed(error: Exception, what: str, timeouts: Timeouts, *, request_sent: bool) -> DeadlineExceededError:
    if isinstance(error, aiohttp.SocketTimeoutError):
        return DeadlineExceededError(f"{what}: nothing came for {timeouts.idle} s", request_sent=True)
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return DeadlineExceededError(f"{what}: no connection within {timeouts.connect} s", request_sent=False)
    return DeadlineExceededError(f"{what}: not answered within {timeouts.total} s", request_sent=request_sent)


def _not_connected(error: Exception, what: str, proxy: ProxyServer | None) -> Exception:
    cause = _cause(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return CertificateError(f"{what}: the server's certificate was not accepted: {cause.verify_message}")
    if _rejects_our_certificate(cause):
        return CertificateError(f"{what}: the server did not accept our certificate: {_reason(cause)}")
    if isinstance(error, aiohttp.ClientConnectorError) and not isinstance(error, aiohttp.ClientProxyConnectionError):
        return ConnectError(f"{what}: no connection to {error.host}:{error.port}: {_reason(cause)}")
    if isinstance(error, (aiohttp.ClientError, OSError, aiohttp_socks.ProxyError, aiohttp_socks.ProxyConnectionError)):
        if proxy is not None and _rejects_our_credentials(error):
            return ProxyCredentialsError(f"{what}: the proxy {proxy} asks for other credentials")
        if proxy is not None:
            return ProxyError(f"{what}: no connection through the proxy {proxy}: {_reason(cause)}")
        return ConnectError(f"{what}: no connection: {_reason(cause)}")
    return error


def _lost(error: Exception, what: str) -> Exception:
    if isinstance(error, aiohttp.ClientPayloadError):
        return ConnectionLostError(f"{what}: the connection ended before the response did", request_sent=True)
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return ConnectionLostError(f"{what}: the server closed the connection without an answer", request_sent=True)
    if isinstance(error, (aiohttp.ClientConnectionError, OSError)):
        cause = _cause(error)
        if _rejects_our_certificate(cause):
            return CertificateError(f"{what}: the server did not accept our certificate: {_reason(cause)}")
        return ConnectionLostError(f"{what}: the connection was lost: {_reason(cause)}", request_sent=True)
    if isinstance(error, aiohttp.ClientError):
        return TransportError(f"{what}: the server's answer is not valid HTTP", request_sent=True)
    return error


def _cause(error: BaseException) -> BaseException:
    """The system's or OpenSSL's error under aiohttp's."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return error.certificate_error
    if isinstance(error, aiohttp.ClientConnectorError):
        return error.os_error
    cause = error.__cause__ or error
    # CPython 3.11.7 trips over a handshake that fails inside TLS to an https proxy; what failed is underneath.
    below = cause.__context__ if isinstance(cause, TypeError) else None
    return below if isinstance(below, ssl.SSLError) else cause


def _rejects_our_certificate(cause: BaseException) -> bool:
    """Whether this is the server's verdict on our certificate. In TLS 1.3 it comes when we read the answer."""
    reason = cause.reason if isinstance(cause, ssl.SSLError) else None
    return bool(reason) and "ALERT" in str(reason) and ("CERT" in str(reason) or "UNKNOWN_CA" in str(reason))


def _rejects_our_credentials(error: BaseException) -> bool:
    """Whether a socks5 proxy refused at the step of authentication, which the library's words alone tell."""
    return isinstance(error, aiohttp_socks.ProxyError) and "authentication" in str(error)


def _reason(cause: BaseException) -> str:
    """The system's or OpenSSL's words; of other errors the name only, since their text may hold anything."""
    if isinstance(cause, ssl.SSLError):
        return cause.reason or "TLS failed"
    if isinstance(cause, socket.gaierror):
        return cause.strerror or "the name can't be resolved"
    if isinstance(cause, OSError) and cause.errno is not None:
        return os.strerror(cause.errno)
    return type(cause).__name__
