package outbox

import (
	"fmt"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/internal/mysqldb"
)

// privileges are what apply and the relay need of the outbox database; a service that only emits needs SELECT and INSERT.
const privileges = "SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX"

// Grants are the statements that give the outbox's user what apply and the relay need, for a DBA to run.
func Grants(cfg *config.Config) []string {
	user, db := mysqldb.GrantTo(cfg.Outbox.DSN), mysqldb.Ident(cfg.Outbox.DSN.Database())
	return []string{
		"-- outbox, " + cfg.Outbox.DSN.Place(),
		fmt.Sprintf("GRANT %s ON %s.* TO %s;", privileges, db, user),
		"-- optional: the relay then sees who holds a lane table, and does not try to alter it meanwhile",
		fmt.Sprintf("GRANT SELECT ON performance_schema.metadata_locks TO %s;", user),
		"-- a service that only emits needs less:",
		fmt.Sprintf("-- GRANT SELECT, INSERT ON %s.* TO the service's user;", db),
	}
}
