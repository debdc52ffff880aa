package kafka

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// What the library says at each attempt is passed on once a minute, each sentence by itself.
func TestRepeatedErrorsOfTheLibraryAreSaidOnce(t *testing.T) {
	var out bytes.Buffer
	l := &clientLog{log: slog.New(slog.NewTextHandler(&out, nil))}
	for range 100 {
		l.Log(kgo.LogLevelError, "group manage loop errored", "group", "g")
		l.Log(kgo.LogLevelError, "another", "group", "g")
		l.Log(kgo.LogLevelWarn, "a detail")
	}
	if n := strings.Count(out.String(), "group manage loop errored"); n != 1 {
		t.Errorf("said %d times:\n%s", n, out.String())
	}
	if strings.Count(out.String(), "another") != 1 || strings.Contains(out.String(), "a detail") {
		t.Errorf("said:\n%s", out.String())
	}
}
