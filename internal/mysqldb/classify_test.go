package mysqldb

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/slotline/slotline/fault"
)

func server(number uint16, state string) error {
	e := &mysql.MySQLError{Number: number, Message: "as the server says it"}
	copy(e.SQLState[:], state)
	return e
}

// P7: an outage must never look like bad data, and bad data never like an outage.
func TestP7_OutagesAreNotData(t *testing.T) {
	outages := map[string]error{
		"disk full":                    server(1021, "HY000"),
		"disk full on write":           server(1026, "HY000"),
		"table full":                   server(1114, "HY000"),
		"disk full on create":          server(3675, "HY000"),
		"--read-only":                  server(1290, "HY000"),
		"read-only mode":               server(1836, "HY000"),
		"read-only transaction":        server(1792, "25006"),
		"too many connections":         server(1040, "08004"),
		"too many of this user":        server(1203, "42000"),
		"past the user's limit":        server(1226, "42000"),
		"shutting down":                server(1053, "08S01"),
		"shut down":                    server(1077, "HY000"),
		"shutdown complete":            server(1079, "HY000"),
		"lock wait":                    server(1205, "HY000"),
		"deadlock":                     server(1213, "40001"),
		"nowait":                       server(3572, "HY000"),
		"killed":                       server(1317, "70100"),
		"max_execution_time":           server(3024, "HY000"),
		"offline mode":                 server(3032, "HY000"),
		"unlisted, rolled back":        server(65_001, "40001"),
		"unlisted, connection":         server(65_002, "08S01"),
		"bad connection":               driver.ErrBadConn,
		"invalid connection":           mysql.ErrInvalidConn,
		"closed":                       io.EOF,
		"cut short":                    io.ErrUnexpectedEOF,
		"refused":                      &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)},
		"no such host":                 &net.DNSError{Err: "no such host", Name: "db1", IsNotFound: true},
		"timed out":                    &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded},
		"time is up":                   context.DeadlineExceeded,
		"stopped":                      context.Canceled,
		"connection went back":         sql.ErrConnDone,
		"transaction ended":            sql.ErrTxDone,
		"wrapped":                      fmt.Errorf("shard s1: %w", server(1290, "HY000")),
		"joined with something else":   errors.Join(errors.New("rollback failed"), server(1213, "40001")),
		"in a session that was set up": fmt.Errorf("setting the session up: %w", mysql.ErrInvalidConn),
	}
	for name, err := range outages {
		if c := Classify(err); c != fault.Transient {
			t.Errorf("%s (%v) is %v", name, err, c)
		}
	}
	for _, n := range []uint16{1048, 1264, 1265, 1292, 1366, 1406, 1411, 1690, 3140, 3819, 4025} {
		if c := Classify(server(n, "HY000")); c != fault.Data {
			t.Errorf("%d is %v", n, c)
		}
	}
	if c := Classify(server(65_003, "22003")); c != fault.Data {
		t.Errorf("an unlisted number of SQLSTATE 22 is %v", c)
	}
	for _, n := range []uint16{1044, 1045, 1049, 1054, 1062, 1064, 1136, 1142, 1143, 1146, 1153, 1227, 1364} {
		if c := Classify(server(n, "HY000")); c != fault.Fatal {
			t.Errorf("%d is %v", n, c)
		}
	}
	for _, err := range []error{mysql.ErrPktTooLarge, mysql.ErrNoTLS} {
		if c := Classify(err); c != fault.Fatal {
			t.Errorf("%v is %v", err, c)
		}
	}
	for _, err := range []error{nil, errors.New("anything"), server(1105, "HY000"), server(65_004, "HY000"), server(65_005, "")} {
		if c := Classify(err); c != fault.Unknown {
			t.Errorf("%v is %v", err, c)
		}
	}
}

func TestWrap(t *testing.T) {
	if Wrap(nil, "SL3101", "shard s1") != nil {
		t.Error("nil became an error")
	}
	cause := server(1290, "HY000")
	err := Wrap(fmt.Errorf("commit: %w", cause), "SL3101", "shard s1")
	if fault.CodeOf(err) != "SL3101" || !fault.Is(err, fault.Transient) || !errors.Is(err, cause) || Number(err) != 1290 {
		t.Errorf("%v", err)
	}
	for _, part := range []string{"shard s1: ", "as the server says it", "(error 1290)", "do: ", "primary"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in: %v", part, err)
		}
	}
	again := Wrap(fmt.Errorf("outer: %w", err), "SL9999", "elsewhere")
	if fault.CodeOf(again) != "SL3101" {
		t.Errorf("a fault was given another code: %v", again)
	}
	if plain := Wrap(errors.New("anything"), "SL3101", "shard s1"); plain.Error() != "shard s1: anything [SL3101]" {
		t.Errorf("%v", plain)
	}
	for want, cause := range map[string]error{
		"do: start the server, or correct host and port": &net.OpError{Op: "dial", Err: errors.New("connection refused")},
		"do: correct the host in the DSN":                &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host"}},
		"the time for it ran out":                        context.DeadlineExceeded,
		"do: let the server have a certificate":          &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}},
	} {
		if err := Wrap(cause, "SL3101", "shard s1"); !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
}
