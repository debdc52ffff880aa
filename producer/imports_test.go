package producer

import (
	"os/exec"
	"strings"
	"testing"
)

// A service that imports producer links no Kafka client, no ClickHouse client, no metrics library and no test library.
func TestServiceLinksLittle(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".", "../reader").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	deps := strings.Fields(string(out))
	found := false
	for _, dep := range deps {
		found = found || dep == "github.com/go-sql-driver/mysql"
		for _, banned := range []string{"franz-go", "ch-go", "prometheus", "testcontainers", "testify", "kfake", "outboxtest", "sinks/", "consumers", "outbox/kafka"} {
			if strings.Contains(dep, banned) {
				t.Errorf("producer or reader links %s", dep)
			}
		}
		if dep == "testing" {
			t.Error("producer or reader links package testing")
		}
	}
	if !found {
		t.Errorf("the MySQL driver is not among %d dependencies: the test looks at the wrong place", len(deps))
	}
}
