// Command testcluster is the Kubernetes that our tests start, in one binary: the first argument names
// what it is this time, the rest are that one's own. etcd and the three servers are the real ones; the
// nodes are ours. All of it is one link, because each of them needs most of the others' packages.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	etcdversion "go.etcd.io/etcd/api/v3/version"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	"k8s.io/component-base/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"

	"krane.dev/testcluster/install"
	"krane.dev/testcluster/nodes"
	"krane.dev/testcluster/pki"
)

const usage = `usage: testcluster PART [FLAGS]

  etcd, kube-apiserver, kube-controller-manager, kube-scheduler
        the servers themselves, with their own flags
  nodes --kubeconfig FILE [--count N]
        fake nodes that make scheduled pods run
  pki DIR
        make the keys and certificates of a new cluster
  ready --kubeconfig FILE
        wait until the API server is ready, and print the versions of Kubernetes and of etcd
  install --kubeconfig FILE [FILE...]
        apply these and our own objects, and wait until pods can be made

With TESTCLUSTER_KEPT=1 it ends when its standard input does.
`

// waitLimit is for a machine under load; a quiet one needs a few seconds.
const waitLimit = 2 * time.Minute

func main() {
	part := ""
	if len(os.Args) > 1 {
		part = os.Args[1]
		os.Args = append(os.Args[:1], os.Args[2:]...)
	}
	if os.Getenv("TESTCLUSTER_KEPT") == "1" {
		go endWithInput()
	}
	switch part {
	case "etcd":
		etcdmain.Main(os.Args)
	case "kube-apiserver":
		serve(apiserver.NewAPIServerCommand())
	case "kube-controller-manager":
		serve(controllers.NewControllerManagerCommand())
	case "kube-scheduler":
		serve(scheduler.NewSchedulerCommand())
	case "nodes", "pki", "ready", "install":
		if err := run(part); err != nil {
			fmt.Fprintf(os.Stderr, "testcluster %s: %v\n", part, err)
			os.Exit(1)
		}
	default:
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
}

func serve(command *cobra.Command) { os.Exit(cli.Run(command)) }

// endWithInput ends this process when whoever started it is gone, however that happened. Nothing has to
// be put in order first: the cluster's data goes with it.
func endWithInput() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

func run(part string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	flags := flag.NewFlagSet(part, flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "how to reach the API server")
	count := flags.Int("count", 4, "how many nodes")
	if err := flags.Parse(os.Args[1:]); err != nil {
		return err
	}
	if part == "pki" {
		return pki.Write(flags.Arg(0))
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	if part == "nodes" {
		return nodes.Run(ctx, config, *count, version.Get().GitVersion)
	}
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	if part == "install" {
		return install.Run(ctx, config, flags.Args())
	}
	return ready(ctx, config)
}

func ready(ctx context.Context, config *rest.Config) error {
	kubernetes, err := install.Ready(ctx, config)
	if err != nil {
		return err
	}
	fmt.Printf("Kubernetes %s, etcd %s\n", kubernetes, etcdversion.Version)
	return nil
}
