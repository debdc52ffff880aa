package mysql

import (
	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/internal/checkup"
	"github.com/slotline/slotline/internal/mysqldb"
)

// packetBytesAdvised holds event_bytes_max in hex (1.8 MiB), twice.
const packetBytesAdvised = 4 << 20

// shardNeeds is what a plan looks at.
var shardNeeds = mysqldb.Needs{Staging: true, HeapBytes: 2 * stagingHeapBytesMax, PacketBytes: packetBytesAdvised, PacketWhy: "longer rows become dead letters"}

// Needs is what the sink, apply, retire and replay need of a shard's server. It asks nobody.
func Needs(cfg *config.Config, shard config.Shard, mariaDB bool) mysqldb.Needs {
	n, db := shardNeeds, shard.DSN.Database()
	n.PacketBytes = max(n.PacketBytes, 2*cfg.Outbox.EventBytesMax+packetSpareBytes)
	n.Connections = Connections(cfg)
	n.Privileges = []mysqldb.Privileges{
		{Names: mysqldb.PrivilegeNames(shardPrivileges), Database: db, Table: "*", Sign: checkup.Stops, Why: "the sink and apply need it; slotline apply --grants prints all"},
		{Names: mysqldb.PrivilegeNames(replayPrivileges), Database: db, Table: "*", Sign: checkup.Hurts, Why: "slotline replay needs it, to rebuild this shard"},
	}
	blockers := mysqldb.Privileges{Names: []string{"SELECT"}, Database: "performance_schema", Table: "*"}
	if mariaDB {
		blockers = mysqldb.Privileges{Names: []string{"PROCESS"}, Database: "*", Table: "*"}
	}
	blockers.Sign, blockers.Why = checkup.Hurts, "a take-over cannot find who holds the progress row, and may wait for a minute"
	n.Privileges = append(n.Privileges, blockers)
	return n
}

// Connections is how many sessions one process's sink opens in each shard at most.
func Connections(cfg *config.Config) int {
	return max(1, cfg.Sinks.MySQL.ConnectionsPerShard-controlConnections) + controlConnections + 1
}
