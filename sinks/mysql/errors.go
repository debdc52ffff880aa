package mysql

import (
	"fmt"

	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/mysqldb"
)

// denied says that a privilege is missing, or the login was refused.
func denied(err error) bool {
	switch mysqldb.Number(err) {
	case 1044, 1045, 1142, 1143, 1227, 1370:
		return fault.CodeOf(err) == ""
	}
	return false
}

// deniedError names the GRANT that is needed.
func (sh *shard) deniedError(err error) error {
	e := mysqldb.Wrap(err, codeDenied, sh.where()).(*fault.Error)
	e.Class = fault.Fatal
	if mysqldb.Number(err) != 1045 { // 1045: user or password, no grant helps
		e.Do = "GRANT " + shardPrivileges + " ON " + mysqldb.Ident(sh.dsn.Database()) + ".* TO the user in shards." + sh.name +
			".dsn; slotline apply --grants prints it whole"
	}
	return e
}

// shardPrivileges are what the sink and apply need of a shard's database.
const shardPrivileges = "SELECT, INSERT, UPDATE, CREATE, ALTER, INDEX, CREATE TEMPORARY TABLES"

// replayPrivileges are what slotline replay needs besides.
const replayPrivileges = "DELETE, DROP, LOCK TABLES"

// Grants are the statements that give each shard's user what apply and the sink need, for a DBA to run.
func (s *Sink) Grants() []string {
	var list []string
	for _, sh := range s.state.Load().shards {
		user, db := mysqldb.GrantTo(sh.dsn), mysqldb.Ident(sh.dsn.Database())
		list = append(list,
			fmt.Sprintf("-- shard %s, %s", sh.name, sh.dsn.Place()),
			fmt.Sprintf("GRANT %s ON %s.* TO %s;", shardPrivileges, db, user),
			"-- to find, at a take-over, who holds the progress row; without it a take-over may wait for a minute",
			fmt.Sprintf("GRANT SELECT ON performance_schema.* TO %s; -- in MariaDB: GRANT PROCESS ON *.*", user))
		if s.keep > 0 {
			list = append(list, "-- months.keep is set: for slotline tables retire alone",
				fmt.Sprintf("GRANT DROP ON %s.* TO %s;", db, user))
		}
		list = append(list, "-- for slotline replay alone",
			fmt.Sprintf("GRANT "+replayPrivileges+" ON %s.* TO %s;", db, user))
	}
	return list
}
