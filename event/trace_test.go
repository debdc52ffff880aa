package event

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"
)

const traceParentExample = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// IsTraceParent agrees with the grammar of the recommendation, for the example with any one byte changed and more.
func TestTraceParentForm(t *testing.T) {
	grammar := regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)
	slow := func(s string) bool {
		return grammar.MatchString(s) && strings.Trim(s[3:35], "0") != "" && strings.Trim(s[36:52], "0") != ""
	}
	check := func(s string) {
		if got := IsTraceParent(s); got != slow(s) || IsTraceParent([]byte(s)) != got {
			t.Errorf("%q: %v", s, got)
		}
		flags := strings.HasSuffix(s, "1") || strings.HasSuffix(s, "3")
		if slow(s) && len(s) == 55 && strings.ContainsAny(s[54:], "0123") && Sampled(s) != flags {
			t.Errorf("%q: sampled %v", s, Sampled(s))
		}
	}
	if !IsTraceParent(traceParentExample) || !Sampled(traceParentExample) {
		t.Error("the recommendation's example is refused")
	}
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	for i := range len(traceParentExample) {
		for _, c := range "0123afgAF- \x00é" {
			check(traceParentExample[:i] + string(c) + traceParentExample[i+1:])
		}
		check(traceParentExample[:i])
	}
	for range 1000 {
		i, j := rnd.IntN(55), rnd.IntN(55)
		check(traceParentExample[:min(i, j)] + strings.Repeat("0", max(i, j)-min(i, j)) + traceParentExample[max(i, j):])
	}
	check(traceParentExample + "0")
	check("00-00000000000000000000000000000000-b7ad6b7169203331-01")
	check("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01")
}

func TestTraceParentOfARecord(t *testing.T) {
	e := Event{Table: "t", Tenant: "a", EntityID: "1", Op: Upsert, Version: 1, Time: time.Now()}
	if _, rec := e.AppendRecord(nil, "slotline/x"); TraceParentOf(&rec) != nil {
		t.Errorf("%q without one", TraceParentOf(&rec))
	}
	e.TraceParent = traceParentExample
	if _, rec := e.AppendRecord(nil, "slotline/x"); string(TraceParentOf(&rec)) != traceParentExample {
		t.Errorf("%q", TraceParentOf(&rec))
	}
	if TraceParentOf(&Record{}) != nil {
		t.Error("a record without headers has one")
	}
}
