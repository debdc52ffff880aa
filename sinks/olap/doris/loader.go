package doris

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slotline/slotline/config"
)

const (
	dialTimeout = 3 * time.Second
	// expectTimeout is how long the body is held back while nobody has asked for it or redirected. A frontend that is
	// busy may need seconds; a proxy that swallows "100 Continue" is then sent the body all the same.
	expectTimeout = 30 * time.Second
	// loadTimeout bounds one load. A server that is merely slow answers sooner, and one that is gone is found by
	// keep-alives.
	loadTimeout = 5 * time.Minute
	// labelTimeout, in seconds, is how long the server keeps the transaction of a load whose sender has vanished: its
	// label is taken so long.
	labelTimeout = 600
	// questionTimeout bounds a question. statePoll is the pause between two about the same label, stateWait how long
	// one Apply asks: the consumer tries again, and tells people.
	questionTimeout = 30 * time.Second
	statePoll       = 500 * time.Millisecond
	stateWait       = 30 * time.Second

	redirectsMax   = 3 // follower to master, http to https, frontend to backend
	answerBytesMax = 1 << 20
)

// keepAlive finds a peer that is gone, but whose packets are lost, in some 25 seconds.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}

// loader sends loads to the first frontend that answers. It is safe for concurrent use.
type loader struct {
	dsn    config.DSN
	scheme string
	log    *slog.Logger
	client *http.Transport // not an http.Client: that one reads redirects itself, and its errors hold their passwords
	first  atomic.Uint32   // index of the frontend that answered last
}

func newLoader(c *config.DorisSink, log *slog.Logger) *loader {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAliveConfig: keepAlive}
	l := &loader{dsn: c.DSN, scheme: "http", log: log, client: &http.Transport{
		// Each load has a connection of its own, as a backend that has refused a load early is left with what was not
		// read of it.
		DialContext: dialer.DialContext, ExpectContinueTimeout: expectTimeout, DisableKeepAlives: true, DisableCompression: true,
	}}
	if c.HTTPS {
		l.scheme = "https"
	}
	return l
}

// request is what is asked of Doris: a load, or a question without a body.
type request struct {
	method string
	path   string // below the host, escaped
	query  string
	header http.Header
	body   []byte
}

// response is an answer whose body was read.
type response struct {
	status int
	body   []byte
}

// each asks the frontends in turn, the one that answered last first, until one gives an answer that is not tryOther.
func (l *loader) each(ctx context.Context, r request, decide func(response) verdict) (verdict, error) {
	a, err := l.dsn.Resolve()
	if err != nil {
		return verdict{}, err
	}
	var errs []error
	first := int(l.first.Load())
	for i := range a.Hosts {
		n := (first + i) % len(a.Hosts)
		res, err := l.send(ctx, a, a.Hosts[n], r)
		v := verdict{}
		if err == nil {
			if v = decide(res); v.outcome != tryOther {
				l.first.Store(uint32(n))
				if len(errs) > 0 {
					l.log.Warn("a Doris frontend does not answer; using the next", "frontend", a.Hosts[n], "error", errors.Join(errs...))
				}
				return v, nil
			}
			err = v.err
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return verdict{}, errors.Join(errs...)
}

// send sends a request to a frontend and, where it redirects, to the backend. No error names user or password.
func (l *loader) send(ctx context.Context, a config.Address, host string, r request) (response, error) {
	target := l.scheme + "://" + host + r.path
	if r.query != "" {
		target += "?" + r.query
	}
	for range redirectsMax + 1 {
		body := newBody(r.body)
		req, err := http.NewRequestWithContext(ctx, r.method, target, body)
		if err != nil {
			return response{}, err // of our own making: it holds no password
		}
		req.ContentLength = int64(len(r.body))
		for k, v := range r.header {
			req.Header[k] = v
		}
		req.SetBasicAuth(a.User, a.Password)
		res, err := l.client.RoundTrip(req)
		if err != nil {
			<-body.closed
			return response{}, fmt.Errorf("%s: %w", req.URL.Host, err)
		}
		text, err := io.ReadAll(io.LimitReader(res.Body, answerBytesMax))
		res.Body.Close()
		<-body.closed
		switch {
		case err != nil:
			return response{}, fmt.Errorf("%s: the answer was cut short: %w", req.URL.Host, err)
		case res.StatusCode/100 != 3:
			return response{res.StatusCode, text}, nil
		}
		if target, err = redirected(req.URL, res.Header.Get("Location")); err != nil {
			return response{}, fmt.Errorf("%s: %w", req.URL.Host, err)
		}
	}
	return response{}, fmt.Errorf("%s: more than %d redirects", host, redirectsMax)
}

// body is the bytes of a request. The transport may read it until it is closed, also when an answer came before: until
// then the bytes must not be used for other rows.
type body struct {
	bytes.Reader
	closed chan struct{}
	once   sync.Once
}

func newBody(data []byte) *body {
	b := &body{closed: make(chan struct{})}
	b.Reset(data)
	return b
}

func (b *body) Close() error {
	b.once.Do(func() { close(b.closed) })
	return nil
}

// redirected is the address that a frontend redirects to, without the user and password that stand in it.
func redirected(from *url.URL, location string) (string, error) {
	nowhere := errors.New("a redirect to nowhere") // the location may hold a password
	if scheme, rest, ok := strings.Cut(location, "://"); ok {
		end := len(rest)
		if i := strings.IndexAny(rest, "/?#"); i >= 0 {
			end = i
		}
		location = scheme + "://" + rest[strings.LastIndexByte(rest[:end], '@')+1:]
	}
	u, err := from.Parse(location)
	if err != nil || location == "" || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", nowhere
	}
	u.User = nil
	return u.String(), nil
}

// load sends rows of a table into the one of a name, under a label. The verdict is loaded, refused, or an error with its class.
func (l *loader) load(ctx context.Context, into string, t *table, label string, rows int, body []byte) (response, verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	var last response
	v, err := l.each(ctx, request{method: http.MethodPut, body: body,
		path: "/api/" + url.PathEscape(l.dsn.Database()) + "/" + url.PathEscape(into) + "/_stream_load",
		header: http.Header{
			"Expect":            {"100-continue"}, // a frontend refuses a load without it; a backend checks the label first
			"Label":             {label},
			"Format":            {"json"},
			"Read_json_by_line": {"true"},
			"Columns":           {t.columns},
			"Strict_mode":       {"true"},
			"Max_filter_ratio":  {"0"},
			"Timezone":          {"UTC"},
			"Timeout":           {strconv.Itoa(labelTimeout)},
			"Content-Type":      {"text/plain"},
		}}, func(r response) verdict {
		last = r
		return decide(r.status, r.body, sent{label, rows})
	})
	if err == nil && v.outcome == ask {
		v, err = l.waitForLabel(ctx, label)
	}
	if err == nil && v.err != nil && v.outcome != refused {
		err = v.err
	}
	return last, v, err
}

// waitForLabel asks what became of the load that has the label until it has ended.
func (l *loader) waitForLabel(ctx context.Context, label string) (verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, stateWait)
	defer cancel()
	for {
		v, err := l.state(ctx, label)
		if err != nil || v.outcome != ask {
			return v, err
		}
		select {
		case <-ctx.Done():
			return v, &serverError{"an earlier load of the same label is under way", known{class: otherwise.class,
				meaning: "its sender may have died: Doris ends it within ten minutes", do: doNothing}}
		case <-time.After(statePoll):
		}
	}
}

// waitVisible waits until readers see the load, or the statement, that has the label.
func (l *loader) waitVisible(ctx context.Context, label string) error {
	ctx, cancel := context.WithTimeout(ctx, stateWait)
	defer cancel()
	for {
		v, err := l.state(ctx, label)
		switch {
		case err != nil:
			return err
		case v.outcome == loaded && !v.unseen:
			return nil
		case v.outcome != loaded && v.outcome != ask:
			return v.err
		}
		select {
		case <-ctx.Done():
			return &serverError{"what was committed is not visible yet", known{class: otherwise.class,
				meaning: "a backend is slow to publish", do: doNothing}}
		case <-time.After(statePoll):
		}
	}
}

func (l *loader) state(ctx context.Context, label string) (verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	return l.each(ctx, request{method: http.MethodGet, path: "/api/" + url.PathEscape(l.dsn.Database()) + "/get_load_state",
		query: url.Values{"label": {label}}.Encode()}, func(r response) verdict { return decideState(r.status, r.body) })
}

// errorLog reads the rows that a load refused, as far as the server wrote them down.
func (l *loader) errorLog(ctx context.Context, address string) ([]byte, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("no address")
	}
	ctx, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	res, err := l.client.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("HTTP status %d", res.StatusCode)
	}
	return io.ReadAll(io.LimitReader(res.Body, errorLogBytesMax))
}
