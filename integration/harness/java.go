package harness

import (
	"sync"
	"testing"
)

var jdbcDriver = sync.OnceValues(func() (string, error) { return script("java.sh") })

// JDBC makes sure of a JDK on this machine and returns the path of MySQL's JDBC driver, for programs in Java.
func JDBC(t testing.TB) string {
	t.Helper()
	need(t)
	jar, err := jdbcDriver()
	if err != nil {
		unavailable(t, "no Java: "+err.Error())
	}
	return jar
}
