package nodes

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// place is where a pod runs, as its status tells it.
type place struct {
	podIP, hostIP string
}

// shown is one container's part of a status.
type shown struct {
	state          corev1.ContainerState
	last           *corev1.ContainerState
	ready, started bool
	restarts       int32
}

// statusOf is what the pod should show now: its old status with our part of it made anew. What did not
// change keeps its times, so that a pod at rest gives an equal status and costs no write.
func statusOf(pod *corev1.Pod, m *memory, due bool, at place, now time.Time) corev1.PodStatus {
	status := *pod.Status.DeepCopy()
	moment := metav1.NewTime(now.Truncate(time.Second))
	status.ObservedGeneration = pod.Generation
	status.HostIP, status.HostIPs = at.hostIP, []corev1.HostIP{{IP: at.hostIP}}
	if status.StartTime == nil {
		status.StartTime = &moment
	}
	if m.knob.behaviour == evict && due {
		return evicted(pod, status, moment)
	}
	status.PodIP, status.PodIPs = at.podIP, []corev1.PodIP{{IP: at.podIP}}
	status.Phase = phaseOf(m, due)
	status.InitContainerStatuses = initStatuses(pod, moment)
	old := map[string]corev1.ContainerStatus{}
	for _, one := range pod.Status.ContainerStatuses {
		old[one.Name] = one
	}
	ready := true
	status.ContainerStatuses = nil
	for _, container := range pod.Spec.Containers {
		one := containerStatus(container, m.show(old[container.Name], due, moment))
		status.ContainerStatuses = append(status.ContainerStatuses, one)
		ready = ready && one.Ready
	}
	conditions(pod, &status, ready, moment)
	return status
}

func phaseOf(m *memory, due bool) corev1.PodPhase {
	switch m.knob.behaviour {
	case imagePullError, configError, unknown:
		return corev1.PodPending
	case fail:
		if due {
			return corev1.PodFailed
		}
	case succeed:
		if due {
			return corev1.PodSucceeded
		}
	}
	return corev1.PodRunning
}

// show is a container's state; due says that the behaviour's delay is over.
func (m *memory) show(old corev1.ContainerStatus, due bool, now metav1.Time) shown {
	switch m.knob.behaviour {
	case crashLoop:
		return m.crashed("Error", 1, "panic: fake node: told to crash")
	case outOfMemory:
		return m.crashed("OOMKilled", 137, "")
	case imagePullError:
		if due {
			return m.waiting("ImagePullBackOff", `Back-off pulling image: ErrImagePull: fake node: not found`)
		}
		return m.waiting("ErrImagePull", "fake node: failed to pull and unpack image: not found")
	case configError:
		return m.waiting("CreateContainerConfigError", `secret "fake" not found`)
	case unknown:
		return m.waiting("CreateContainerError", "fake node: "+m.knob.problem)
	case fail, succeed:
		if due {
			code, reason := int32(0), "Completed"
			if m.knob.behaviour == fail {
				code, reason = 3, "Error"
			}
			state := terminated(old, reason, code, "fake node: told to end", now)
			return shown{state: corev1.ContainerState{Terminated: state}, restarts: m.restarts}
		}
		return m.running(old, true, now)
	case slowStart:
		return m.running(old, due, now)
	case neverReady:
		return m.running(old, false, now)
	default:
		return m.running(old, true, now)
	}
}

func (m *memory) running(old corev1.ContainerStatus, ready bool, now metav1.Time) shown {
	state := old.State.Running
	if state == nil {
		state = &corev1.ContainerStateRunning{StartedAt: now}
	}
	last := old.LastTerminationState
	return shown{
		state: corev1.ContainerState{Running: state}, last: &last,
		ready: ready, started: ready || m.knob.behaviour == neverReady, restarts: m.restarts,
	}
}

func (m *memory) waiting(reason, message string) shown {
	state := &corev1.ContainerStateWaiting{Reason: reason, Message: message}
	return shown{state: corev1.ContainerState{Waiting: state}, restarts: m.restarts}
}

// crashed is one turn of a loop of crashes: how the container ended, and that it waits to be started again.
func (m *memory) crashed(reason string, code int32, message string) shown {
	ended := metav1.NewTime(m.ended.Truncate(time.Second))
	last := &corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		Reason: reason, ExitCode: code, Message: message, StartedAt: ended, FinishedAt: ended,
		ContainerID: containerID(m.restarts - 1),
	}}
	one := m.waiting("CrashLoopBackOff", fmt.Sprintf("back-off %s restarting failed container", m.wait))
	one.last = last
	return one
}

func terminated(
	old corev1.ContainerStatus, reason string, code int32, message string, now metav1.Time,
) *corev1.ContainerStateTerminated {
	if old.State.Terminated != nil {
		return old.State.Terminated
	}
	started := now
	if old.State.Running != nil {
		started = old.State.Running.StartedAt
	}
	return &corev1.ContainerStateTerminated{
		Reason: reason, ExitCode: code, Message: message, StartedAt: started, FinishedAt: now,
		ContainerID: old.ContainerID,
	}
}

func containerStatus(container corev1.Container, one shown) corev1.ContainerStatus {
	status := corev1.ContainerStatus{
		Name: container.Name, Image: container.Image, State: one.state, Ready: one.ready,
		Started: &one.started, RestartCount: one.restarts,
	}
	if one.last != nil {
		status.LastTerminationState = *one.last
	}
	if one.state.Running != nil || one.state.Terminated != nil || one.last != nil {
		status.ImageID = container.Image + "@sha256:0000000000000000000000000000000000000000000000000000000000000000"
		status.ContainerID = containerID(one.restarts)
	}
	return status
}

func containerID(restarts int32) string {
	return fmt.Sprintf("fake://%064x", restarts)
}

// initStatuses says that all that comes before the containers went well; one that always restarts goes on.
func initStatuses(pod *corev1.Pod, now metav1.Time) []corev1.ContainerStatus {
	if len(pod.Status.InitContainerStatuses) > 0 {
		return pod.Status.InitContainerStatuses
	}
	var statuses []corev1.ContainerStatus
	for _, container := range pod.Spec.InitContainers {
		one := shown{ready: true, started: true}
		if container.RestartPolicy != nil && *container.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			one.state.Running = &corev1.ContainerStateRunning{StartedAt: now}
		} else {
			one.started = false
			one.state.Terminated = &corev1.ContainerStateTerminated{
				Reason: "Completed", StartedAt: now, FinishedAt: now, ContainerID: containerID(0),
			}
		}
		statuses = append(statuses, containerStatus(container, one))
	}
	return statuses
}

// evicted is what a kubelet leaves of a pod that its node could not bear.
func evicted(pod *corev1.Pod, status corev1.PodStatus, now metav1.Time) corev1.PodStatus {
	status.Phase, status.Reason = corev1.PodFailed, "Evicted"
	status.Message = "The node was low on resource: memory. fake node: told to evict"
	status.ContainerStatuses = nil
	for _, container := range pod.Spec.Containers {
		state := &corev1.ContainerStateTerminated{
			Reason: "ContainerStatusUnknown", ExitCode: 137,
			Message: "The container could not be located when the pod was terminated",
		}
		one := containerStatus(container, shown{state: corev1.ContainerState{Terminated: state}})
		status.ContainerStatuses = append(status.ContainerStatuses, one)
	}
	setCondition(pod, &status, corev1.DisruptionTarget, corev1.ConditionTrue, corev1.PodReasonTerminationByKubelet, now)
	conditions(pod, &status, false, now)
	return status
}

func conditions(pod *corev1.Pod, status *corev1.PodStatus, ready bool, now metav1.Time) {
	reason := ""
	allReady := corev1.ConditionTrue
	if !ready {
		allReady = corev1.ConditionFalse
		switch status.Phase {
		case corev1.PodSucceeded:
			reason = "PodCompleted"
		case corev1.PodFailed:
			reason = "PodFailed"
		default:
			reason = "ContainersNotReady"
		}
	}
	setCondition(pod, status, corev1.PodReadyToStartContainers, corev1.ConditionTrue, "", now)
	setCondition(pod, status, corev1.PodInitialized, corev1.ConditionTrue, "", now)
	setCondition(pod, status, corev1.ContainersReady, allReady, reason, now)
	setCondition(pod, status, corev1.PodReady, allReady, reason, now)
}

func setCondition(
	pod *corev1.Pod, status *corev1.PodStatus, kind corev1.PodConditionType, value corev1.ConditionStatus,
	reason string, now metav1.Time,
) {
	message := ""
	if reason == "ContainersNotReady" {
		message = "containers with unready status: " + namesOf(pod)
	}
	made := corev1.PodCondition{
		Type: kind, Status: value, Reason: reason, Message: message,
		LastTransitionTime: now, ObservedGeneration: pod.Generation,
	}
	for at, old := range status.Conditions {
		if old.Type == kind {
			if old.Status == value {
				made.LastTransitionTime = old.LastTransitionTime
			}
			made.LastProbeTime = old.LastProbeTime
			status.Conditions[at] = made
			return
		}
	}
	status.Conditions = append(status.Conditions, made)
}

func namesOf(pod *corev1.Pod) string {
	var names []string
	for _, container := range pod.Spec.Containers {
		names = append(names, container.Name)
	}
	return fmt.Sprint(names)
}
