package integration

import (
	"os"
	"strings"
	"testing"

	"github.com/ClickHouse/ch-go"
	"github.com/ClickHouse/ch-go/proto"

	"github.com/slotline/slotline/integration/harness"
)

// Every statement for a cluster is one that ClickHouse reads. The engine has no Keeper: none is carried out.
func TestClickHouseClusterStatementsAreRead(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../sinks/olap/clickhouse/testdata/cluster.sql")
	if err != nil {
		t.Fatal(err)
	}
	server := harness.ClickHouse(t)
	read := 0
	for statement := range strings.SplitSeq(string(text), ";\n\n") {
		if statement == "" || strings.HasPrefix(statement, "--") {
			continue
		}
		if err := server.Dial(t, "").Do(t.Context(), ch.Query{Body: "EXPLAIN AST " + statement, Result: new(proto.Results).Auto()}); err != nil {
			t.Errorf("%s\n%v", statement, err)
		}
		read++
	}
	if read < 10 {
		t.Errorf("%d statements", read)
	}
	if err := server.Dial(t, "").Do(t.Context(), ch.Query{Body: "EXPLAIN AST CREATE TABLE x ON CLUSTERS main (a Int8) ENGINE = Log", Result: new(proto.Results).Auto()}); err == nil {
		t.Error("a statement that is none was read")
	}
}
