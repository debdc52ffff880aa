package line

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/slotline/slotline/fault"
)

// health is what /healthz and /readyz answer from. A process is alive as long as it serves; it is ready once each part
// has started, until it drains. A halted partition does not make it unready: the others go on, and a restart would not
// mend it.
type health struct {
	mu      sync.Mutex
	waiting map[string]string // part → why it is not ready
}

func newHealth(parts ...string) *health {
	h := &health{waiting: map[string]string{}}
	for _, p := range parts {
		h.waiting[p] = "starting"
	}
	return h
}

// ready says whether it is the last part that had to begin.
func (h *health) ready(part string) (all bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, last := h.waiting[part]
	delete(h.waiting, part)
	return last && len(h.waiting) == 0
}

func (h *health) drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting["process"] = "draining"
}

func (h *health) serveReady(w http.ResponseWriter, _ *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.waiting) > 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
	} else {
		fmt.Fprintln(w, "ready")
	}
	for part, why := range h.waiting {
		fmt.Fprintf(w, "%s: %s\n", part, why)
	}
}

// serve answers /metrics, /healthz and /readyz on http.listen until stop is called.
func (l *Line) serve(ctx context.Context, reg *prometheus.Registry, h *health) (stop func(), err error) {
	listen := l.Config.HTTP.Listen
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return nil, &fault.Error{Code: "SL9001", Class: fault.Usage, Err: err,
			What: fmt.Sprintf("http.listen %s: %v", listen, err),
			Do:   "set http.listen to a free address; two processes on one machine need two ports, and port 0 takes any free one"}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", h.serveReady)
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := srv.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			l.Log.Error("http server ended", "listen", listen, "error", err)
		}
	}()
	l.Log.Info("serving /metrics, /healthz and /readyz", "listen", listener.Addr().String())
	return func() {
		end, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = srv.Shutdown(end)
		<-done
	}, nil
}
