"""A real Kubernetes control plane for tests: etcd, kube-apiserver and kube-controller-manager.

`main.go` is the three programs in one; `programs.py` builds it once into the
user's cache, or takes the binaries that ``KUBEBUILDER_ASSETS`` names;
`control_plane.py` runs them; `plugin.py` offers them to tests as fixtures.
"""
