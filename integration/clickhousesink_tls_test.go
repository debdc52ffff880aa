package integration

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/integration/harness"
)

// tlsProxy speaks TLS with a certificate that nobody trusts, and passes on what it is told in plain text.
func tlsProxy(t *testing.T, server string) (addr string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { // ends when either side closes
				defer client.Close()
				if client.(*tls.Conn).Handshake() != nil {
					return
				}
				upstream, err := net.Dial("tcp", server)
				if err != nil {
					return
				}
				defer upstream.Close()
				go func() {
					io.Copy(upstream, client)
					upstream.Close()
				}()
				io.Copy(client, upstream)
			}()
		}
	}()
	return listener.Addr().String()
}

// A sink over TLS writes and reads. A certificate that is not trusted, and a port without TLS, are said at the start, and
// are not waited for.
func TestClickHouseSinkTLS(t *testing.T) {
	server := harness.ClickHouse(t)
	l := newOLAPLine(t, server, olapTables)
	l.hosts, l.params = tlsProxy(t, server.Addr), "secure=skip-verify"
	o := l.takeOver(l.sink("a"))
	l.applyBatch(o, l.cut(o, l.message(1, "items", event.Upsert, 1, item(l.tenant(1), 1, "one"))))
	l.wantView("items_now", "item,name", "1|one")

	for _, c := range []struct{ name, hosts, want, do string }{
		{"a certificate that is not trusted", l.hosts, "certificate", "secure=skip-verify"},
		{"a port without TLS", server.Addr, "TLS handshake", "take secure out of sinks.clickhouse.dsn"},
	} {
		l.hosts, l.params = c.hosts, "secure=true"
		s := l.sink("b")
		_, err := s.TakeOver(t.Context(), s.Groups()[0])
		if !fault.Is(err, fault.Usage) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.do) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// Settings in the URL go with each statement, and one that the server does not know is refused at the start.
func TestClickHouseSinkSettings(t *testing.T) {
	l := newOLAPLine(t, harness.ClickHouse(t), olapTables)
	l.params = "max_block_size=4321"
	o := l.takeOver(l.sink("a"))
	l.applyBatch(o, l.cut(o, l.message(1, "items", event.Upsert, 1, item(l.tenant(1), 1, "one"))))
	l.wantView("items_now", "item,name", "1|one")

	l.params = "no_such_setting=1"
	s := l.sink("b")
	_, err := s.TakeOver(t.Context(), s.Groups()[0])
	if !fault.Is(err, fault.Fatal) || !strings.Contains(err.Error(), "no_such_setting") || !strings.Contains(err.Error(), "do: mend the URL") {
		t.Errorf("a setting that the server does not know: %v", err)
	}
}
