package outbox

import (
	"context"
	"database/sql"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/checkup"
	"github.com/slotline/slotline/internal/mysqldb"
)

// Needs is what emitters, apply and the relay need of the outbox's server. It asks nobody.
func Needs(cfg *config.Config) mysqldb.Needs {
	return mysqldb.Needs{Outbox: true, ClockMax: cfg.Outbox.BacklogAgeMax,
		// One INSERT, beyond whose bound one row more may be: its body in hexadecimal, and what stands around it.
		PacketBytes: max(insertBytesMax, 2*cfg.Outbox.EventBytesMax) + 64<<10,
		PacketWhy:   "a transaction that emits much, or a long event, is refused: its INSERT is longer",
		Privileges: []mysqldb.Privileges{
			{Names: mysqldb.PrivilegeNames(privileges), Database: cfg.Outbox.DSN.Database(), Table: "*", Sign: checkup.Stops,
				Why: "apply and the relay need it; slotline apply --grants prints all"},
			{Names: []string{"SELECT"}, Database: "performance_schema", Table: "metadata_locks", Sign: checkup.Hurts,
				Why: "the relay does not see who holds a lane table, and has emitters wait up to 50 ms when it tries to alter one that is held"},
		}}
}

// Refusals are what neither apply nor the relay works with in the database; none before the first apply.
func Refusals(ctx context.Context, db *sql.DB, cfg *config.Config) ([]*fault.Error, error) {
	inv, err := inspect(ctx, db)
	if err != nil {
		return nil, mysqldb.Wrap(err, codeDatabase, "outbox "+cfg.Outbox.DSN.Place())
	}
	return inv.refusals(cfg), nil
}
