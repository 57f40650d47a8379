from pathlib import Path

import pytest

from tests.controlplane.programs import BuildError, ProgramsUnavailableError, find_programs


def test_assets_are_taken_where_they_are_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    with pytest.raises(BuildError, match="has no program etcd and no kube-apiserver"):
        find_programs(print)

    for name in ("etcd", "kube-apiserver"):
        (tmp_path / name).touch(mode=0o755)
    assert find_programs(print).kube_apiserver == (str(tmp_path / "kube-apiserver"),)
    assert find_programs(print).kube_controller_manager is None

    (tmp_path / "kube-controller-manager").touch(mode=0o755)
    assert find_programs(print).kube_controller_manager == (str(tmp_path / "kube-controller-manager"),)


def test_error_says_what_to_install_when_there_is_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ProgramsUnavailableError, match=r"install Go .* or set KUBEBUILDER_ASSETS"):
        find_programs(print)


def test_build_error_shows_what_go_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho 'go: no such toolchain' >&2\nexit 1\n")
    go.chmod(0o755)
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    with pytest.raises(BuildError, match="go: no such toolchain"):
        find_programs(print)
