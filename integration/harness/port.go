package harness

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// Ports are taken below the range from which systems choose the local port of an outgoing connection (32768 on Linux).
// A port of that range could be taken by any client while its server is down for a restart; worse, a client that keeps
// dialling such a port on loopback sooner or later connects to itself.
const (
	portMin = 20000
	portMax = 32000
)

var ports struct {
	sync.Mutex
	taken map[int]bool
}

// freePort returns a port that nothing listens on and that this process gives out once.
func freePort() (int, error) {
	ports.Lock()
	defer ports.Unlock()
	for range 200 {
		port := portMin + rand.IntN(portMax-portMin)
		if ports.taken[port] {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		l.Close()
		if ports.taken == nil {
			ports.taken = make(map[int]bool)
		}
		ports.taken[port] = true
		return port, nil
	}
	return 0, fmt.Errorf("no free port found between %d and %d in 200 tries", portMin, portMax)
}
