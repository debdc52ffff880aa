package integration

import (
	"bytes"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/internal/kafka"
	"github.com/slotline/slotline/outbox"
	"github.com/slotline/slotline/producer"
)

// relaySeat runs one relay process after the other, each on a file whose account is the seat's own.
type relaySeat struct {
	l    *outboxLine
	user string
	file string
	proc *harness.Process

	mu   sync.Mutex
	pids []int // of all processes that sat here
}

// seats makes n seats, and starts a relay on each.
func (l *outboxLine) seats(server *harness.MySQLServer, n int) (list []*relaySeat) {
	l.t.Helper()
	root := server.Open(l.t, "")
	for i := range n {
		s := &relaySeat{l: l, user: fmt.Sprintf("%s_%d", l.cfg.Line, i)}
		for _, statement := range []string{"CREATE USER '%s'@'%%' IDENTIFIED BY 'seat'", "GRANT ALL ON *.* TO '%s'@'%%'"} {
			if _, err := root.Exec(fmt.Sprintf(statement, s.user)); err != nil {
				l.t.Fatal(err)
			}
		}
		l.t.Cleanup(func() {
			if _, err := root.Exec("DROP USER '" + s.user + "'@'%'"); err != nil {
				l.t.Error(err)
			}
		})
		database := l.cfg.Outbox.DSN.Database()
		own := url.URL{Scheme: "mysql", User: url.UserPassword(s.user, "seat"), Host: server.Addr, Path: "/" + database}
		s.file = l.write(strings.Replace(l.yaml, `"`+server.URL(database)+`"`, `"`+own.String()+`"`, 1))
		s.sit()
		list = append(list, s)
	}
	return list
}

func (s *relaySeat) sit() {
	s.proc = harness.Command{Args: []string{"-c", s.file, "relay"}, Name: "relay-" + s.user}.Start(s.l.t)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pids = append(s.pids, s.proc.Pid())
}

// mine tells whether a lease's owner is a process of the seat.
func (s *relaySeat) mine(owner string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pid := range s.pids {
		if strings.Contains(owner, fmt.Sprintf("/%d/", pid)) {
			return true
		}
	}
	return false
}

// owning is the seat that owns a random lane, or any seat where nobody owns it.
func (l *outboxLine) owning(seats []*relaySeat, rnd *rand.Rand) *relaySeat {
	l.t.Helper()
	owner := l.backlogs()[rnd.IntN(l.cfg.Outbox.Lanes)].Owner
	for _, s := range seats {
		if s.mine(owner) {
			return s
		}
	}
	return seats[rnd.IntN(len(seats))]
}

// stopSeats ends the relays as their operator would.
func (l *outboxLine) stopSeats(seats []*relaySeat) {
	l.t.Helper()
	for _, s := range seats {
		if r := s.proc.Stop(l.t, 30*time.Second); r.Code != 0 {
			l.t.Errorf("slotline relay ended with status %d after SIGTERM", r.Code)
		}
	}
}

// watchLeases writes down each change of a lane's row, by whom, in the transaction that makes it.
func (l *outboxLine) watchLeases() {
	l.t.Helper()
	for _, statement := range []string{
		"CREATE TABLE watched (n BIGINT AUTO_INCREMENT PRIMARY KEY, at DATETIME(6), account VARCHAR(100), lane INT, owner_was VARBINARY(128), epoch_was BIGINT," +
			" until_was DATETIME(6), cursor_was BIGINT, owner VARBINARY(128), epoch BIGINT, cursor_is BIGINT)",
		"CREATE TRIGGER watch AFTER UPDATE ON slotline_lane FOR EACH ROW INSERT INTO watched VALUES (NULL, UTC_TIMESTAMP(6), USER(), OLD.lane," +
			" OLD.owner, OLD.owner_epoch, OLD.lease_until, OLD.cursor_id, NEW.owner, NEW.owner_epoch, NEW.cursor_id)",
	} {
		if _, err := l.db.Exec(statement); err != nil {
			l.t.Fatal(err)
		}
	}
}

// checkLeases judges what watchLeases wrote down: only a lease that is free, has run out or is its own is taken, each
// taking adds one to the epoch, and between two takings only the owner writes.
func (l *outboxLine) checkLeases(seats []*relaySeat) {
	l.t.Helper()
	rows, err := l.db.Query("SELECT at, account, lane, owner_was, epoch_was, until_was, cursor_was, owner, epoch, cursor_is FROM watched ORDER BY n")
	if err != nil {
		l.t.Fatal(err)
	}
	defer rows.Close()
	writes, takings := 0, 0
	for rows.Next() {
		var at, until time.Time
		var user, ownerWas, owner string
		var lane int
		var epochWas, epoch, cursorWas, cursor int64
		if err := rows.Scan(&at, &user, &lane, &ownerWas, &epochWas, &until, &cursorWas, &owner, &epoch, &cursor); err != nil {
			l.t.Fatal(err)
		}
		writes++
		wrong := ""
		for _, s := range seats {
			if strings.HasPrefix(user, s.user+"@") {
				switch {
				case epoch != epochWas:
					takings++
					if epoch != epochWas+1 || !s.mine(owner) {
						wrong = "an odd taking"
					}
					if ownerWas != "" && ownerWas != owner && until.After(at) {
						wrong = "it takes a lease that runs"
					}
				case !s.mine(ownerWas):
					wrong = "a writer that is not the owner"
				}
			}
		}
		if cursor < cursorWas {
			wrong = "the cursor goes back"
		}
		if wrong != "" {
			l.t.Errorf("lane %d at %v, account %s: %s; owner %s epoch %d until %v became owner %s epoch %d, cursor %d became %d",
				lane, at, user, wrong, ownerWas, epochWas, until, owner, epoch, cursorWas, cursor)
		}
	}
	if err := rows.Err(); err != nil {
		l.t.Fatal(err)
	}
	l.t.Logf("%d writes to leases, %d of them takings", writes, takings)
	if takings <= l.cfg.Outbox.Lanes+2 {
		l.t.Errorf("only %d takings: the relays did not fight", takings)
	}
}

// P1, P2: two relay processes are killed at random points while events flow. A dead owner's connections are cut, so that
// the next owner finds what it had sent: nothing is lost, and nothing is in the topic twice.
func TestP1_OutboxProofRelaysKilled(t *testing.T) {
	harness.Proof(t)
	server := harness.MySQL(t)
	l := newOutboxLine(t, harness.Kafka(t), server, ", lanes: 4, lease_time: 2s")
	l.applied(server)
	l.watchLeases()
	rnd := seeded(t)
	h := newHistory()
	const accounts = 100
	l.makeAccounts(accounts)
	seats := l.seats(server, 2)
	load := newRunningLoad(proofLoad{l: l, h: h, writers: 8, accounts: accounts, rollbackShare: 0.1, think: 8 * time.Millisecond, padBytes: 300}, rnd)
	kills := size(6, 200)
	for range kills {
		time.Sleep(time.Duration(200+rnd.IntN(2500)) * time.Millisecond) // the random point
		s := l.owning(seats, rnd)
		s.proc.Kill(t)
		s.sit()
	}
	load.end()
	l.waitAllPublished(2 * time.Minute)
	l.stopSeats(seats)
	t.Logf("%d kills; %v", kills, h)
	l.checkProof(h, false)
	l.checkLeases(seats)
}

// P1, P5: two relay processes fight for the lanes while either is stopped and woken at random points, for less and for
// more than the lease time. Nothing is lost; a zombie that wakes may add repeats to the topic, and changes no lease.
func TestP5_OutboxProofZombieRelays(t *testing.T) {
	harness.Proof(t)
	server := harness.MySQL(t)
	l := newOutboxLine(t, harness.Kafka(t), server, ", lanes: 4, lease_time: 1500ms")
	l.applied(server)
	l.watchLeases()
	rnd := seeded(t)
	h := newHistory()
	const accounts = 100
	l.makeAccounts(accounts)
	seats := l.seats(server, 2)
	load := newRunningLoad(proofLoad{l: l, h: h, writers: 8, accounts: accounts, rollbackShare: 0.1, think: 8 * time.Millisecond, padBytes: 300}, rnd)
	stops := size(6, 300)
	for range stops {
		time.Sleep(time.Duration(100+rnd.IntN(500)) * time.Millisecond) // the random point
		s := l.owning(seats, rnd)
		s.proc.Signal(t, syscall.SIGSTOP)
		time.Sleep(time.Duration(200+rnd.IntN(2800)) * time.Millisecond) // shorter than the lease, or longer
		s.proc.Signal(t, syscall.SIGCONT)
	}
	load.end()
	l.waitAllPublished(2 * time.Minute)
	l.stopSeats(seats)
	events := l.checkProof(h, true)
	t.Logf("%d stops; %v; %d records for %d events", stops, h, len(events), len(l.committed()))
	l.checkLeases(seats)
}

// runningLoad is a load that runs until end.
type runningLoad struct {
	stop, done chan struct{}
}

func newRunningLoad(p proofLoad, rnd *rand.Rand) *runningLoad {
	r := &runningLoad{make(chan struct{}), make(chan struct{})}
	p.stop = r.stop
	own := rand.New(rand.NewPCG(rnd.Uint64(), 2))
	go func() { // owned by end
		defer close(r.done)
		p.run(own)
	}()
	return r
}

func (r *runningLoad) end() {
	close(r.stop)
	<-r.done
}

// P1, P7: the broker and the outbox's server are killed and come back, and writers lose the answers to some of their
// COMMITs, while two relay processes publish. No relay dies, so nothing is lost and nothing is there twice, and Run
// knows of each transaction whether it was committed, or says that it does not know.
func TestP1_OutboxProofServersAndConnections(t *testing.T) {
	harness.Proof(t)
	k, m := harness.PrivateKafka(t), harness.PrivateMySQL(t)
	l := newOutboxLine(t, k, m, ", lanes: 4, lease_time: 2s")
	l.applied(m)
	rnd := seeded(t)
	h := newHistory()
	const accounts = 100
	l.makeAccounts(accounts)
	seats := l.seats(m, 2)

	var commits, cuts atomic.Int64
	cut := newWire(t, m.Addr, func(sent []byte) bool {
		if !bytes.Contains(sent, []byte("COMMIT")) || commits.Add(1)%20 != 0 {
			return false
		}
		cuts.Add(1)
		return true
	})
	c, err := mysqldriver.ParseDSN(m.DSN(l.cfg.Outbox.DSN.Database()))
	if err != nil {
		t.Fatal(err)
	}
	c.Addr, c.Logger = cut.addr(), &mysqldriver.NopLogger{} // a cut is no news here
	db, err := sql.Open("mysql", c.FormatDSN())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxIdleConns(8)
	load := newRunningLoad(proofLoad{l: l, h: h, db: db, writers: 8, accounts: accounts, rollbackShare: 0.1, think: 20 * time.Millisecond, padBytes: 300}, rnd)
	for range size(1, 20) {
		for _, server := range []harness.Outage{k.Outage, m.Outage} {
			time.Sleep(time.Duration(200+rnd.IntN(1500)) * time.Millisecond) // the random point
			server.Kill(t)
			time.Sleep(time.Duration(rnd.IntN(1500)) * time.Millisecond)
			server.Start(t)
		}
	}
	time.Sleep(time.Second) // of load after the last
	load.end()
	l.waitAllPublished(2 * time.Minute)
	l.stopSeats(seats)
	t.Logf("%d of %d COMMITs without an answer; %v", cuts.Load(), commits.Load(), h)
	l.checkProof(h, false)
	if cuts.Load() == 0 || h.count(unknown) == 0 {
		t.Error("no connection was cut in COMMIT")
	}
}

// P13: of two topics the broker refuses every record of one, whose settings somebody has changed. Its events wait and
// are parked, those of the other go on, also beyond the death of the relay; when the topic takes records again its
// events come once and in order.
func TestP13_OutboxProofOneTopicRefuses(t *testing.T) {
	harness.Proof(t)
	k, m := harness.Kafka(t), harness.MySQL(t)
	ledgers := harness.Name(t)
	k.Topics(t, ledgers)
	l := newOutboxLineWith(t, k, m, m, ", lanes: 2, lease_time: 1s",
		"  ledger: { topic: "+ledgers+", tenant: owner, id: account_id, columns: { owner: string(40), account_id: uint64, value: int64, pad: text } }\n")
	ledger := producer.MustRegister[account](l.producer, "ledger")
	client, err := kafka.Open(t.Context(), l.cfg, "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	largest := func(bytes int) {
		t.Helper()
		text := strconv.Itoa(bytes)
		answers, err := kadm.NewClient(client).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &text}}, ledgers)
		if err == nil {
			err = answers[0].Err
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	const owners = 10
	emitted := int64(0)
	emit := func(rounds int) {
		t.Helper()
		for range rounds {
			emitted++
			if err := l.producer.Run(t.Context(), l.db, func(tx *producer.Tx) error {
				for id := range owners {
					a := account{Owner: proofOwner(id), ID: uint64(id), Value: emitted}
					if err := l.producer.Emit(t.Context(), tx, ledger.Upsert(a), l.accounts.Upsert(a)); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	r := l.start()
	emit(5)
	l.waitPublished(5*owners, time.Minute)
	largest(100) // smaller than any record
	emit(20)
	began := time.Now()
	l.waitPublished(25*owners, time.Minute)
	t.Logf("the other topic's events were there %v after the last emit", time.Since(began).Round(time.Millisecond))
	l.waitViews(func(v []outbox.View) bool { return v[0].Parked+v[1].Parked == 20*owners })
	r.kill()
	r = l.start()
	emit(20)
	l.waitPublished(45*owners, time.Minute)
	views := l.waitViews(func(v []outbox.View) bool { return v[0].Parked+v[1].Parked == 40*owners })
	t.Logf("parked in lanes 00 and 01: %d and %d", views[0].Parked, views[1].Parked)
	largest(kafka.RecordBytesMax(l.cfg))
	l.waitViews(func(v []outbox.View) bool { return v[0].Parked+v[1].Parked == 0 })
	r.stop()
	for _, topic := range []string{l.cfg.Kafka.Topic, ledgers} {
		last := map[string]int64{}
		for _, e := range l.topicNamed(topic) {
			_, value := e.marked(t)
			if last[e.EntityID]++; value != last[e.EntityID] {
				t.Errorf("%s account %s: partition %d offset %d holds value %d, where %d comes next", topic, e.EntityID, e.partition, e.offset, value, last[e.EntityID])
				last[e.EntityID] = value
			}
		}
		for id := range owners {
			if n := last[fmt.Sprint(id)]; n != emitted {
				t.Errorf("%s account %d: %d events, wanted %d", topic, id, n, emitted)
			}
		}
	}
}
