// Package nodes plays the nodes of a cluster: the scheduler that binds pods to them is real, what the
// pods then do is told by their annotations and images.
package nodes

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// renewal is how often a node says that it lives; Kubernetes waits five times as long.
const renewal = 10 * time.Second

const leaseSeconds = 40

var everything = labels.Everything()

// zones are what the nodes are spread over.
var zones = []string{"test-1a", "test-1b", "test-1c"}

// kind is what sets a node apart: its taint, which it is also labelled with, so that a pod can be held to it.
type kind struct {
	zone  int
	taint *corev1.Taint
}

// kinds repeat, each time one zone further. A pod that tolerates one of the taints finds all three zones
// already with four nodes.
var kinds = []kind{
	{zone: 0},
	{zone: 1},
	{zone: 2, taint: &corev1.Taint{Key: "karpenter.sh/nodepool", Value: "untrusted", Effect: corev1.TaintEffectNoSchedule}},
	{zone: 2, taint: &corev1.Taint{Key: "node-class", Value: "sentinel", Effect: corev1.TaintEffectNoSchedule}},
}

// Run makes the nodes and plays them until the context ends.
func Run(ctx context.Context, config *rest.Config, count int, version string) error {
	config = rest.CopyConfig(config)
	// The limits of a client are for strangers' clusters.
	config.QPS = -1
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	hosts := map[string]string{}
	for at := range count {
		node := nodeOf(at, version, metav1.Now())
		hosts[node.Name] = node.Status.Addresses[0].Address
		if err := retry(ctx, func() error { return register(ctx, client, node) }); err != nil {
			return err
		}
	}
	go renew(ctx, client, hosts)
	return newKubelet(client, hosts).run(ctx)
}

func nodeOf(at int, version string, now metav1.Time) *corev1.Node {
	kind := kinds[at%len(kinds)]
	name := fmt.Sprintf("fake-%d", at)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		"kubernetes.io/hostname":        name,
		"kubernetes.io/os":              "linux",
		"kubernetes.io/arch":            "amd64",
		"topology.kubernetes.io/region": "test-1",
		"topology.kubernetes.io/zone":   zones[(kind.zone+at/len(kinds))%len(zones)],
	}}}
	if kind.taint != nil {
		node.Spec.Taints = []corev1.Taint{*kind.taint}
		node.Labels[kind.taint.Key] = kind.taint.Value
	}
	room := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("1000"),
		corev1.ResourceMemory:           resource.MustParse("4Ti"),
		corev1.ResourceEphemeralStorage: resource.MustParse("100Ti"),
		corev1.ResourcePods:             resource.MustParse("20000"),
	}
	node.Status = corev1.NodeStatus{
		Capacity: room, Allocatable: room,
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.0.%d.%d", at/250, at%250+1)},
			{Type: corev1.NodeHostName, Address: name},
		},
		NodeInfo: corev1.NodeSystemInfo{
			KubeletVersion: version, OperatingSystem: "linux", Architecture: "amd64",
			ContainerRuntimeVersion: "fake://1", OSImage: "fake",
		},
		Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
			Message: "fake node", LastHeartbeatTime: now, LastTransitionTime: now,
		}},
	}
	return node
}

// register makes the node, and makes one from an earlier life ready again. A new node is tainted as not
// ready until a controller has seen that it is; we do not wait for that.
func register(ctx context.Context, client kubernetes.Interface, node *corev1.Node) error {
	nodes := client.CoreV1().Nodes()
	made, err := nodes.Create(ctx, node, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		if made, err = nodes.Get(ctx, node.Name, metav1.GetOptions{}); err != nil {
			return err
		}
		made.Status = node.Status
		made, err = nodes.UpdateStatus(ctx, made, metav1.UpdateOptions{})
	}
	if err != nil {
		return err
	}
	made.Spec.Taints = node.Spec.Taints
	_, err = nodes.Update(ctx, made, metav1.UpdateOptions{})
	return err
}

// renew keeps the leases by which Kubernetes knows that our nodes live.
func renew(ctx context.Context, client kubernetes.Interface, hosts map[string]string) {
	for {
		for name := range hosts {
			if err := renewOne(ctx, client, name); err != nil {
				klog.ErrorS(err, "Renewing a lease", "node", name)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(renewal):
		}
	}
}

func renewOne(ctx context.Context, client kubernetes.Interface, name string) error {
	leases := client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	seconds, now := int32(leaseSeconds), metav1.NowMicro()
	spec := coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: &seconds, RenewTime: &now}
	lease, err := leases.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		made := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
		_, err = leases.Create(ctx, made, metav1.CreateOptions{})
		return err
	} else if err != nil {
		return err
	}
	lease.Spec = spec
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	return err
}

// retry tries again until the context ends: a server that restarts is away for a few seconds.
func retry(ctx context.Context, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		klog.ErrorS(err, "Trying again")
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}
