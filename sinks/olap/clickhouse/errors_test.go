package clickhouse

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ClickHouse/ch-go"
	"github.com/ClickHouse/ch-go/proto"

	"github.com/slotline/slotline/fault"
)

// The document is what a person reads at night; it must say what the code does.
func TestErrorDocument(t *testing.T) {
	var b strings.Builder
	b.WriteString(`# ClickHouse's errors

What slotline does with each error of a ClickHouse server. Numbers and names are the server's own. This file is written
from the code (` + "`go test ./sinks/olap/clickhouse -update`" + `) and a test compares them.

An error of the way to the server (refused, reset, timed out, closed) is transient. A column whose type is not the
file's any more, which the sink sees before it sends a row, is fatal. A connection is closed after any error.

`)
	for _, s := range []struct {
		class       fault.Class
		title, text string
	}{
		{fault.Transient, "Transient", "An outage. The block is sent again, under the same token, for ever, with backoff, and `slotline status` shows it. No event goes to the dead-letter topic."},
		{fault.Fatal, "Fatal", "Retrying cannot help, and skipping would lose rows. The group's partitions halt and say so; the others go on."},
		{fault.Usage, "Usage", "Of the address, user or password. At the start the command ends with status 2; later, partitions halt."},
	} {
		fmt.Fprintf(&b, "## %s\n%s\n\n| number | name | meaning | do |\n|---|---|---|---|\n", s.title, s.text)
		var list []proto.Error
		for n, k := range codes {
			if k.class == s.class {
				list = append(list, n)
			}
		}
		slices.SortFunc(list, func(a, b proto.Error) int { return cmp.Compare(a, b) })
		for _, n := range list {
			fmt.Fprintf(&b, "| %d | %s | %s | %s |\n", n, codes[n].name, codes[n].meaning, codes[n].do)
		}
		b.WriteString("\n")
	}
	b.WriteString("## Unknown\nAll other numbers. Treated as transient by everything that runs, and as a failure by commands.\n\n" +
		"No error of the server is taken for a fault of one event: blocks are checked before they are sent (docs/types.md).\n")
	golden(t, "../../../docs/clickhouse-errors.md", b.String())
}

func TestErrorTableIsWhole(t *testing.T) {
	for n, k := range codes {
		if k.class == fault.Unknown || k.class == fault.Data || k.name == "" || k.meaning == "" || k.do == "" {
			t.Errorf("%d: %+v", n, k)
		}
		if k.name != strings.ToUpper(k.name) {
			t.Errorf("%d is named %s", n, k.name)
		}
	}
}

func TestClassify(t *testing.T) {
	exception := func(n proto.Error) error { return fmt.Errorf("handle packet: %w", &ch.Exception{Code: n}) }
	for _, c := range []struct {
		err  error
		want fault.Class
	}{
		{nil, fault.Unknown},
		{errors.New("something"), fault.Unknown},
		{exception(252), fault.Transient},
		{exception(241), fault.Transient},
		{exception(159), fault.Transient},
		{exception(242), fault.Transient},
		{exception(236), fault.Transient},
		{exception(60), fault.Fatal},
		{exception(47), fault.Fatal},
		{exception(16), fault.Fatal},
		{exception(53), fault.Fatal},
		{exception(516), fault.Usage},
		{exception(192), fault.Usage},
		{exception(193), fault.Usage},
		{exception(81), fault.Usage},
		{exception(49), fault.Unknown},
		{fmt.Errorf("dial: %w", &net.OpError{Op: "dial", Err: errors.New("connection refused")}), fault.Transient},
		{fmt.Errorf("packet: %w", io.EOF), fault.Transient},
		{fmt.Errorf("packet: %w", io.ErrUnexpectedEOF), fault.Transient},
		{context.DeadlineExceeded, fault.Transient},
		{context.Canceled, fault.Transient},
		{ch.ErrClosed, fault.Transient},
		{errors.Join(errors.New("first host"), &net.OpError{Op: "dial", Err: errors.New("refused")}), fault.Transient},
		{fmt.Errorf("infer: %w", &typeError{"c", "String", "Int32"}), fault.Fatal},
		{&fault.Error{Class: fault.Fenced}, fault.Fenced},
		{fmt.Errorf("dial: %w", &tls.CertificateVerificationError{Err: errors.New("unknown authority")}), fault.Usage},
		{fmt.Errorf("dial: %w", tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}), fault.Usage},
	} {
		if got := Classify(c.err); got != c.want {
			t.Errorf("%v: %s, wanted %s", c.err, got, c.want)
		}
	}
}

// An error names the server, says what it said once, and what to do; refused logins have a code of their own.
func TestWrap(t *testing.T) {
	for _, c := range []struct {
		exception ch.Exception
		code      string
		want      string
	}{
		{ch.Exception{Code: 252, Name: "DB::Exception", Message: "DB::Exception: Too many parts (3000). Merges are processing significantly slower than inserts. (TOO_MANY_PARTS) (version 26.7.3.1 (official build))"},
			codeFatal, "clickhouse (ch1/flights): Too many parts (3000). Merges are processing significantly slower than inserts. (TOO_MANY_PARTS) (code 252)"},
		{ch.Exception{Code: 516, Name: "DB::Exception", Message: "slotline: Authentication failed"}, codeLogin, "slotline: Authentication failed (code 516)"},
		{ch.Exception{Code: 81, Message: "Database flights does not exist. Stack trace: 0x1 0x2"}, codeDatabase, "Database flights does not exist. (code 81)"},
		{ch.Exception{Code: 497, Message: "slotline: Not enough privileges"}, codeDenied, "Not enough privileges (code 497)"},
		{ch.Exception{Code: 49, Message: strings.Repeat("ü", 1000)}, codeFatal, "ü… (code 49)"},
	} {
		err := wrap(&c.exception, codeFatal, "clickhouse (ch1/flights)")
		if fault.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\nwanted code %s and %s", err, c.code, c.want)
		}
		if len(err.Error()) > 800 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	}
	if wrap(nil, codeFatal, "x") != nil {
		t.Error("nil became an error")
	}
}

// Where no server answered a person reads that, and what to do, not how far the client's handshake had come.
func TestNoAnswerIsSaidInWords(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	for _, c := range []struct {
		err  error
		says []string
	}{
		{fmt.Errorf("handshake: failed: packet: uvarint: read: %w", os.ErrDeadlineExceeded), []string{"ch1/flights: no answer in time [SL4009]", "says nothing", "do: see whether the server is up"}},
		{fmt.Errorf("connect: %w", context.DeadlineExceeded), []string{"no answer in time", "do: "}},
		{fmt.Errorf("connect: %w", context.Canceled), []string{"interrupted before it had answered"}},
		{fmt.Errorf("connect: dial: %w", refused), []string{"connection refused", "host and port in sinks.clickhouse.dsn"}},
	} {
		err := wrap(c.err, codeAsk, "clickhouse (ch1/flights)")
		if !fault.Is(err, fault.Transient) || !errors.Is(err, c.err) {
			t.Errorf("%v is %v", c.err, err)
		}
		for _, says := range c.says {
			if says = strings.Replace(says, "ch1/flights:", "clickhouse (ch1/flights):", 1); !strings.Contains(err.Error(), says) {
				t.Errorf("%v: a person reads\n%v\nwithout %q", c.err, err, says)
			}
		}
	}
}
