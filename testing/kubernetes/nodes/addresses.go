package nodes

import (
	"encoding/binary"
	"net/netip"

	"k8s.io/apimachinery/pkg/types"
)

// Pods live in 10.128.0.0/9, far from our nodes' own addresses and from those of services.
const (
	firstAddress = 10<<24 | 128<<16 | 1
	addressCount = 1<<23 - 2
)

// addresses gives every pod one that no other living pod has. The zero value is ready.
type addresses struct {
	next  uint32
	byPod map[types.UID]string
	taken map[string]types.UID
}

// of is the pod's address: the one it shows, the one it was given, or a new one.
func (a *addresses) of(pod types.UID, shown string) string {
	if shown != "" {
		a.take(pod, shown)
		return shown
	}
	if given, ok := a.byPod[pod]; ok {
		return given
	}
	for {
		var bytes [4]byte
		binary.BigEndian.PutUint32(bytes[:], firstAddress+a.next)
		a.next = (a.next + 1) % addressCount
		address := netip.AddrFrom4(bytes).String()
		if _, ok := a.taken[address]; !ok {
			a.take(pod, address)
			return address
		}
	}
}

func (a *addresses) take(pod types.UID, address string) {
	if address == "" {
		return
	}
	if a.byPod == nil {
		a.byPod, a.taken = map[types.UID]string{}, map[string]types.UID{}
	}
	a.byPod[pod], a.taken[address] = address, pod
}

func (a *addresses) release(pod types.UID) {
	if address, ok := a.byPod[pod]; ok {
		delete(a.byPod, pod)
		if a.taken[address] == pod {
			delete(a.taken, address)
		}
	}
}
