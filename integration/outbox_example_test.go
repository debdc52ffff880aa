package integration

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/outbox"
)

// examples/flights is run as its README says, with its own slotline.yaml, and each answer of 200 is an event.
func TestExampleServiceEmits(t *testing.T) {
	m := harness.MySQL(t)
	name := harness.Name(t)
	m.NewDatabase(t, name)
	dir := t.TempDir()
	binary := filepath.Join(dir, "flights")
	if out, err := exec.Command("go", "build", "-o", binary, "github.com/slotline/slotline/examples/flights").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	yaml, err := os.ReadFile("../examples/flights/slotline.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := config.Parse("slotline.yaml", yaml); err != nil {
		t.Fatal(err)
	}
	mine := strings.Replace(string(yaml), "mysql://app:${OUTBOX_PASSWORD}@127.0.0.1:3306/flights", m.URL(name), 1)
	file := filepath.Join(dir, "slotline.yaml")
	if err := os.WriteFile(file, []byte(mine), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	db, err := mysqldb.Open(cfg.Outbox.DSN, mysqldb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	changes, err := outbox.Plan(t.Context(), db, cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range changes {
		if err := c.Apply(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	free.Close()
	dsn, _, _ := strings.Cut(m.DSN(name), "?") // as the README writes it: without parameters
	service := harness.Command{Path: binary, Args: []string{"-c", file, "-listen", addr},
		Env: []string{"FLIGHTS_DSN=" + dsn}}.Start(t)

	call := func(method, path, body string, want int) string {
		t.Helper()
		req, err := http.NewRequest(method, "http://"+addr+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		var res *http.Response
		for deadline := harness.Deadline(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			if res, err = http.DefaultClient.Do(req.Clone(t.Context())); err == nil {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%v\n%s", err, service.Stderr())
			}
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		if res.StatusCode != want {
			t.Errorf("%s %s: %d %s, wanted %d", method, path, res.StatusCode, text, want)
		}
		return string(text)
	}
	call("PUT", "/airports/JFK", `{"name":"John F. Kennedy"}`, 200)
	if text := call("PUT", "/airports/JFKX", `{"name":"none"}`, 422); !strings.Contains(text, "column code") || strings.Contains(text, "1406") {
		t.Errorf("the answer does not name the column: %s", text)
	}
	dep := time.Now().UTC().Format(time.RFC3339)
	call("POST", "/flights", fmt.Sprintf(`{"carrier":"UA","flight_id":1545,"sched_dep":%q,"origin":"JFK"}`, dep), 200)
	call("POST", "/flights", fmt.Sprintf(`{"carrier":"UA","flight_id":1545,"sched_dep":%q,"origin":"JFK"}`, dep), 409)
	if text := call("POST", "/flights", fmt.Sprintf(`{"carrier":"UA","flight_id":1546,"sched_dep":%q,"origin":"JFK"}`, "1815-06-18T11:35:00Z"), 422); !strings.Contains(text, "sched_dep") {
		t.Errorf("the answer does not name the column: %s", text)
	}
	call("POST", "/flights/UA/1545/arrive", "", 409)
	call("POST", "/flights/UA/1545/depart", "", 200)
	call("POST", "/flights/UA/1545/arrive", `{"arr_delay":11}`, 200)
	call("GET", "/flights/UA/1", "", 404)
	if text := call("GET", "/flights/UA/1545", "", 200); !strings.Contains(text, `"arr_delay":11`) {
		t.Error(text)
	}
	call("DELETE", "/flights/UA/1545", "", 200)
	service.Stop(t, 10*time.Second)

	var bodies [][]byte
	for lane := range cfg.Outbox.Lanes {
		rows, err := db.Query("SELECT payload FROM " + outbox.LaneTable(lane) + " WHERE tbl = 'flights' ORDER BY id")
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			var body []byte
			if err := rows.Scan(&body); err != nil {
				t.Fatal(err)
			}
			bodies = append(bodies, body)
		}
	}
	want := []string{`"status":"scheduled"`, `"status":"departed"`, `"status":"arrived"`, `"flight_id":1545`}
	if len(bodies) != len(want) {
		t.Fatalf("%d events: %s", len(bodies), bodies)
	}
	for i, body := range bodies {
		if !bytes.Contains(body, []byte(want[i])) {
			t.Errorf("event %d is %s", i, body)
		}
	}
}
