package integration

import (
	"testing"

	"github.com/slotline/slotline/integration/harness"
)

// MariaDB is the second dialect: it has no row alias, and a NO PAD collation of another name.
func TestMySQLSinkConformsOnMariaDB(t *testing.T) {
	harness.Proof(t)
	mysqlSinkConforms(t, harness.PrivateMariaDB(t), -1)
}
