package doristest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// reply is what the backend answers to a load, in the order of its fields.
type reply struct {
	TxnId                int64
	Label                string
	Comment              string
	TwoPhaseCommit       string
	Status               string
	ExistingJobStatus    string `json:",omitempty"`
	Message              string
	NumberTotalRows      int
	NumberLoadedRows     int
	NumberFilteredRows   int
	NumberUnselectedRows int
	LoadBytes            int
	LoadTimeMs           int
	ErrorURL             string `json:",omitempty"`
	FirstErrorMsg        string `json:",omitempty"`
}

func (r reply) write(w http.ResponseWriter) {
	body, _ := json.MarshalIndent(r, "", "    ")
	w.Header().Set("Content-Type", "text/html; charset=ISO-8859-1")
	_, _ = w.Write(append(body, '\n'))
}

var labelPattern = regexp.MustCompile(`^[\-_A-Za-z0-9:]{1,128}$`)

// serveBE is the backend.
func (s *Server) serveBE(w http.ResponseWriter, r *http.Request) {
	parts := splitPath(r.URL.Path)
	switch {
	case r.Method == http.MethodGet && r.URL.Path == "/api/_load_error_log":
		s.mu.Lock()
		text, ok := s.logs[r.URL.Query().Get("file")]
		s.mu.Unlock()
		if !ok {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = io.WriteString(w, text)
	case r.Method == http.MethodPut && len(parts) == 4 && parts[0] == "api" && parts[3] == "_stream_load":
		s.load(w, r, parts[1], parts[2])
	default:
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, "Not Found")
	}
}

// load takes one Stream Load, checking in Doris's order: user, format, framing, time-out, label, plan, body.
func (s *Server) load(w http.ResponseWriter, r *http.Request, db, name string) {
	h := r.Header
	out := reply{TxnId: -1, Label: h.Get("label"), TwoPhaseCommit: "false", Status: "Fail"}
	fail := func(format string, args ...any) {
		out.Message = fmt.Sprintf(format, args...)
		out.write(w)
	}
	fault := s.faultOf(r, name, true)
	switch {
	case fault.CutBegin:
		hangUp(w)
		return
	case fault.BE != nil:
		fault.BE.write(w)
		return
	}
	user, password, ok := r.BasicAuth()
	timeout, timeoutErr := strconv.Atoi(h.Get("timeout"))
	switch {
	case !ok:
		fail("[NOT_AUTHORIZED]no valid Basic authorization")
		return
	case h.Get("format") != "json" || h.Get("read_json_by_line") != "true":
		fail("[E-1101]unknown data format, format=%s", h.Get("format"))
		return
	case r.ContentLength < 0 && !slices.Contains(r.TransferEncoding, "chunked"):
		fail("[INVALID_ARGUMENT]content_length is empty and transfer-encoding!=chunked, please set content_length or transfer-encoding=chunked")
		return
	case h.Get("timeout") != "" && (timeoutErr != nil || timeout < 1 || timeout > 259200):
		fail("[INVALID_ARGUMENT]Invalid timeout: %s", h.Get("timeout"))
		return
	case user != User || password != Password:
		fail("[ANALYSIS_ERROR]TStatus: errCode = 2, detailMessage = Access denied for user '%s'@'127.0.0.1' (using password: YES)", user)
		return
	case !labelPattern.MatchString(out.Label):
		fail("[ANALYSIS_ERROR]TStatus: errCode = 2, detailMessage = Label format error. regex: %s, label: %s", labelPattern, out.Label)
		return
	}

	s.mu.Lock()
	d := s.databases[db]
	var t *table
	if d != nil {
		t = d.tables[name]
	}
	switch {
	case d == nil:
		s.mu.Unlock()
		fail("[NOT_FOUND]TStatus: errCode = 2, detailMessage = unknown database, database=%s", db)
		return
	case t == nil:
		s.mu.Unlock()
		fail("[NOT_FOUND]TStatus: errCode = 2, detailMessage = table not found, tableName=%s", name)
		return
	}
	for _, x := range d.txns {
		if x.label == out.Label && x.state != aborted {
			out.Status = "Label Already Exists"
			out.ExistingJobStatus = map[txnState]string{prepare: "RUNNING", committed: "FINISHED", visible: "FINISHED"}[x.state]
			message := fmt.Sprintf("[LABEL_ALREADY_EXISTS]TStatus: errCode = 2, detailMessage = Label [%s] has already been used, relate to txn [%d], status [%s].",
				out.Label, x.id, x.state)
			s.mu.Unlock()
			fail("%s", message)
			return
		}
	}
	s.next++
	x := t.begin(s.next, out.Label)
	d.txns = append(d.txns, x)
	columns, planErr := t.plan(h.Get("columns"))
	s.mu.Unlock()
	out.TxnId = x.id
	abort := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if x.state == prepare {
			x.state = aborted
		}
	}
	if planErr != nil {
		abort()
		fail("[ANALYSIS_ERROR]TStatus: errCode = 2, detailMessage = %s", planErr)
		return
	}

	// The first read asks for the body, where the client waits to be asked.
	reader := io.Reader(r.Body)
	if fault.CutBody > 0 {
		reader = io.LimitReader(reader, int64(fault.CutBody))
	}
	body, err := io.ReadAll(reader)
	s.mu.Lock()
	s.bytes += int64(len(body))
	s.mu.Unlock()
	out.LoadBytes = len(body)
	if fault.CutBody > 0 {
		hangUp(w)
		if !fault.Orphan {
			abort()
		}
		return
	}
	if fault.Hold != nil {
		<-fault.Hold
	}
	switch {
	case err != nil: // the sender is gone
		time.Sleep(after)
		abort()
		return
	case fault.Fail != "":
		abort()
		fail("%s", fault.Fail)
		return
	}
	s.finish(w, t, x, columns, body, h, out, fault)
}

// finish checks the rows, commits and answers.
func (s *Server) finish(w http.ResponseWriter, t *table, x *txn, columns []int, body []byte, h http.Header, out reply, fault Fault) {
	var rows []row
	var log strings.Builder
	for line := range bytes.Lines(body) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		if len(line) == 0 {
			continue
		}
		out.NumberTotalRows++
		parsed, err := t.parse(line, columns)
		if fault.BadRow != nil && err == nil {
			if why := fault.BadRow(line); why != "" {
				err = errors.New(why)
			}
		}
		if err != nil {
			out.NumberFilteredRows++
			if out.FirstErrorMsg == "" {
				out.FirstErrorMsg = fmt.Sprintf("%v. Src line: %s", err, line)
			}
			fmt.Fprintf(&log, "Reason: %v. src line [%s]; \n", err, line)
			continue
		}
		rows = append(rows, parsed)
	}
	ratio, _ := strconv.ParseFloat(h.Get("max_filter_ratio"), 64)
	if out.NumberFilteredRows > int(ratio*float64(out.NumberTotalRows)) {
		s.mu.Lock()
		x.state = aborted
		file := fmt.Sprintf("__shard_%d/error_log_%d", x.id%8, x.id)
		s.logs[file] = log.String()
		s.mu.Unlock()
		out.Message = "[DATA_QUALITY_ERROR]too many filtered rows"
		if out.NumberFilteredRows > 50 {
			out.Message = "[DATA_QUALITY_ERROR]Encountered unqualified data, stop processing. Please check if the source data matches the schema, and consider disabling strict mode or increasing max_filter_ratio."
		}
		if fault.NoErrorLog {
			out.FirstErrorMsg = ""
		} else {
			out.ErrorURL = "http://" + s.BE() + "/api/_load_error_log?file=" + file
		}
		out.write(w)
		return
	}
	s.mu.Lock()
	if x.state == aborted { // by its time-out
		s.mu.Unlock()
		out.Message = fmt.Sprintf("[ANALYSIS_ERROR]TStatus: errCode = 2, detailMessage = transaction [%d] is already aborted. abort reason: timeout by txn manager", x.id)
		out.write(w)
		return
	}
	if t.dropped {
		x.state = aborted
		s.mu.Unlock()
		out.Message = "[ANALYSIS_ERROR]TStatus: errCode = 2, detailMessage = unknown table, tableId=10001"
		out.write(w)
		return
	}
	out.NumberLoadedRows = len(rows)
	out.Status, out.Message = "Success", "OK"
	if fault.PublishTimeout != nil {
		x.state = committed
		out.Status, out.Message = "Publish Timeout", "[PUBLISH_TIMEOUT]TStatus: transaction commit successfully, BUT data will be visible later"
		go func() { // ends when the test closes the channel
			<-fault.PublishTimeout
			s.mu.Lock()
			defer s.mu.Unlock()
			x.publish(rows)
		}()
	} else {
		x.publish(rows)
	}
	s.mu.Unlock()
	switch {
	case fault.CutReply:
		hangUp(w)
	case fault.Reply != nil:
		fault.Reply.write(w)
	default:
		out.write(w)
	}
}
