from __future__ import annotations

from dataclasses import replace

import pytest

from runherd.resources.errors import BuildError
from tests.resources.objects import SETTINGS


@pytest.mark.parametrize(
    ("address", "port"), [(":8080", 8080), ("0.0.0.0:1", 1), ("[::1]:65535", 65535), ("host.test:9090", 9090)]
)
def test_a_port(address: str, port: int) -> None:
    settings = replace(SETTINGS, metrics_address=address)
    assert settings.has_metrics
    assert settings.metrics_port == port


@pytest.mark.parametrize(
    "address", ["8080", ":", ":0", ":65536", ":http", "::1:80", ":-1", ":٨", "host", ":" + "1" * 9]
)
def test_a_malformed_address(address: str) -> None:
    with pytest.raises(BuildError, match="--listener-metrics-addr"):
        _ = replace(SETTINGS, metrics_address=address).metrics_port


@pytest.mark.parametrize("address", ["", "0"])
def test_no_metrics(address: str) -> None:
    assert not replace(SETTINGS, metrics_address=address).has_metrics
