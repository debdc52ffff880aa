package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
)

// open starts a server with a lock and opens a pool on it.
func open(t *testing.T, l locker) *sql.DB {
	t.Helper()
	s, err := start(Options{Databases: []string{"test"}}, l)
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("mysql", fmt.Sprintf("root@tcp(%s)/test?clientFoundRows=true&multiStatements=true&interpolateParams=true", s.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		db.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func exec(t *testing.T, db interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, query string, args ...any) int64 {
	t.Helper()
	result, err := db.ExecContext(t.Context(), query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func count(t *testing.T, db *sql.DB, query string) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// noLock is the engine as it comes.
type noLock struct{}

func (noLock) lock(context.Context, uint32) error { return nil }
func (noLock) unlock(uint32)                      {}

// overlap lets writers insert rows in transactions that overlap, and returns how many were committed and are there.
func overlap(t *testing.T, db *sql.DB) (committed, there int) {
	const writers, rowsEach = 8, 50
	exec(t, db, "CREATE TABLE t (id BIGINT NOT NULL AUTO_INCREMENT, w INT NOT NULL, PRIMARY KEY (id))")
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for range rowsEach {
				tx, err := db.Begin()
				if err != nil {
					continue
				}
				_, err = tx.Exec("INSERT INTO t (w) VALUES (?)", w)
				if err != nil || tx.Commit() != nil {
					tx.Rollback()
					continue
				}
				mu.Lock()
				committed++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return committed, count(t, db, "SELECT COUNT(*) FROM t")
}

func TestOverlappingTransactions(t *testing.T) {
	committed, there := overlap(t, open(t, newLock()))
	if committed != 400 || there != committed {
		t.Fatalf("%d of 400 transactions committed, %d rows are there", committed, there)
	}
}

// The lock is what makes TestOverlappingTransactions pass: the engine alone loses rows. When this test fails, the lock
// has become unnecessary.
func TestEngineAloneLosesRows(t *testing.T) {
	committed, there := overlap(t, open(t, noLock{}))
	if there >= committed {
		t.Fatalf("%d transactions committed and %d rows are there, without the lock", committed, there)
	}
}

func TestTransactionWaitsForTheOther(t *testing.T) {
	db := open(t, newLock())
	exec(t, db, "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, n INT NOT NULL)")
	exec(t, db, "INSERT INTO t VALUES (1, 0)")
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	exec(t, tx, "UPDATE t SET n = 5 WHERE id = 1")

	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := db.ExecContext(short, "UPDATE t SET n = n + 1 WHERE id = 1"); err == nil {
		t.Fatal("another connection wrote while a transaction was open")
	}
	done := make(chan int)
	go func() { done <- count(t, db, "SELECT n FROM t WHERE id = 1") }()
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if n := <-done; n != 0 && n != 1 { // 1: the statement that was given up ran after all, as it may on any server
		t.Fatalf("n is %d: the transaction was rolled back", n)
	}
}

func TestKillEndsTheHolder(t *testing.T) {
	db := open(t, newLock())
	exec(t, db, "CREATE TABLE t (id INT NOT NULL PRIMARY KEY)")
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var id int
	if err := conn.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id); err != nil {
		t.Fatal(err)
	}
	exec(t, conn, "START TRANSACTION")
	exec(t, conn, "INSERT INTO t VALUES (1)")
	exec(t, db, fmt.Sprintf("KILL %d", id))
	if n := count(t, db, "SELECT COUNT(*) FROM t"); n != 0 {
		t.Fatalf("%d rows: what a killed connection had not committed is there", n)
	}
	if _, err := conn.ExecContext(t.Context(), "COMMIT"); err == nil {
		t.Fatal("the killed connection committed")
	}
}

// An autocommit statement that fails leaves nothing open: neither the lock nor a view of the tables as they were.
func TestFailedStatementLeavesNothingOpen(t *testing.T) {
	db := open(t, newLock())
	exec(t, db, "CREATE TABLE t (id INT NOT NULL PRIMARY KEY)")
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, bad := range []string{"SELECT x FROM t", "SELEC 1", "SELECT 1; SELECT x FROM t", "INSERT INTO t VALUES (NULL)"} {
		if _, err := conn.ExecContext(t.Context(), bad); err == nil {
			t.Fatalf("%s passed", bad)
		}
		n := count(t, db, "SELECT COUNT(*) FROM t")
		exec(t, db, "INSERT INTO t VALUES (?)", n+1)
		var seen int
		if err := conn.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM t").Scan(&seen); err != nil || seen != n+1 {
			t.Fatalf("after %s the connection sees %d rows, not %d (%v)", bad, seen, n+1, err)
		}
	}
}

func TestCloseEndsOpenTransactions(t *testing.T) {
	s, err := Start(Options{Databases: []string{"test"}})
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("mysql", fmt.Sprintf("root@tcp(%s)/test", s.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Begin(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Close() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Close waits for a client")
	}
}

func number(err error) uint16 {
	if e, ok := err.(*driver.MySQLError); ok {
		return e.Number
	}
	return 0
}
