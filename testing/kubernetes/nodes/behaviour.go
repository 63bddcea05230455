package nodes

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Annotations that a test sets on a pod, or in the template that makes it. They are read at every change.
const (
	// BehaviourAnnotation names the behaviour, and goes before the image.
	BehaviourAnnotation = "testing.krane/behaviour"
	// DelayAnnotation is the behaviour's own time, as Go writes it: 1500ms, 5s.
	DelayAnnotation = "testing.krane/delay"
	// StopDelayAnnotation is how long a deleted pod takes to go, or "never".
	StopDelayAnnotation = "testing.krane/stop-delay"
)

// imagePrefix begins the images that name a behaviour: fake.local/crash-loop:1.
const imagePrefix = "fake.local/"

// never is longer than any test.
const never = 365 * 24 * time.Hour

// backoffMax is where the wait between two restarts stops doubling, as in a real cluster.
const backoffMax = 5 * time.Minute

type behaviour string

const (
	run            behaviour = "run"
	crashLoop      behaviour = "crash-loop"
	outOfMemory    behaviour = "out-of-memory"
	imagePullError behaviour = "image-pull-error"
	configError    behaviour = "config-error"
	slowStart      behaviour = "slow-start"
	neverReady     behaviour = "never-ready"
	evict          behaviour = "evict"
	fail           behaviour = "fail"
	succeed        behaviour = "succeed"
	// unknown is what a misspelt name becomes; the pod says so instead of running.
	unknown behaviour = "unknown"
)

var behaviours = []behaviour{
	run, crashLoop, outOfMemory, imagePullError, configError, slowStart, neverReady, evict, fail, succeed,
}

// knob is what a pod asks of us.
type knob struct {
	behaviour behaviour
	// delay is negative when the pod names none.
	delay time.Duration
	// problem says what is wrong with what the pod asks.
	problem string
}

func knobOf(pod *corev1.Pod) knob {
	name, ok := pod.Annotations[BehaviourAnnotation]
	if !ok {
		name = nameInImages(pod)
	}
	if !slices.Contains(behaviours, behaviour(name)) {
		return knob{behaviour: unknown, problem: fmt.Sprintf("no behaviour %q; there are %v", name, behaviours)}
	}
	delay := time.Duration(-1)
	if text, ok := pod.Annotations[DelayAnnotation]; ok {
		parsed, err := time.ParseDuration(text)
		if err != nil || parsed < 0 {
			return knob{behaviour: unknown, problem: fmt.Sprintf("%s: %q is no duration", DelayAnnotation, text)}
		}
		delay = parsed
	}
	return knob{behaviour: behaviour(name), delay: delay}
}

// nameInImages is the first behaviour that a container's image names.
func nameInImages(pod *corev1.Pod) string {
	for _, container := range pod.Spec.Containers {
		if name, ok := strings.CutPrefix(container.Image, imagePrefix); ok {
			if end := strings.IndexAny(name, ":@"); end >= 0 {
				name = name[:end]
			}
			return name
		}
	}
	return string(run)
}

// stopDelay is how long the pod takes to go. What cannot be read is at once: a pod that stays for ever
// because of a misspelt annotation would hang the test that made it.
func stopDelay(pod *corev1.Pod) time.Duration {
	text := pod.Annotations[StopDelayAnnotation]
	if text == "never" {
		return never
	}
	delay, err := time.ParseDuration(text)
	if err != nil {
		return 0
	}
	return delay
}

// or is the delay, or another where the pod names none.
func (k knob) or(other time.Duration) time.Duration {
	if k.delay < 0 {
		return other
	}
	return k.delay
}

// memory is what we know of a pod beyond its status, whose times have no parts of a second.
type memory struct {
	knob knob
	// since is when the pod began to behave so.
	since time.Time
	// restarts and next drive the loops of crashes: how many there were, and when the next one is.
	restarts int32
	ended    time.Time
	wait     time.Duration
}

// look brings the memory up to the moment and says how long until it changes by itself; 0 means never.
func (m *memory) look(pod *corev1.Pod, now time.Time) time.Duration {
	if asked := knobOf(pod); m.since.IsZero() || asked != m.knob {
		*m = memory{knob: asked, since: now, restarts: max(m.restarts, restartsOf(pod))}
	}
	switch m.knob.behaviour {
	case crashLoop, outOfMemory:
		return m.crash(now)
	case slowStart:
		return m.left(now, m.knob.or(5*time.Second))
	case imagePullError:
		return m.left(now, m.knob.or(time.Second))
	case evict, fail, succeed:
		return m.left(now, m.endsAfter(pod))
	default:
		return 0
	}
}

// crash counts the restarts that are due. The first end is at once; each wait is twice the one before.
func (m *memory) crash(now time.Time) time.Duration {
	if m.ended.IsZero() {
		m.ended, m.wait = now, m.knob.or(time.Second)
		m.restarts++
	}
	for !now.Before(m.ended.Add(m.wait)) {
		m.ended = m.ended.Add(m.wait)
		m.wait = min(max(2*m.wait, time.Millisecond), backoffMax)
		m.restarts++
	}
	return m.ended.Add(m.wait).Sub(now)
}

// endsAfter lets a pod that never ran run for a moment, so that a controller which replaces what ended
// does not spin.
func (m *memory) endsAfter(pod *corev1.Pod) time.Duration {
	if pod.Status.StartTime != nil && pod.Status.StartTime.Time.Before(m.since.Add(-time.Second)) {
		return m.knob.or(0)
	}
	return m.knob.or(time.Second)
}

func (m *memory) left(now time.Time, delay time.Duration) time.Duration {
	return max(m.since.Add(delay).Sub(now), 0)
}

func restartsOf(pod *corev1.Pod) int32 {
	restarts := int32(0)
	for _, status := range pod.Status.ContainerStatuses {
		restarts = max(restarts, status.RestartCount)
	}
	return restarts
}
