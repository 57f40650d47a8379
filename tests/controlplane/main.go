// Command controlplane is a Kubernetes control plane in one program, for tests.
//
// It embeds etcd, kube-apiserver and kube-controller-manager. The first
// argument says which of them the process becomes; the others are that
// program's own flags:
//
//	controlplane etcd --data-dir=/tmp/etcd
//	controlplane kube-apiserver --etcd-servers=http://127.0.0.1:2379
//
// Each runs in a process of its own, so that a test can stop, pause or kill one
// without the others.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

func main() {
	if len(os.Args) < 2 {
		usage()
	}
	name := os.Args[1]
	// The embedded programs read os.Args themselves, with their own name first.
	os.Args = os.Args[1:]
	switch name {
	case "etcd":
		etcdmain.Main(os.Args)
	case "kube-apiserver":
		run(apiserver.NewAPIServerCommand())
	case "kube-controller-manager":
		run(controllermanager.NewControllerManagerCommand())
	default:
		usage()
	}
}

func run(command *cobra.Command) {
	os.Exit(cli.Run(command))
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: controlplane etcd|kube-apiserver|kube-controller-manager [flags]")
	os.Exit(2)
}
