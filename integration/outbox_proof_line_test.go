package integration

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/producer"
)

// history is what the writers know of their own transactions, apart from what the database tells later. Each event
// carries a mark of its own, so that the events of a transaction that was rolled back would be recognized.
type history struct {
	marks    atomic.Int64
	mu       sync.Mutex
	outcome  map[string]outcome
	refused  int // transactions that admission refused
	failures int // that ended with another error
}

type outcome string

const (
	committed  outcome = "committed"
	rolledBack outcome = "rolled back"
	unknown    outcome = "of unknown outcome" // the connection was lost in COMMIT
)

func newHistory() *history {
	return &history{outcome: map[string]outcome{}}
}

func (h *history) mark() string { return fmt.Sprintf("mark-%d", h.marks.Add(1)) }

func (h *history) end(marks []string, o outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range marks {
		h.outcome[m] = o
	}
}

func (h *history) count(o outcome) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, got := range h.outcome {
		if got == o {
			n++
		}
	}
	return n
}

func (h *history) String() string {
	c, r, u := h.count(committed), h.count(rolledBack), h.count(unknown)
	h.mu.Lock()
	defer h.mu.Unlock()
	return fmt.Sprintf("%d events committed, %d rolled back, %d of unknown outcome; %d transactions refused, %d failed", c, r, u, h.refused, h.failures)
}

// proofLoad is transactions of one to three accounts: each locks an account, counts it up, emits its image and thinks.
// Half of them emit at once in a transaction of their own, half through Run, so that ids are drawn long before the
// commit, and just before it.
type proofLoad struct {
	l             *outboxLine
	h             *history
	db            *sql.DB // the line's unless set
	writers       int
	transactions  int // in all; 0: until stop is closed
	stop          <-chan struct{}
	accounts      int
	rollbackShare float64
	think         time.Duration // at most, after each event
	padBytes      int
}

const proofAccountsSQL = "CREATE TABLE IF NOT EXISTS account (id INT PRIMARY KEY, value BIGINT NOT NULL)"

func (l *outboxLine) makeAccounts(n int) {
	l.t.Helper()
	if _, err := l.db.Exec(proofAccountsSQL); err != nil {
		l.t.Fatal(err)
	}
	values := make([]string, n)
	for i := range values {
		values[i] = fmt.Sprintf("(%d, 0)", i)
	}
	if _, err := l.db.Exec("INSERT IGNORE INTO account VALUES " + strings.Join(values, ",")); err != nil {
		l.t.Fatal(err)
	}
}

// run returns when all writers have ended.
func (p proofLoad) run(rnd *rand.Rand) {
	if p.db == nil {
		p.db = p.l.db
	}
	var wg sync.WaitGroup
	var begun atomic.Int64
	for range p.writers {
		rnd := rand.New(rand.NewPCG(rnd.Uint64(), 1))
		wg.Go(func() {
			for p.l.t.Context().Err() == nil {
				if p.transactions > 0 && begun.Add(1) > int64(p.transactions) {
					return
				}
				select {
				case <-p.stop:
					return
				default:
				}
				p.one(rnd)
			}
		})
	}
	wg.Wait()
}

type proofTx interface {
	producer.Transaction
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func (p proofLoad) one(rnd *rand.Rand) {
	ctx := p.l.t.Context()
	ids := make([]int, 0, 3)
	for range 1 + rnd.IntN(3) {
		ids = append(ids, rnd.IntN(p.accounts))
	}
	slices.Sort(ids) // locks in one order
	ids = slices.Compact(ids)
	var marks []string
	change := func(tx proofTx) error {
		for _, id := range ids {
			mark, err := p.l.change(ctx, tx, p.h, id, strings.Repeat("x", rnd.IntN(p.padBytes+1)))
			if err != nil {
				return err
			}
			marks = append(marks, mark)
			if p.think > 0 {
				time.Sleep(time.Duration(rnd.Int64N(int64(p.think))))
			}
		}
		if rnd.Float64() < p.rollbackShare {
			return errOnPurpose
		}
		return nil
	}
	end, err := rolledBack, error(nil)
	if rnd.IntN(2) == 0 {
		err = p.l.producer.Run(ctx, p.db, func(tx *producer.Tx) error { return change(tx) })
		// It is on its word here: any other error means that nothing was committed.
		if errors.Is(err, producer.ErrCommitUnknown) {
			end = unknown
		}
	} else {
		var tx *sql.Tx
		if tx, err = p.db.BeginTx(ctx, nil); err == nil {
			if err = change(tx); err != nil {
				tx.Rollback()
			} else if err = tx.Commit(); err != nil {
				end = unknown
			}
		}
	}
	if err == nil {
		end = committed
	}
	p.h.end(marks, end)
	if err == nil || errors.Is(err, errOnPurpose) {
		return
	}
	p.h.mu.Lock()
	if errors.Is(err, producer.ErrBacklogged) {
		p.h.refused++
	} else {
		p.h.failures++
	}
	p.h.mu.Unlock()
	time.Sleep(20 * time.Millisecond) // a server that is away is not waited for by spinning
}

// change counts an account up and emits its image, under a mark of its own.
func (l *outboxLine) change(ctx context.Context, tx proofTx, h *history, id int, pad string) (mark string, err error) {
	if _, err := tx.ExecContext(ctx, "UPDATE account SET value = value + 1 WHERE id = ?", id); err != nil {
		return "", err
	}
	var value int64
	if err := tx.QueryRowContext(ctx, "SELECT value FROM account WHERE id = ?", id).Scan(&value); err != nil {
		return "", err
	}
	mark = h.mark()
	return mark, l.producer.Emit(ctx, tx, l.accounts.Upsert(account{Owner: proofOwner(id), ID: uint64(id), Value: value, Pad: mark + " " + pad}))
}

func proofOwner(id int) string { return fmt.Sprintf("owner-%03d", id) }

// marked is what a proof reads of an event's body.
type marked struct {
	Value int64  `json:"value"`
	Pad   string `json:"pad"`
}

func (e *published) marked(t testing.TB) (mark string, value int64) {
	t.Helper()
	var m marked
	if err := json.Unmarshal(e.Body, &m); err != nil {
		t.Errorf("partition %d offset %d: %v in %s", e.partition, e.offset, err, e.Body)
	}
	mark, _, _ = strings.Cut(m.Pad, " ")
	return mark, m.Value
}

// checkProof compares the topic with the tables, with what the writers know, and, per account, with the order of its
// commits: all its writers lock it and add one, so its events must be 1, 2, 3 … to what its row holds now. Repeats are
// refused unless repeats is set, and do not count for the order.
func (l *outboxLine) checkProof(h *history, repeats bool) []published {
	l.t.Helper()
	events := l.check(repeats, false)
	inTopic := map[string]int{}
	values := map[string]int64{}
	for i := range events {
		mark, value := events[i].marked(l.t)
		if inTopic[mark]++; inTopic[mark] > 1 {
			continue
		}
		key := events[i].EntityID
		if values[key]++; value != values[key] {
			l.t.Errorf("account %s: partition %d offset %d holds value %d, where %d comes next", key, events[i].partition, events[i].offset, value, values[key])
			values[key] = value
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for mark, o := range h.outcome {
		if n := inTopic[mark]; o == committed && n == 0 || o == rolledBack && n > 0 || n > 1 && !repeats {
			l.t.Errorf("event %s is %s, and %d times in the topic", mark, o, n)
		}
		delete(inTopic, mark)
	}
	for mark := range inTopic {
		l.t.Errorf("the topic holds event %s, which nobody has emitted", mark)
	}
	rows, err := l.db.Query("SELECT id, value FROM account")
	if err != nil {
		l.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		var value int64
		if err := rows.Scan(&id, &value); err != nil {
			l.t.Fatal(err)
		}
		if values[id] != value {
			l.t.Errorf("account %s: the last event has value %d, the row %d", id, values[id], value)
		}
	}
	if err := rows.Err(); err != nil {
		l.t.Fatal(err)
	}
	return events
}

// waitAllPublished waits until each event of the tables is in the topic; with repeats the topic may hold more records.
func (l *outboxLine) waitAllPublished(limit time.Duration) {
	l.t.Helper()
	want := l.committed()
	for deadline := harness.Deadline(limit); ; time.Sleep(100 * time.Millisecond) {
		missing := len(want)
		seen := map[[16]byte]bool{}
		for _, e := range l.topic() {
			if _, ok := want[e.ID]; ok && !seen[e.ID] {
				seen[e.ID] = true
				missing--
			}
		}
		if missing == 0 {
			return
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("%d of %d committed events are not in the topic after %v; outbox %+v", missing, len(want), limit, l.backlogs())
		}
	}
}

// applied makes the line ready for processes: its file, its shard's database, and what apply makes.
func (l *outboxLine) applied(shard *harness.MySQLServer) (file string) {
	l.t.Helper()
	shard.NewDatabase(l.t, l.cfg.Line+"_s1")
	file = l.write(l.yaml)
	if r := (harness.Command{Args: []string{"-c", file, "apply"}}).Run(l.t, time.Minute); r.Code != 0 {
		l.t.Fatalf("slotline apply: exit status %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	return file
}

func (l *outboxLine) write(yaml string) (file string) {
	l.t.Helper()
	file = filepath.Join(l.t.TempDir(), "slotline.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		l.t.Fatal(err)
	}
	return file
}

// size is a count for the usual run, and the one for a soak.
func size(usual, soak int) int {
	if harness.Soak() {
		return soak
	}
	return usual
}
