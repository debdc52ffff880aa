package integration

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/integration/harness"
)

// No log line, error, table or JSON of a run holds a secret: not where all goes well, and not where servers refuse.
func TestSecretsAreNeverPrinted(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t/p@ss:w%rd?#&+"
	my := harness.MySQL(t)
	w := newLineAt(t, sharedServers(t), harness.Name(t), "")
	root := my.Open(t, "")
	user := w.name + "u"
	for _, q := range []string{
		"CREATE USER " + user + "@'%' IDENTIFIED BY '" + secret + "'",
		"GRANT ALL ON *.* TO " + user + "@'%'",
	} {
		if _, err := root.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _, _ = root.Exec("DROP USER " + user + "@'%'") })
	text := regexp.MustCompile(`mysql://[^@"]*@`).ReplaceAllString(w.text(t), "mysql://"+user+":$${LINE_PASSWORD}@")
	if !strings.Contains(text, "${LINE_PASSWORD}") {
		t.Fatalf("the configuration names no password:\n%s", text)
	}

	printed := map[string]string{}
	do := func(name, file, password string, args ...string) harness.Result {
		r := harness.Command{Args: append([]string{"-c", file}, args...), Env: []string{"LINE_PASSWORD=" + password}, Name: name}.Run(t, time.Minute)
		printed[name] = r.Stdout + r.Stderr
		return r
	}
	good := w.write(t, text)
	refused := w.write(t, strings.ReplaceAll(text, user+":", w.name+"nobody:"))
	away := w.write(t, strings.ReplaceAll(text, "@"+my.Addr, "@127.0.0.1:1"))
	noDatabase := w.write(t, strings.ReplaceAll(text, w.name+"_s1", w.name+"_gone"))
	typo := w.write(t, strings.Replace(text, "${LINE_PASSWORD}", secret, 1)) // a literal secret with URL characters in it

	// The broker takes no login: it refuses this one.
	login := strings.Replace(text, "kafka: { ", "kafka: { sasl: { scram-sha-512: { user: "+user+", password: \"%s\" } }, ", 1)
	inClear := strings.Replace(text, "kafka: { ", "kafka: { sasl: { plain: { user: "+user+", password: \""+secret+"\" } }, ", 1) // refused: no TLS
	for name, text := range map[string]string{"login": strings.Replace(login, "%s", "${LINE_PASSWORD}", 1), "written out": strings.Replace(login, "%s", secret, 1), "in clear": inClear} {
		if r := do("kafka "+name, w.write(t, text), secret, "apply", "--log-format", "json"); r.Code == 0 || !strings.Contains(r.Stderr, "kafka.sasl") {
			t.Errorf("kafka, %s: status %d\n%s", name, r.Code, r.Stderr)
		}
		do("kafka grants "+name, w.write(t, text), secret, "apply", "--grants")
	}
	for _, output := range []string{"table", "json", "yaml"} {
		if r := do("dry run "+output, good, secret, "apply", "--dry-run", "-o", output, "--log-format", "json"); r.Code != 3 {
			t.Errorf("apply --dry-run -o %s: status %d\n%s", output, r.Code, r.Stderr)
		}
	}
	if r := do("apply", good, secret, "apply", "-o", "json"); r.Code != 0 {
		t.Fatalf("apply: status %d\n%s", r.Code, r.Stderr)
	}
	for _, output := range []string{"table", "json", "yaml"} {
		do("status "+output, good, secret, "status", "-o", output)
		do("route "+output, good, secret, "route", "UA", "-o", output)
		do("dlq "+output, good, secret, "dlq", "list", "-o", output)
	}
	do("grants", good, secret, "apply", "--grants")
	do("gap", good, secret, "sink", "accept-gap", "--partition", "1", "--why", "test", "--yes")
	for name, file := range map[string]string{"refused": refused, "away": away, "no database": noDatabase, "typo": typo} {
		for _, args := range [][]string{{"apply"}, {"status", "-o", "json"}, {"sink", "mysql"}} {
			if r := do(name+" "+args[0], file, secret, args...); r.Code == 0 {
				t.Errorf("%s, slotline %v: status 0", name, args)
			}
		}
	}
	p := harness.Command{Args: []string{"-c", good, "run", "--log-format", "json"}, Env: []string{"LINE_PASSWORD=" + secret}, Name: "run"}.Start(t)
	p.WaitOutput(t, "took over", time.Minute)
	if m := regexp.MustCompile(`"listen":"([^"]+)"`).FindStringSubmatch(p.Stderr()); m != nil {
		for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
			res, err := http.Get("http://" + m[1] + path)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(res.Body)
			res.Body.Close()
			printed["run "+path] = string(body)
		}
		if !strings.Contains(printed["run /metrics"], "slotline_outbox_oldest_unpublished_seconds") {
			t.Errorf("/metrics lacks the oldest unpublished age:\n%s", printed["run /metrics"])
		}
	} else {
		t.Errorf("the log does not say where /metrics is:\n%s", p.Stderr())
	}
	if r := p.Stop(t, 30*time.Second); r.Code != 0 {
		t.Errorf("slotline run ended with status %d", r.Code)
	}
	printed["run"] = p.Stdout() + p.Stderr()

	chSecret := harness.ClickHouse(t).Password
	bytes := 0
	for name, out := range printed {
		bytes += len(out)
		for _, s := range []string{secret, "s3cr3t", "p%40ss"} {
			if strings.Contains(out, s) {
				t.Errorf("%s prints the secret:\n%s", name, out)
			}
		}
		if chSecret != "" && strings.Contains(out, chSecret) {
			t.Errorf("%s prints ClickHouse's password:\n%s", name, out)
		}
	}
	t.Logf("%d outputs, %d bytes searched", len(printed), bytes)
}
