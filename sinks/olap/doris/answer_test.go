package doris

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/slotline/slotline/fault"
)

// The document is what a person reads at night; it must say what the code does.
func TestErrorDocument(t *testing.T) {
	var b strings.Builder
	b.WriteString(`# Doris's errors

What slotline does with each answer of Apache Doris. Doris numbers few of them, so that they are known by what they say:
the first line below that the answer holds counts, in the order of the code. This file is written from the code
(` + "`go test ./sinks/olap/doris -update`" + `) and a test compares them.

## Answers to a load
| answer | meaning |
|---|---|
| Success | loaded, if the label is the load's and every row was taken; of another label: sent again; of fewer rows: fatal |
| Publish Timeout | loaded: committed, and visible to readers soon |
| Label Already Exists, FINISHED | loaded, by an earlier try whose answer was lost |
| Label Already Exists, RUNNING or PRECOMMITTED, or without a state | the label's state is asked for until it has one of those below |
| Fail | as its message says, below |
| not JSON, or a status other than 200 | a proxy's: the next frontend is tried; whether the load was begun, its label tells |
| 307 | followed, with the sink's own user and password; the load is sent to where it leads |

A state (get_load_state) of VISIBLE or COMMITTED is loaded; ABORTED and UNKNOWN free the label, and the load is sent again
under it; PREPARE and PRECOMMITTED are waited for. A label that Doris has forgotten loads its rows again, and versions decide.

An error of the way to the server (refused, reset, timed out, closed) is transient.

`)
	for _, s := range []struct {
		class       fault.Class
		title, text string
	}{
		{fault.Data, "Data", "Single rows are at fault. They are found (by the server's error log, or by halving the load) and become dead letters; the others are loaded, and of their entities the next lower versions. A table that is not as the file says any more is looked for first: then no row is at fault."},
		{fault.Transient, "Transient", "An outage. The load is sent again, under the same label, for ever, with backoff, and `slotline status` shows it. No event goes to the dead-letter topic."},
		{fault.Fatal, "Fatal", "Retrying cannot help, and skipping would lose rows. The group's partitions halt and say so; the others go on."},
		{fault.Usage, "Usage", "Of the address, user or password. At the start the command ends with status 2; later, partitions halt."},
	} {
		fmt.Fprintf(&b, "## %s\n%s\n\n| says, or HTTP status | meaning | do |\n|---|---|---|\n", s.title, s.text)
		for _, k := range slices.Concat(texts, statuses) {
			if k.class == s.class {
				fmt.Fprintf(&b, "| `%s` | %s | %s |\n", k.says, k.meaning, k.do)
			}
		}
		b.WriteString("\n")
	}
	b.WriteString("## Unknown\nAll other answers. Transient; of a statement of apply, a failure of it.\n")
	golden(t, "../../../docs/doris-errors.md", b.String())
}

func TestErrorTableIsWhole(t *testing.T) {
	for i, k := range texts {
		if k.class == fault.Unknown || k.meaning == "" || k.do == "" || k.says != strings.ToLower(k.says) {
			t.Errorf("%+v", k)
		}
		for _, before := range texts[:i] {
			if strings.Contains(k.says, before.says) {
				t.Errorf("%q is never reached: %q comes first", k.says, before.says)
			}
		}
	}
}

// result is a backend's answer to a load of three rows under the label L.
func result(status, existing, message string, total, loaded, filtered int) string {
	more := ""
	if existing != "" {
		more = fmt.Sprintf(`"ExistingJobStatus": %q,`, existing)
	}
	return fmt.Sprintf("{\n    \"TxnId\": 4711,\n    \"Label\": \"L\",\n    \"Comment\": \"\",\n    \"TwoPhaseCommit\": \"false\",\n    \"Status\": %q, %s \"Message\": %q, "+
		"\"NumberTotalRows\": %d, \"NumberLoadedRows\": %d, \"NumberFilteredRows\": %d, \"NumberUnselectedRows\": 0 }\n", status, more, message, total, loaded, filtered)
}

// Every answer of the reference, and what becomes of the load.
func TestDecide(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		body   string
		want   outcome
		class  fault.Class
	}{
		{"success", 200, result("Success", "", "OK", 3, 3, 0), loaded, 0},
		{"success with a key twice, a bool and keys of later releases", 200, `{"cluster":"","Label":"L","Comment":"a","Status":"Success","Message":"OK","NumberTotalRows":3,"NumberLoadedRows":3,"NumberFilteredRows":0,"Comment":"b","GroupCommit":false,"TxnId":1}`, loaded, 0},
		{"publish timeout", 200, result("Publish Timeout", "", "[PUBLISH_TIMEOUT]TStatus: transaction commit successfully, BUT data will be visible later", 3, 3, 0), loaded, 0},
		{"success of another label", 200, strings.Replace(result("Success", "", "OK", 3, 3, 0), `"L"`, `"M"`, 1), repeat, fault.Transient},
		{"success of fewer rows", 200, result("Success", "", "OK", 2, 2, 0), failed, fault.Fatal},
		{"success with a row filtered", 200, result("Success", "", "OK", 3, 2, 1), failed, fault.Fatal},
		{"label finished", 200, result("Label Already Exists", "FINISHED", "[LABEL_ALREADY_EXISTS]…", 0, 0, 0), loaded, 0},
		{"label running", 200, result("Label Already Exists", "RUNNING", "[LABEL_ALREADY_EXISTS]…", 0, 0, 0), ask, 0},
		{"label precommitted", 200, result("Label Already Exists", "PRECOMMITTED", "[LABEL_ALREADY_EXISTS]…", 0, 0, 0), ask, 0},
		{"label in cloud mode", 200, result("Label Already Exists", "", "[LABEL_ALREADY_EXISTS]…", 0, 0, 0), ask, 0},
		{"rows", 200, result("Fail", "", "[DATA_QUALITY_ERROR]too many filtered rows", 3, 0, 1), refused, fault.Data},
		{"many rows", 200, result("Fail", "", "[DATA_QUALITY_ERROR]Encountered unqualified data, stop processing. Please check if the source data matches the schema, and consider disabling strict mode or increasing max_filter_ratio.", 99, 0, 51), refused, fault.Data},
		{"rows, old release", 200, result("Fail", "", "too many filtered rows", 3, 0, 1), refused, fault.Data},
		{"too many versions", 200, result("Fail", "", "[INTERNAL_ERROR]tablet error: [E-235]failed to init rowset builder. version count: 2001, exceed limit: 2000, tablet: 10086.", 0, 0, 0), repeat, fault.Transient},
		{"too many versions, old release", 200, result("Fail", "", "tablet writer write failed, err=-235", 0, 0, 0), repeat, fault.Transient},
		{"transactions", 200, result("Fail", "", "[ANALYSIS_ERROR]TStatus: errCode = 2, detailMessage = current running txns on db 10003 is 10000, larger than limit 10000", 0, 0, 0), repeat, fault.Transient},
		{"not master", 200, result("Fail", "", "[NOT_MASTER]TStatus: FE is not master", 0, 0, 0), repeat, fault.Transient},
		{"no heartbeat", 200, result("Fail", "", "[E-240]Have not get FE Master heartbeat yet", 0, 0, 0), repeat, fault.Transient},
		{"txn timeout", 200, result("Fail", "", "[ANALYSIS_ERROR]TStatus: errCode = 2, detailMessage = transaction [4713] is already aborted. abort reason: timeout by txn manager", 3, 0, 0), repeat, fault.Transient},
		{"oldest txn timeout", 200, result("Fail", "", "timeout by txn manager", 3, 0, 0), repeat, fault.Transient},
		{"lock", 200, result("Fail", "", "get tableList write lock timeout, tableList=(id=1)", 0, 0, 0), repeat, fault.Transient},
		{"other backend", 200, result("Fail", "", "PStatus: (10.0.0.6)[INTERNAL_ERROR]something new", 0, 0, 0), repeat, fault.Transient},
		{"short body", 200, result("Fail", "", "[NETWORK_ERROR]receive body don't equal with body bytes", 0, 0, 0), repeat, fault.Transient},
		{"unknown database", 200, result("Fail", "", "[NOT_FOUND]TStatus: errCode = 2, detailMessage = unknown database, database=x", 0, 0, 0), failed, fault.Usage},
		{"unknown table", 200, result("Fail", "", "[NOT_FOUND]TStatus: errCode = 2, detailMessage = table not found, tableName=x", 0, 0, 0), failed, fault.Fatal},
		{"unknown table, old release", 200, result("Fail", "", "unknown table, tableName=x", 0, 0, 0), failed, fault.Fatal},
		{"unknown column", 200, result("Fail", "", "[ANALYSIS_ERROR]TStatus: errCode = 2, detailMessage = can not find column x in table t", 0, 0, 0), failed, fault.Fatal},
		{"sequence", 200, result("Fail", "", "Table t has sequence column, need to specify the sequence column", 0, 0, 0), failed, fault.Fatal},
		{"no sequence", 200, result("Fail", "", "There is no sequence column in the table t", 0, 0, 0), failed, fault.Fatal},
		{"label format", 200, result("Fail", "", "[ANALYSIS_ERROR]TStatus: errCode = 2, detailMessage = Label format error. regex: ^x$, label: y", 0, 0, 0), failed, fault.Fatal},
		{"size", 200, result("Fail", "", "[E-217]body size 1 exceed BE's conf `streaming_load_max_mb` 0. increase it if you are sure this load is reasonable", 0, 0, 0), failed, fault.Fatal},
		{"no user", 200, result("Fail", "", "[NOT_AUTHORIZED]no valid Basic authorization", 0, 0, 0), failed, fault.Usage},
		{"password", 200, result("Fail", "", "[ANALYSIS_ERROR]TStatus: errCode = 2, detailMessage = Access denied for user 'u'@'10.0.0.1' (using password: YES)", 0, 0, 0), failed, fault.Usage},
		{"schema change", 200, result("Fail", "", "insert table 10 is blocked on schema change", 0, 0, 0), repeat, fault.Transient},
		{"a status that is not known", 200, result("Odd", "", "what", 3, 3, 0), repeat, fault.Transient},

		{"frontend, shape A", 200, `{"status":"FAILED","msg":"There is no 100-continue header"}`, tryOther, fault.Transient},
		{"no backend", 200, `{"status":"FAILED","msg":"errCode = 2, detailMessage = No backend available for load, please check the status of your backends., policy: x"}`, tryOther, fault.Transient},
		{"no privilege", 200, `{"status":"FAILED","msg":"errCode = 2, detailMessage = Access denied; you need (at least one of) the (LOAD) privilege(s) for this operation"}`, failed, fault.Fatal},
		{"frontend, shape B", 200, `{"msg":"Unauthorized","code":401,"data":"Access denied for user 'u@10.0.0.1' (using password: YES)","count":0}`, failed, fault.Usage},
		{"no authorization", 200, `{"code":401,"msg":"Unauthorized","data":"Need auth information.","count":0}`, failed, fault.Usage},
		{"frontend failed", 200, `{"msg":"Internal Error","code":500,"data":"java.lang.NullPointerException","count":0}`, tryOther, fault.Transient},

		{"proxy", 503, "<html><head><title>503 Service Temporarily Unavailable</title></head></html>", tryOther, fault.Transient},
		{"proxy's JSON", 503, `{"Status":"Success","Label":"L","NumberLoadedRows":3}`, tryOther, fault.Transient},
		{"proxy's size", 413, "<h1>413</h1>", failed, fault.Fatal},
		{"proxy's user", 401, "", failed, fault.Usage},
		{"page with 200", 200, "<html>Welcome to nginx!</html>", tryOther, fault.Transient},
		{"empty", 200, "", tryOther, fault.Transient},
		{"cut short", 200, `{"Status": "Succ`, tryOther, fault.Transient},
		{"other JSON", 200, `{"hello": 1}`, tryOther, fault.Transient},
		{"a list", 200, `[1]`, tryOther, fault.Transient},
		{"not found", 404, "Not Found", tryOther, fault.Transient},
	} {
		v := decide(c.status, []byte(c.body), sent{"L", 3})
		if v.outcome != c.want {
			t.Errorf("%s: %s, wanted %s", c.name, v.outcome, c.want)
		}
		if c.class != 0 && (v.err == nil || v.err.known.class != c.class || Classify(v.err) != c.class) {
			t.Errorf("%s: %+v, wanted class %s", c.name, v.err, c.class)
		}
		if (v.err == nil) != (c.class == 0) {
			t.Errorf("%s: error %v", c.name, v.err)
		}
	}
}

func TestDecideState(t *testing.T) {
	for state, want := range map[string]outcome{"VISIBLE": loaded, "COMMITTED": loaded, "ABORTED": repeat, "UNKNOWN": repeat, "PREPARE": ask, "PRECOMMITTED": ask, "NEW ONE": repeat} {
		if v := decideState(200, []byte(fmt.Sprintf(`{"msg":"success","code":0,"data":%q,"count":0}`, state))); v.outcome != want {
			t.Errorf("%s: %s, wanted %s", state, v.outcome, want)
		}
	}
	for body, want := range map[string]outcome{
		`{"msg":"Error","code":1,"data":"errCode = 2, detailMessage = Unknown database 'x'","count":0}`: failed,
		`{"msg":"Unauthorized","code":401,"data":"Need auth information.","count":0}`:                   failed,
		`{"msg":"Internal Error","code":500,"data":"","count":0}`:                                       repeat,
		`<html>`: tryOther,
	} {
		if v := decideState(200, []byte(body)); v.outcome != want {
			t.Errorf("%s: %s, wanted %s", body, v.outcome, want)
		}
	}
}

// No truncated answer is taken for a load that was committed.
func TestTruncatedAnswers(t *testing.T) {
	body := strings.TrimSpace(result("Success", "", "OK", 3, 3, 0))
	for n := range len(body) {
		if v := decide(200, []byte(body[:n]), sent{"L", 3}); v.outcome == loaded {
			t.Errorf("%q counts as loaded", body[:n])
		}
	}
}

func FuzzDecide(f *testing.F) {
	f.Add(200, result("Success", "", "OK", 3, 3, 0))
	f.Add(200, `{"status":"FAILED","msg":"x"}`)
	f.Add(503, "<html>")
	f.Fuzz(func(t *testing.T, status int, body string) {
		v := decide(status, []byte(body), sent{"L", 3})
		if v.outcome == 0 || v.outcome == loaded && status != 200 {
			t.Errorf("%d %q: %s", status, body, v.outcome)
		}
		if v.outcome != loaded && v.outcome != ask && (v.err == nil || len(v.err.Error()) > 600) {
			t.Errorf("%d %q: %v", status, body, v.err)
		}
		decideState(status, []byte(body))
	})
}

// Errors of statements: most have one number, so that the text decides.
func TestQueryErrors(t *testing.T) {
	for _, c := range []struct {
		number uint16
		text   string
		class  fault.Class
		code   string
	}{
		{1045, "Access denied for user 'u@1.2.3.4' (using password: YES)", fault.Usage, codeLogin},
		{1049, "Unknown database 'x'", fault.Usage, codeDatabase},
		{1105, "errCode = 2, detailMessage = Unknown database 'x'", fault.Usage, codeDatabase},
		{1105, "errCode = 2, detailMessage = Access denied; you need (at least one of) the (CREATE) privilege(s) for this operation", fault.Fatal, codeDenied},
		{1227, "Access denied", fault.Fatal, codeDenied},
		{1105, "errCode = 2, detailMessage = something new", fault.Fatal, codeDDL},
		{1105, "errCode = 2, detailMessage = get table read lock timeout, database=x", fault.Transient, codeDDL},
	} {
		err := wrap(fmt.Errorf("fe1: %w", &mysql.MySQLError{Number: c.number, Message: c.text}), codeDDL, "doris (fe1/x)")
		if fault.ClassOf(err) != c.class || fault.CodeOf(err) != c.code || !strings.Contains(err.Error(), "doris (fe1/x): "+c.text) {
			t.Errorf("%d %s: %v (%s), wanted %s %s", c.number, c.text, err, fault.ClassOf(err), c.class, c.code)
		}
	}
	if wrap(nil, codeDDL, "x") != nil {
		t.Error("nil became an error")
	}
	if e := wrap(errors.New("odd\n  text "+strings.Repeat("ü", 1000)), codeDDL, "x"); len(e.Error()) > 700 {
		t.Errorf("an error of %d bytes", len(e.Error()))
	}
}

// The rows that an error log names, in the form of each release; and nothing of what it does not name exactly.
func TestMatchErrorLog(t *testing.T) {
	b := &block{}
	for i, line := range []string{`{"a":"x]y"}`, `{"a":"z"}`, `{"a":"src line [q]"}`, `{"a":"w"}`} {
		b.data = append(append(b.data, line...), '\n')
		b.ends, b.messages = append(b.ends, len(b.data)), append(b.messages, int32(i))
	}
	log := "Reason: column(a) value is incorrect while strict mode is true, src value is x. src line [{\"a\":\"x]y\"}]; \n" +
		"Reason: no partition for this tuple. src line [{\"a\":\"z\"}]; \n" +
		"Reason: no partition for this tuple. src line [{\"a\":\"z\"}]; \n" +
		"Reason: cut. src line [{\"a\":\"w]; \n" +
		"Reason: another table's. src line [{\"b\":1}]; \nnonsense\n"
	bad := matchErrorLog([]byte(log), b)
	slices.SortFunc(bad, func(x, y badRow) int { return cmp.Compare(x.row, y.row) })
	if len(bad) != 2 || bad[0].row != 0 || bad[1].row != 1 || bad[1].reason != "no partition for this tuple" {
		t.Errorf("%+v", bad)
	}
	if bad := matchErrorLog([]byte("Reason: r. src line [{\"a\":\"src line [q]\"}]; \n"), b); len(bad) != 1 || bad[0].row != 2 {
		t.Errorf("%+v", bad)
	}
}
