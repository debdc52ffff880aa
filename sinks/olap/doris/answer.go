package doris

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/slotline/slotline/fault"
)

// This file says, without I/O, what the answers of frontends and backends mean. An answer of status 200 may be a
// refusal: what counts is its body, which has three shapes.

// answer is one answer to a load or to a question, in whichever shape it came.
type answer struct {
	// A backend's, to a load.
	Status         string
	Existing       string `json:"ExistingJobStatus"` // with Label Already Exists
	Label          string
	Message        string
	Total          int64 `json:"NumberTotalRows"`
	Loaded         int64 `json:"NumberLoadedRows"`
	Filtered       int64 `json:"NumberFilteredRows"`
	ErrorURL       string
	FirstErrorText string `json:"FirstErrorMsg"`

	// A frontend's: "status" and "msg", or "msg", "code" and "data".
	frontStatus string
	frontMsg    string
	frontCode   *int
	frontData   string
}

// parseAnswer reads a body. Keys are looked at as they are written: Status and status are two. A key that comes twice,
// or is of another type than usual, does not make the rest unreadable.
func parseAnswer(body []byte) (a answer, ok bool) {
	fields := map[string]json.RawMessage{}
	if json.Unmarshal(bytes.TrimSpace(body), &fields) != nil {
		return a, false
	}
	read := func(key string, into any) bool {
		raw, there := fields[key]
		return there && json.Unmarshal(raw, into) == nil
	}
	known := read("Status", &a.Status)
	read("ExistingJobStatus", &a.Existing)
	read("Label", &a.Label)
	read("Message", &a.Message)
	read("NumberTotalRows", &a.Total)
	read("NumberLoadedRows", &a.Loaded)
	read("NumberFilteredRows", &a.Filtered)
	read("ErrorURL", &a.ErrorURL)
	read("FirstErrorMsg", &a.FirstErrorText)
	known = read("status", &a.frontStatus) || known
	read("msg", &a.frontMsg)
	code := 0
	if read("code", &code) {
		a.frontCode, known = &code, true
	}
	read("data", &a.frontData)
	return a, known
}

// text is what the server said.
func (a *answer) text() string {
	switch {
	case a.Message != "" && a.FirstErrorText != "":
		return a.Message + "; " + a.FirstErrorText
	case a.Message != "":
		return a.Message
	case a.frontData != "":
		return a.frontMsg + ": " + a.frontData
	case a.frontMsg != "":
		return a.frontMsg
	}
	return a.Status + a.frontStatus
}

// outcome says what a load has become.
type outcome uint8

const (
	loaded   outcome = iota + 1 // committed; readers see it now or soon
	ask                         // another load has the label: get_load_state tells what became of it
	refused                     // rows were refused, and nothing was loaded
	repeat                      // not loaded, or not known: send the same again under the same label
	tryOther                    // this frontend, or the way to it, does not work: try the next one
	failed                      // retrying cannot help
)

func (o outcome) String() string {
	return [...]string{"", "loaded", "ask", "refused", "repeat", "try another frontend", "failed"}[o]
}

// verdict is what an answer means.
type verdict struct {
	outcome outcome
	err     *serverError // with repeat, tryOther, refused and failed
	unseen  bool         // with loaded: perhaps readers do not see it yet
}

// serverError is an answer that is a refusal.
type serverError struct {
	text  string // what the server said
	known known
}

func (e *serverError) Error() string { return e.text }

// known says what an answer means. docs/doris-errors.md is made from the tables below.
type known struct {
	says    string // part of what the server says, in lower case; or the HTTP status
	class   fault.Class
	code    string // of a fault.Error; "" for the usual one
	meaning string
	do      string
}

const (
	doNothing = "nothing if it passes; else see the servers' logs"
	doApply   = "slotline apply --dry-run"
	doUser    = "mend sinks.doris.user and sinks.doris.password"
	doProxy   = "see the proxy between slotline and Doris"
)

// texts are looked for in this order.
var texts = []known{
	// Rows.
	{"too many filtered rows", fault.Data, "", "rows that a column cannot hold: they are found and become dead letters, the others are loaded", "see the dead letters"},
	{"encountered unqualified data", fault.Data, "", "more than fifty such rows", "see the dead letters"},
	{"data_quality_error", fault.Data, "", "rows that a column cannot hold", "see the dead letters"},

	// Of the address, user or privileges.
	{"you need (at least one of)", fault.Fatal, codeDenied, "a privilege is missing", "GRANT it; slotline apply --grants prints all that are needed"},
	{"denied to", fault.Fatal, codeDenied, "a privilege is missing", "GRANT it; slotline apply --grants prints all that are needed"},
	{"denied for user", fault.Usage, codeLogin, "user or password is wrong", doUser},
	{"need auth information", fault.Usage, codeLogin, "user or password did not arrive", doProxy + ": it removes the header Authorization"},
	{"no valid basic authorization", fault.Usage, codeLogin, "user or password did not arrive", doProxy + ": it removes the header Authorization"},
	{"unauthorized", fault.Usage, codeLogin, "user or password is wrong", doUser},
	{"unknown database", fault.Usage, codeDatabase, "the database is not there", "CREATE DATABASE by hand: slotline makes tables, not databases"},
	{"database not found", fault.Usage, codeDatabase, "the database is not there", "CREATE DATABASE by hand: slotline makes tables, not databases"},

	// The table is not as the file says, or the server lacks something.
	{"table not found", fault.Fatal, "", "the table is not there", doApply},
	{"unknown table", fault.Fatal, "", "the table is not there", doApply},
	{"can not find column", fault.Fatal, "", "the table lacks a column of the file", doApply},
	{"unknown column", fault.Fatal, "", "the table lacks a column of the file", doApply},
	{"no default value", fault.Fatal, "", "a column that the file does not have must be filled, and has no default", "give it a default, or put it into the file"},
	{"need to specify the sequence column", fault.Fatal, "", "the table has another sequence column than _ver", doApply},
	{"there is no sequence column", fault.Fatal, "", "the table has no sequence column", doApply},
	{"only supported in unique tables", fault.Fatal, "", "the table was not made by slotline", doApply},
	{"label format error", fault.Fatal, "", "the server takes only labels that slotline does not write", "set label_regex_length of the frontends to 64 or more"},
	{"invalid timeout", fault.Fatal, "", "the server does not take the time-out of a load, 600 seconds", "set max_stream_load_timeout_second of the frontends to 600 or more"},
	{"unknown data format", fault.Fatal, "", "the server does not take lines of JSON", "see docs/doris-sink.md for versions"},
	{"is array-object", fault.Fatal, "", "the server does not take lines of JSON", "see docs/doris-sink.md for versions"},
	{"[e-217]", fault.Fatal, "", "the load is larger than streaming_load_max_mb of the backends", "smaller sinks.doris.batch_bytes, or raise streaming_load_max_mb"},
	{"exceed max size", fault.Fatal, "", "the load is larger than streaming_load_max_mb of the backends", "smaller sinks.doris.batch_bytes, or raise streaming_load_max_mb"},
	{"exceed the max size", fault.Fatal, "", "the load is larger than streaming_load_max_mb of the backends", "smaller sinks.doris.batch_bytes, or raise streaming_load_max_mb"},

	// Another frontend may do better.
	{"no backend available", fault.Transient, "", "the frontends know of no backend that is alive", "start the backends"},
	{"there is no 100-continue header", fault.Transient, "", "the header Expect did not arrive", doProxy + ": it removes Expect"},
	{"not_master", fault.Transient, "", "a frontend that is no longer the master", doNothing},
	{"internal error", fault.Transient, "", "a frontend failed", doNothing},

	// An outage.
	{"-235", fault.Transient, "", "a tablet has too many versions: compaction lags behind loads", "nothing if it passes; else greater sinks.doris.batch_age and batch_rows, or fewer groups"},
	{"larger than limit", fault.Transient, "", "too many transactions are under way in the database", "nothing if it passes; else fewer loads by other programs, or raise the limit that it names"},
	{"have not get fe master heartbeat", fault.Transient, "", "a backend has just started", doNothing},
	{"lock timeout", fault.Transient, "", "a frontend is busy", doNothing},
	{"already aborted", fault.Transient, "", "the load took longer than its transaction may", doNothing},
	{"timeout by txn manager", fault.Transient, "", "the load took longer than its transaction may", doNothing},
	{"blocked on schema change", fault.Transient, "", "a change of the table is under way", doNothing},
	{"receive body don't equal", fault.Transient, "", "the load was cut short on its way", doNothing},
	{"sender is gone", fault.Transient, "", "the load was cut short on its way", doNothing},
	{"memory", fault.Transient, "", "the memory limit of a backend", "if it lasts, smaller sinks.doris.batch_bytes, or more memory"},
}

// statuses are those that do not come from Doris itself, which answers 200 whatever happened: a proxy's, or the wrong
// server's.
var statuses = []known{
	{"401", fault.Usage, codeLogin, "user or password is refused", doUser},
	{"403", fault.Usage, codeLogin, "user or password is refused", doUser},
	{"404", fault.Transient, "", "what answers is no Doris frontend, or a proxy that has none", "mend sinks.doris.fe"},
	{"413", fault.Fatal, "", "a proxy refuses the size of the load", "raise its limit, or smaller sinks.doris.batch_bytes"},
	{"417", fault.Transient, "", "the header Expect was altered", doProxy},
	{"429", fault.Transient, "", "a proxy lets only so many requests through", doProxy},
	{"502", fault.Transient, "", "a proxy does not reach Doris", doProxy},
	{"503", fault.Transient, "", "a proxy does not reach Doris", doProxy},
	{"504", fault.Transient, "", "a proxy waited too long for Doris", doProxy},
}

// otherwise is what an answer means that is in neither table.
var otherwise = known{class: fault.Transient, meaning: "not known to slotline", do: doNothing}

// sent is what an answer is about.
type sent struct {
	label string
	rows  int
}

// decide says what the answer to a load means.
func decide(status int, body []byte, s sent) verdict {
	a, ok := parseAnswer(body)
	if status != http.StatusOK || !ok {
		return decideStatus(status, body)
	}
	switch a.Status {
	case "":
		v := decideText(&a)
		if v.outcome == repeat {
			v.outcome = tryOther // a frontend refused, nothing was begun
		}
		return v
	case "Success", "Publish Timeout": // the latter is committed too, and will be visible
		switch {
		case a.Label != s.label:
			return verdict{outcome: repeat, err: &serverError{fmt.Sprintf("the answer is of label %q, the load has %q", cut(a.Label), s.label), otherwise}}
		case a.Loaded != int64(s.rows) || a.Filtered != 0:
			k := known{class: fault.Fatal, meaning: "the server took fewer rows than were sent, though max_filter_ratio is 0",
				do: "see the header that was altered on its way, and the backend's log; then restart the sink, which sends the batch again"}
			return verdict{outcome: failed, err: &serverError{fmt.Sprintf("%s for %d of %d rows", a.Status, a.Loaded, s.rows), k}}
		}
		return verdict{outcome: loaded, unseen: a.Status != "Success"}
	case "Label Already Exists":
		switch a.Existing {
		case "FINISHED":
			return verdict{outcome: loaded, unseen: true}
		default: // RUNNING, PRECOMMITTED, or nothing where the server does not say
			return verdict{outcome: ask}
		}
	}
	return decideText(&a)
}

func decideText(a *answer) verdict {
	e := &serverError{cut(a.text()), otherwise}
	lower := strings.ToLower(a.text())
	for _, k := range texts {
		if strings.Contains(lower, k.says) {
			e.known = k
			break
		}
	}
	return verdict{outcome: outcomeOf(e.known.class), err: e}
}

func outcomeOf(c fault.Class) outcome {
	switch c {
	case fault.Data:
		return refused
	case fault.Fatal, fault.Usage:
		return failed
	}
	return repeat
}

// decideStatus is for what Doris itself does not answer. Whether a load was begun is not known: its label tells.
func decideStatus(status int, body []byte) verdict {
	e := &serverError{fmt.Sprintf("HTTP status %d: %s", status, cut(plain(body))), otherwise}
	if status == http.StatusOK {
		e.text = "an answer that is not Doris's: " + cut(plain(body))
		e.known.do = doProxy
	}
	for _, k := range statuses {
		if k.says == fmt.Sprint(status) {
			e.known = k
		}
	}
	if o := outcomeOf(e.known.class); o != repeat {
		return verdict{outcome: o, err: e}
	}
	return verdict{outcome: tryOther, err: e}
}

// decideState says what the answer of get_load_state means for a load whose label was taken, or whose answer was lost.
func decideState(status int, body []byte) verdict {
	a, ok := parseAnswer(body)
	if status != http.StatusOK || !ok {
		return decideStatus(status, body)
	}
	if a.frontCode == nil || *a.frontCode != 0 {
		return decideText(&a)
	}
	switch a.frontData {
	case "VISIBLE":
		return verdict{outcome: loaded}
	case "COMMITTED":
		return verdict{outcome: loaded, unseen: true}
	case "ABORTED", "UNKNOWN": // free again, or forgotten
		return verdict{outcome: repeat, err: &serverError{"an earlier load of the same label was aborted", otherwise}}
	case "PREPARE", "PRECOMMITTED":
		return verdict{outcome: ask}
	}
	return decideText(&a)
}

var tags = regexp.MustCompile(`<[^>]*>`)

// plain is a page without its markup.
func plain(body []byte) string {
	return strings.Join(strings.Fields(tags.ReplaceAllString(string(body), " ")), " ")
}

var userinfo = regexp.MustCompile(`//[^/@\s]*@`)

// cut bounds what an error repeats of a server's words, and takes out a password that a URL in them holds.
func cut(text string) string {
	const textBytesMax = 500
	text = userinfo.ReplaceAllString(strings.Join(strings.Fields(text), " "), "//")
	if len(text) > textBytesMax {
		text = strings.ToValidUTF8(text[:textBytesMax], "") + "…"
	}
	return text
}
