package doristest

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
)

// serveFE is the frontend. All that it says of a request has status 200.
func (s *Server) serveFE(w http.ResponseWriter, r *http.Request) {
	parts := splitPath(r.URL.Path)
	switch {
	case r.Method == http.MethodPut && len(parts) == 4 && parts[0] == "api" && parts[3] == "_stream_load":
		s.redirect(w, r, parts[2])
	case r.Method == http.MethodGet && len(parts) == 3 && parts[0] == "api" && parts[2] == "get_load_state":
		s.loadState(w, r, parts[1])
	default:
		rest(w, "Internal Error", 500, "Request method or path is not supported")
	}
}

func (s *Server) redirect(w http.ResponseWriter, r *http.Request, table string) {
	fault := s.faultOf(r, table, false)
	switch {
	case fault.CutFE:
		hangUp(w)
		return
	case fault.FE != nil:
		s.faultOf(r, table, true)
		fault.FE.write(w)
		return
	}
	user, password, ok := r.BasicAuth()
	switch {
	case !ok:
		rest(w, "Unauthorized", 401, "Need auth information.")
		return
	case user != User || password != Password:
		rest(w, "Unauthorized", 401, fmt.Sprintf("Access denied for user '%s@127.0.0.1' (using password: YES)", user))
		return
	case r.Header.Get("Expect") == "":
		plainFailed(w, "There is no 100-continue header")
		return
	}
	host := s.BE()
	if fault.RedirectTo != "" {
		host = fault.RedirectTo
	}
	at := url.URL{Scheme: "http", User: url.UserPassword(user, password), Host: host, Path: r.URL.Path, RawQuery: r.URL.RawQuery, ForceQuery: true}
	w.Header().Set("Content-Type", "text/html;charset=utf-8")
	w.Header().Set("Location", at.String())
	w.Header().Set("Connection", "close")
	w.WriteHeader(http.StatusTemporaryRedirect)
}

func (s *Server) loadState(w http.ResponseWriter, r *http.Request, db string) {
	if user, password, ok := r.BasicAuth(); !ok || user != User || password != Password {
		rest(w, "Unauthorized", 401, "Need auth information.")
		return
	}
	label := r.URL.Query().Get("label")
	s.mu.Lock()
	known, state := s.databases[db] != nil, s.stateLocked(db, label)
	s.mu.Unlock()
	switch {
	case label == "":
		rest(w, "Bad Request", 403, "No label selected")
	case !known:
		rest(w, "Error", 1, fmt.Sprintf("errCode = 2, detailMessage = Unknown database '%s'", db))
	default:
		rest(w, "success", 0, state)
	}
}

// rest and plainFailed are the frontend's two shapes.
func rest(w http.ResponseWriter, msg string, code int, data string) {
	writeJSON(w, map[string]any{"msg": msg, "code": code, "data": data, "count": 0})
}

func plainFailed(w http.ResponseWriter, msg string) {
	writeJSON(w, map[string]any{"status": "FAILED", "msg": msg})
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func (a *Answer) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/html")
	w.WriteHeader(a.Status)
	_, _ = w.Write([]byte(a.Body))
}

// hangUp resets the connection.
func hangUp(w http.ResponseWriter) {
	c, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
