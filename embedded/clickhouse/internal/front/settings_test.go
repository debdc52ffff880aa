package front

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"
)

// After the plan, the session has what the query brought and nothing else, whatever it had before; and a plan for
// what it already has is empty.
func TestPlanSettings(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	names := func() string { return fmt.Sprint("s", random.IntN(5)) }
	for range 5000 {
		applied := map[string]string{}
		for range random.IntN(5) {
			applied[names()] = fmt.Sprint(random.IntN(3))
		}
		var wanted []setting
		final := map[string]string{}
		for range random.IntN(6) {
			s := setting{name: names(), value: fmt.Sprint(random.IntN(3))}
			wanted = append(wanted, s)
			final[s.name] = s.value // the slow, obvious twin: the last one wins
		}
		now := maps.Clone(applied)
		plan := planSettings(applied, wanted)
		for _, name := range plan.reset {
			if _, ok := now[name]; !ok {
				t.Fatalf("%v then %v: %s is reset twice or was not set", applied, wanted, name)
			}
			delete(now, name)
		}
		for _, s := range plan.set {
			if now[s.name] == s.value {
				t.Fatalf("%v then %v: %s is set to what it is", applied, wanted, s.name)
			}
			now[s.name] = s.value
		}
		if !maps.Equal(now, final) {
			t.Fatalf("%v then %v: became %v, want %v", applied, wanted, now, final)
		}
		if again := planSettings(now, wanted); len(again.set)+len(again.reset) > 0 {
			t.Fatalf("%v again: %+v", wanted, again)
		}
	}
}

func TestParameterValue(t *testing.T) {
	for literal, want := range map[string]string{
		`'plain'`: "plain", `''`: "", `'it\'s'`: "it's", `'a\\nb'`: `a\nb`, `'a\nb'`: "a\nb", `'\x41'`: "A", `'\d'`: `\d`,
		`42`: "42", `'`: "'", `'\'`: `\`, `'\x4'`: `x4`,
	} {
		if got := parameterValue(literal); got != want {
			t.Errorf("%s: %q, want %q", literal, got, want)
		}
	}
}

func TestQuote(t *testing.T) {
	if got := quoteString(`it's \ "x"`); got != `'it\'s \\ "x"'` {
		t.Error(got)
	}
	if got := quoteName("a`b"); got != "`a\\`b`" {
		t.Error(got)
	}
}
