package lease

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slotline/slotline/fault"
)

// history is the obvious twin of the row: it keeps every grant for ever and answers by looking at the last.
type history struct{ grants []grant }

type grant struct {
	owner string
	until time.Time // by the database's clock
	freed bool
}

func (h *history) last() *grant {
	if len(h.grants) == 0 {
		return &grant{freed: true}
	}
	return &h.grants[len(h.grants)-1]
}

// epoch is the number of grants ever made.
func (h *history) epoch() int64 { return int64(len(h.grants)) }

func (h *history) mayTake(owner string, now time.Time) bool {
	g := h.last()
	return g.freed || g.owner == owner || now.Equal(g.until) || now.After(g.until)
}

func (h *history) mayRenew(epoch int64, now time.Time) bool {
	g := h.last()
	return epoch == h.epoch() && !g.freed && now.Before(g.until)
}

// Several owners take, renew, release and write in random order, while time passes and the database's clock jumps.
// What the lease answers is what the twin says, and whoever writes is the last that was granted the row.
func TestLeaseAgreesWithItsTwin(t *testing.T) {
	const runs, steps, owners = 200, 200, 4
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for run := range runs {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, uint64(run)))
			m, twin := &memStore{}, &history{}
			jumps := run%2 == 1
			held := make([]*Held, owners)
			name := func(i int) string { return fmt.Sprint("owner", i) }
			for step := range steps {
				i := r.IntN(owners)
				m.there, m.back = time.Duration(r.IntN(50))*time.Millisecond, time.Duration(r.IntN(50))*time.Millisecond
				fail := func(format string, args ...any) {
					t.Helper()
					t.Fatalf("run %d step %d: %s", run, step, fmt.Sprintf(format, args...))
				}
				switch r.IntN(8) {
				case 0, 1: // acquire
					h, err := acquire(t.Context(), m, "row", name(i), ttl)
					switch {
					case err == nil && !twin.mayTake(name(i), m.st.now):
						fail("%s took a row that %s holds", name(i), twin.last().owner)
					case err != nil && (!fault.Is(err, fault.Fenced) || twin.mayTake(name(i), m.st.now)):
						fail("%s was refused: %v", name(i), err)
					case err == nil:
						twin.grants = append(twin.grants, grant{owner: name(i), until: m.st.until})
						if h.Epoch() != twin.epoch() {
							fail("owner epoch %d after %d take-overs", h.Epoch(), twin.epoch())
						}
						held[i] = h
					}
				case 2, 3: // renew
					if held[i] == nil {
						continue
					}
					until := m.st.until
					alive := held[i].Alive()
					err := held[i].Renew(t.Context())
					may := alive && twin.mayRenew(held[i].Epoch(), m.st.now)
					if may != (err == nil) {
						// The answer may have come after the deadline: the row is renewed, the holder gave up.
						if !(may && !held[i].Alive()) {
							fail("renewal by %s, epoch %d: %v", name(i), held[i].Epoch(), err)
						}
					}
					if m.st.until != until {
						if !may {
							fail("%s moved a lease that is not its own", name(i))
						}
						twin.last().until = m.st.until
					}
				case 4: // release
					if held[i] == nil {
						continue
					}
					if err := held[i].Release(t.Context()); err != nil {
						fail("%v", err)
					}
					if held[i].Epoch() == twin.epoch() {
						twin.last().freed = true
					}
					if held[i].Alive() {
						fail("alive after release")
					}
				case 5: // write
					if h := held[i]; h != nil && m.write(h.Fence()) != (h.Epoch() == twin.epoch() && m.st.owner != "") {
						fail("a write under epoch %d of %d", h.Epoch(), twin.epoch())
					}
				case 6:
					time.Sleep(time.Duration(r.IntN(int(ttl))))
				case 7:
					if jumps {
						m.skew += time.Duration(r.IntN(int(4*ttl))) - 2*ttl
					}
				}
				if m.st.epoch != twin.epoch() {
					fail("the row has owner epoch %d after %d take-overs", m.st.epoch, twin.epoch())
				}
				// While the database's clock runs as ours does, two are never alive at once: one process with two
				// take-overs of its own counts once.
				alive := 0
				for _, h := range held {
					if h != nil && h.Alive() {
						alive++
					}
				}
				if alive > 1 && !jumps {
					fail("%d owners are alive at once", alive)
				}
			}
			for _, h := range held {
				if h != nil {
					h.end()
				}
			}
		})
	}
}
