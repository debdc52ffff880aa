package harness

import (
	"io"
	"net"
	"sync"
	"testing"
)

// Proxy is an address that stands for a server, as a name of the service does: a test may point it at another one.
type Proxy struct {
	listener net.Listener
	mu       sync.Mutex
	backend  string // "" where nobody answers
	open     map[net.Conn]bool
}

// NewProxy listens until the test ends.
func NewProxy(t testing.TB, backend string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listener: listener, backend: backend, open: map[net.Conn]bool{}}
	var passing sync.WaitGroup
	passing.Go(func() { // owned by the listener: it ends when that is closed
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			passing.Go(func() { p.pass(client) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		p.Point("")
		passing.Wait()
	})
	return p
}

// Addr is host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Point sends new connections to another server, or with "" to none, and cuts those that are open.
func (p *Proxy) Point(backend string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.backend = backend
	for c := range p.open {
		c.Close()
	}
}

// pass ends when either side closes, or with Point.
func (p *Proxy) pass(client net.Conn) {
	defer client.Close()
	p.mu.Lock()
	backend := p.backend
	p.mu.Unlock()
	if backend == "" {
		return
	}
	server, err := net.Dial("tcp", backend)
	if err != nil {
		return
	}
	defer server.Close()
	p.mu.Lock()
	if p.backend != backend { // it was pointed elsewhere meanwhile
		p.mu.Unlock()
		return
	}
	p.open[client], p.open[server] = true, true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.open, client)
		delete(p.open, server)
	}()
	back := make(chan struct{})
	go func() { // ends with either side
		defer close(back)
		io.Copy(client, server)
		client.Close()
		server.Close()
	}()
	io.Copy(server, client)
	client.Close()
	server.Close()
	<-back
}
