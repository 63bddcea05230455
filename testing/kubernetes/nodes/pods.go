package nodes

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// workers is how many pods are written at once. The API server is the limit, not we.
const workers = 16

// kubelet plays the kubelets of all our nodes: it watches the pods that the scheduler bound to them.
type kubelet struct {
	client kubernetes.Interface
	// hosts are our nodes' own addresses by name; pods of other nodes are left alone.
	hosts map[string]string
	pods  corelisters.PodLister
	queue workqueue.TypedRateLimitingInterface[cache.ObjectName]

	mutex     sync.Mutex
	addresses addresses
	memories  map[types.UID]*memory
	leaving   map[types.UID]*farewell
}

// farewell is how far a deleted pod has come.
type farewell struct {
	since time.Time
	// said is that the server was told; the cache learns of it later.
	said bool
}

func newKubelet(client kubernetes.Interface, hosts map[string]string) *kubelet {
	// A conflict means that we were too quick for our own cache; that passes in milliseconds.
	limit := workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](5*time.Millisecond, 5*time.Second)
	return &kubelet{
		client: client, hosts: hosts, queue: workqueue.NewTypedRateLimitingQueue(limit),
		memories: map[types.UID]*memory{}, leaving: map[types.UID]*farewell{},
	}
}

// run plays until the context ends.
func (k *kubelet) run(ctx context.Context) error {
	factory := informers.NewSharedInformerFactoryWithOptions(k.client, 0,
		informers.WithTweakListOptions(func(options *metav1.ListOptions) {
			options.FieldSelector = fields.OneTermNotEqualSelector("spec.nodeName", "").String()
		}))
	pods := factory.Core().V1().Pods()
	k.pods = pods.Lister()
	if _, err := pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    k.enqueue,
		UpdateFunc: func(_, pod any) { k.enqueue(pod) },
		DeleteFunc: k.forget,
	}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	cache.WaitForCacheSync(ctx.Done(), pods.Informer().HasSynced)
	k.adopt()
	var group sync.WaitGroup
	for range workers {
		group.Go(func() { k.work(ctx) })
	}
	<-ctx.Done()
	k.queue.ShutDown()
	group.Wait()
	return nil
}

func (k *kubelet) enqueue(object any) {
	if pod, ok := object.(*corev1.Pod); ok && k.hosts[pod.Spec.NodeName] != "" {
		k.queue.Add(cache.MetaObjectToName(pod))
	}
}

func (k *kubelet) forget(object any) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	k.mutex.Lock()
	defer k.mutex.Unlock()
	delete(k.memories, pod.UID)
	delete(k.leaving, pod.UID)
	k.addresses.release(pod.UID)
	// A pod of the same name may have come between two lists.
	k.enqueue(pod)
}

// adopt takes over the addresses that pods have from an earlier life of ours.
func (k *kubelet) adopt() {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	for name := range k.hosts {
		pods, err := podsOf(k.pods, name)
		if err != nil {
			klog.ErrorS(err, "Listing pods", "node", name)
		}
		for _, pod := range pods {
			k.addresses.take(pod.UID, pod.Status.PodIP)
		}
	}
}

func (k *kubelet) work(ctx context.Context) {
	for {
		name, stop := k.queue.Get()
		if stop {
			return
		}
		again, err := k.visit(ctx, name)
		switch {
		case err != nil:
			if !apierrors.IsConflict(err) {
				klog.ErrorS(err, "Playing a pod", "pod", name)
			}
			k.queue.AddRateLimited(name)
		case again > 0:
			k.queue.Forget(name)
			k.queue.AddAfter(name, again)
		default:
			k.queue.Forget(name)
		}
		k.queue.Done(name)
	}
}

// visit brings one pod to where it should be now, and says when to look again; 0 means at its next change.
func (k *kubelet) visit(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
	pod, err := k.pods.Pods(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	now := time.Now()
	if pod.DeletionTimestamp != nil {
		return k.end(ctx, pod, now)
	}
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return 0, nil
	}
	status, again := k.next(pod, now)
	if equality.Semantic.DeepEqual(status, pod.Status) {
		return again, nil
	}
	written := pod.DeepCopy()
	written.Status = status
	_, err = k.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, written, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	return again, err
}

func (k *kubelet) next(pod *corev1.Pod, now time.Time) (corev1.PodStatus, time.Duration) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	remembered := k.memories[pod.UID]
	if remembered == nil {
		remembered = &memory{}
		k.memories[pod.UID] = remembered
	}
	again := remembered.look(pod, now)
	at := place{podIP: k.addresses.of(pod.UID, pod.Status.PodIP), hostIP: k.hosts[pod.Spec.NodeName]}
	return statusOf(pod, remembered, again == 0, at, now), again
}

// end removes a deleted pod once its delay is over, as a kubelet does when the last container has stopped.
func (k *kubelet) end(ctx context.Context, pod *corev1.Pod, now time.Time) (time.Duration, error) {
	farewell := k.farewellOf(pod, now)
	if farewell.said {
		return 0, nil
	}
	if left := farewell.since.Add(stopDelay(pod)).Sub(now); left > 0 {
		return left, nil
	}
	err := k.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64),
		Preconditions:      &metav1.Preconditions{UID: &pod.UID},
	})
	// It may be gone, or another may have its name; the watch tells.
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		farewell.said = true
		return 0, nil
	}
	return 0, err
}

// farewellOf is the pod's own; the queue hands a pod to one worker at a time.
func (k *kubelet) farewellOf(pod *corev1.Pod, now time.Time) *farewell {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	found := k.leaving[pod.UID]
	if found == nil {
		found = &farewell{since: now}
		k.leaving[pod.UID] = found
	}
	return found
}

func podsOf(pods corelisters.PodLister, node string) ([]*corev1.Pod, error) {
	all, err := pods.List(everything)
	var found []*corev1.Pod
	for _, pod := range all {
		if pod.Spec.NodeName == node {
			found = append(found, pod)
		}
	}
	return found, err
}
