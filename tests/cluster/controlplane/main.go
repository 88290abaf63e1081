// One binary with every stock program of the test cluster. The programs share
// most of their code, so linking them together builds and loads it once.
// The program is chosen by the name the binary is called by, or else by the
// first argument.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	_ "time/tzdata"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

var programs = map[string]func(){
	"etcd":                    func() { etcdmain.Main(os.Args) },
	"kube-apiserver":          run(apiserver.NewAPIServerCommand),
	"kube-controller-manager": run(controllermanager.NewControllerManagerCommand),
	"kube-scheduler": run(func() *cobra.Command {
		return scheduler.NewSchedulerCommand()
	}),
	"kubectl": func() {
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			kubectlutil.CheckErr(err)
		}
	},
}

func main() {
	program := programs[filepath.Base(os.Args[0])]
	if program == nil && len(os.Args) > 1 {
		// Each program reads os.Args itself: it must look as if called alone.
		program = programs[os.Args[1]]
		os.Args = os.Args[1:]
	}
	if program == nil {
		fmt.Fprintln(os.Stderr, "usage: control-plane etcd|kube-apiserver|kube-controller-manager|kube-scheduler|kubectl [flags]")
		os.Exit(2)
	}
	program()
}

// run defers the construction of a command: constructing one registers its
// feature gates and metrics, which must not happen for the programs not run.
func run(command func() *cobra.Command) func() {
	return func() { os.Exit(cli.Run(command())) }
}
