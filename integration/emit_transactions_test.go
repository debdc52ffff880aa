package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/jmoiron/sqlx"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/outbox"
	"github.com/slotline/slotline/producer"
)

// The functions below are what docs/emit.md shows, one per library: each changes a wallet and emits its image in a
// transaction of its own.

// wallet is the service's own row, and the image that is emitted.
type wallet struct {
	Owner string `slotline:"owner,tenant" gorm:"primaryKey"`
	ID    uint64 `slotline:"wallet_id,id" gorm:"primaryKey"`
	Cents int64  `slotline:"cents"`
}

type walletService struct {
	p       *producer.Producer
	wallets *producer.Table[wallet]
}

func (s *walletService) withSQL(ctx context.Context, db *sql.DB, w wallet) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after Commit
	if _, err := tx.ExecContext(ctx, "UPDATE wallets SET cents = ? WHERE owner = ? AND id = ?", w.Cents, w.Owner, w.ID); err != nil {
		return err
	}
	if err := s.p.Emit(ctx, tx, s.wallets.Upsert(w)); err != nil {
		return err
	}
	return tx.Commit()
}

func (s *walletService) withSQLX(ctx context.Context, db *sqlx.DB, w wallet) error {
	tx, err := db.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.NamedExecContext(ctx, "UPDATE wallets SET cents = :cents WHERE owner = :owner AND id = :id", w); err != nil {
		return err
	}
	if err := s.p.Emit(ctx, tx, s.wallets.Upsert(w)); err != nil {
		return err
	}
	return tx.Commit()
}

func (s *walletService) withGorm(ctx context.Context, db *gorm.DB, w wallet) error {
	return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := tx.Save(&w).Error; err != nil {
			return err
		}
		return s.p.Emit(ctx, tx.Statement.ConnPool, s.wallets.Upsert(w))
	})
}

// walletLine is an outbox database with a service's table in it, and no Kafka.
func walletLine(t *testing.T) (*sql.DB, *walletService, func() string) {
	t.Helper()
	m := harness.MySQL(t)
	name := harness.Name(t)
	m.NewDatabase(t, name)
	cfg, err := config.Parse("slotline.yaml", fmt.Appendf(nil, `line: %s
kafka: { brokers: [127.0.0.1:9092] }
outbox: { dsn: "%s" }
shards: { s1: { dsn: "%s", slots: 0-1023 } }
tables: { wallets: { tenant: owner, id: wallet_id, columns: { owner: string(40), wallet_id: uint64, cents: int64 } } }
`, name, m.URL(name), m.URL(name+"_s1")))
	if err != nil {
		t.Fatal(err)
	}
	db := m.Open(t, name) // as a service opens it
	admin, err := mysqldb.Open(cfg.Outbox.DSN, mysqldb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	changes, err := outbox.Plan(t.Context(), admin, cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range changes {
		if err := c.Apply(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := db.Exec("CREATE TABLE wallets (owner VARCHAR(40), id BIGINT UNSIGNED, cents BIGINT NOT NULL, PRIMARY KEY (owner, id))"); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("INSERT INTO wallets VALUES ('ann', 1, 0)"); err != nil {
		t.Fatal(err)
	}
	p := producer.New(cfg)
	// committed are the row and the images, in order, and no more of either than committed.
	committed := func() string {
		t.Helper()
		var text []string
		var cents int64
		if err := db.QueryRow("SELECT cents FROM wallets").Scan(&cents); err != nil {
			t.Fatal(err)
		}
		for lane := range cfg.Outbox.Lanes {
			rows, err := db.Query("SELECT JSON_EXTRACT(CONVERT(payload USING utf8mb4), '$.cents') FROM " + outbox.LaneTable(lane) + " ORDER BY id")
			if err != nil {
				t.Fatal(err)
			}
			for rows.Next() {
				var image string
				if err := rows.Scan(&image); err != nil {
					t.Fatal(err)
				}
				text = append(text, image)
			}
			if err := rows.Err(); err != nil {
				t.Fatal(err)
			}
		}
		return fmt.Sprintf("%d: %s", cents, strings.Join(text, " "))
	}
	return db, &walletService{p, producer.MustRegister[wallet](p, "wallets")}, committed
}

// Every library's transaction carries the event: committed with its row, gone with it, refused outside of one.
func TestEmitInTransactionsOfLibraries(t *testing.T) {
	db, s, committed := walletLine(t)
	dbx := sqlx.NewDb(db, "mysql")
	open := func(prepare bool) *gorm.DB {
		t.Helper()
		g, err := gorm.Open(gormmysql.New(gormmysql.Config{Conn: db}), &gorm.Config{PrepareStmt: prepare})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	g, prepared := open(false), open(true)
	ctx := t.Context()
	w := wallet{Owner: "ann", ID: 1}
	set := func(cents int64) wallet { w.Cents = cents; return w }
	for i, emit := range []func(wallet) error{
		func(w wallet) error { return s.withSQL(ctx, db, w) },
		func(w wallet) error { return s.withSQLX(ctx, dbx, w) },
		func(w wallet) error { return s.withGorm(ctx, g, w) },
		func(w wallet) error { return s.withGorm(ctx, prepared, w) },
		func(w wallet) error { // Run takes sqlx's pool too
			return s.p.Run(ctx, dbx, func(tx *producer.Tx) error {
				if _, err := tx.ExecContext(ctx, "UPDATE wallets SET cents = ?", w.Cents); err != nil {
					return err
				}
				return s.p.Emit(ctx, tx, s.wallets.Upsert(w))
			})
		},
	} {
		if err := emit(set(int64(i + 1))); err != nil {
			t.Errorf("way %d: %v", i, err)
		}
	}
	const want = "5: 1 2 3 4 5"
	if got := committed(); got != want {
		t.Errorf("committed %s, wanted %s", got, want)
	}

	// Rolled back: the event is gone with the row. In gorm also with a savepoint alone.
	boom := errors.New("boom")
	for _, g := range []*gorm.DB{g, prepared} {
		err := g.Transaction(func(tx *gorm.DB) error {
			if err := tx.Save(&wallet{"ann", 1, 6}).Error; err != nil {
				return err
			}
			if err := s.p.Emit(ctx, tx.Statement.ConnPool, s.wallets.Upsert(set(6))); err != nil {
				return err
			}
			return boom
		})
		if err != boom {
			t.Error(err)
		}
		err = g.Transaction(func(tx *gorm.DB) error {
			inner := tx.Transaction(func(tx *gorm.DB) error {
				if err := s.p.Emit(ctx, tx.Statement.ConnPool, s.wallets.Upsert(set(7))); err != nil {
					return err
				}
				return boom
			})
			if inner != boom {
				t.Error(inner)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	tx, err := dbx.Beginx()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.p.Emit(ctx, tx, s.wallets.Upsert(set(8))); err != nil {
		t.Error(err)
	}
	tx.Rollback()

	// Outside of a transaction, and after its end, nothing is taken.
	for name, tx := range map[string]producer.Transaction{
		"*sqlx.DB": dbx, "gorm": g.Statement.ConnPool, "gorm, prepared": prepared.Statement.ConnPool, "*sqlx.Tx that ended": tx} {
		if err := s.p.Emit(ctx, tx, s.wallets.Upsert(set(9))); !errors.Is(err, producer.ErrNotInTransaction) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if reflect.TypeFor[*gorm.DB]().Implements(reflect.TypeFor[producer.Transaction]()) {
		t.Error("a *gorm.DB compiles")
	}
	if got := committed(); got != want {
		t.Errorf("committed %s, wanted %s", got, want)
	}
}

// gorm's PrepareStmt keeps each text that it has prepared for a day, and an INSERT of Emit's is never the same twice: it
// would fill the server's max_prepared_stmt_count. Emit goes around it.
func TestEmitLeavesNothingPreparedInGorm(t *testing.T) {
	db, s, committed := walletLine(t)
	g, err := gorm.Open(gormmysql.New(gormmysql.Config{Conn: db}), &gorm.Config{PrepareStmt: true})
	if err != nil {
		t.Fatal(err)
	}
	const events = 20
	for i := range events {
		if err := s.withGorm(t.Context(), g, wallet{"ann", 1, int64(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Fields(committed()); len(got) != events+1 {
		t.Errorf("committed %v", got)
	}
	stmts := g.ConnPool.(*gorm.PreparedStmtDB).Stmts.Keys()
	for _, text := range stmts {
		if strings.Contains(text, "slotline_") {
			t.Errorf("kept prepared: %.80s", text)
		}
	}
	if len(stmts) == 0 {
		t.Error("nothing is prepared: the test looks at the wrong place")
	}
}

// docs/emit.md shows the functions that are tested here.
func TestDocsShowTheTransactionsThatAreTested(t *testing.T) {
	docsShow(t, "emit_transactions_test.go", "func (s *walletService) with")
}

// docsShow wants each function of a file whose text begins so on docs/emit.md.
func docsShow(t *testing.T, file, begins string) {
	t.Helper()
	page, err := os.ReadFile("../docs/emit.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	plain := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	found := 0
	for _, rest := range strings.Split(string(source), "\nfunc ")[1:] {
		function, _, _ := strings.Cut("func "+rest, "\n}")
		if !strings.HasPrefix(function, begins) {
			continue
		}
		found++
		if first, _, _ := strings.Cut(function, "\n"); !strings.Contains(plain(string(page)), plain(function+"\n}")) {
			t.Errorf("docs/emit.md does not show %s", first)
		}
	}
	if found == 0 {
		t.Errorf("%s has no %s…: the test looks at the wrong place", file, begins)
	}
}
