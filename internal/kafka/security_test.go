package kafka

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
)

// certificate makes a certificate that is its own authority, for hosts and from now to the time given.
func certificate(t *testing.T, until time.Time, hosts ...string) (pair tls.Certificate, cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, b := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: pkcs8}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}, cert, key
}

// configOf reads a file whose section kafka has these keys too.
func configOf(t *testing.T, brokers []string, keys string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("slotline.yaml", fmt.Appendf(nil, `
line: flights
kafka: { brokers: [%s], replication: 1, partitions: 4, %s }
outbox: { dsn: "mysql://app@db0/flights" }
shards: { s1: { dsn: "mysql://app@db1/s1" , slots: 0-1023 } }
tables: { t: { id: i, columns: { i: int64 } } }
`, strings.Join(brokers, ", "), keys))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func login(mechanism, user, password string) string {
	return fmt.Sprintf("sasl: { %s: { user: %s, password: %s } }", mechanism, user, password)
}

// All that this package does, over TLS and with each mechanism; the broker takes nothing else.
func TestTLSAndLogin(t *testing.T) {
	pair, ca, _ := certificate(t, time.Now().Add(time.Hour), "127.0.0.1")
	for mechanism, method := range map[string]string{"scram-sha-512": "SCRAM-SHA-512", "scram-sha-256": "SCRAM-SHA-256", "plain": "PLAIN"} {
		t.Run(mechanism, func(t *testing.T) {
			c, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.EnableSASL(), kfake.Superuser(method, "line", "pw"),
				kfake.TLS(&tls.Config{Certificates: []tls.Certificate{pair}}))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			cfg := configOf(t, c.ListenAddrs(), "tls: { ca: "+ca+" }, "+login(mechanism, "line", "pw"))
			cl := open(t, cfg)
			for _, topic := range Topics(cfg) {
				if err := topic.Create(t.Context(), cl); err != nil {
					t.Fatal(err)
				}
			}
			p, err := NewPublisher(t.Context(), cfg, "test", nil)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			to := event.Partition{Topic: cfg.Kafka.Topic, Number: 3}
			if _, _, err := p.Publish(t.Context(), to, event.Record{Key: []byte("k"), Value: []byte("v")}); err != nil {
				t.Fatal(err)
			}
			dead, err := NewDead(cfg, "sink-mysql", nil)
			if err != nil {
				t.Fatal(err)
			}
			defer dead.Close()
			if err := dead.Produce(t.Context(), []DeadLetter{{Sink: "mysql", Partition: to, Reason: "too_long", At: time.Now()}}); err != nil {
				t.Fatal(err)
			}
			if letters, err := DeadLetters(t.Context(), cfg, nil, nil); err != nil || len(letters) != 1 {
				t.Errorf("%d letters, %v", len(letters), err)
			}
			found, err := FindKey(t.Context(), cfg, nil, cl, to, []byte("k"), 5, 100, nil)
			if err != nil || len(found.Records) != 1 {
				t.Errorf("%+v, %v", found, err)
			}
		})
	}
}

// A broker that asks for a certificate gets the one of the file, by any of the broker's names.
func TestMutualTLS(t *testing.T) {
	pair, ca, _ := certificate(t, time.Now().Add(time.Hour), "kafka.internal")
	own, cert, key := certificate(t, time.Now().Add(time.Hour))
	trusted := x509.NewCertPool()
	leaf, err := x509.ParseCertificate(own.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	trusted.AddCert(leaf)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} { // 1.2 refuses a client in the handshake, 1.3 after it
		t.Run(tls.VersionName(version), func(t *testing.T) {
			c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.TLS(&tls.Config{Certificates: []tls.Certificate{pair},
				ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: trusted, MinVersion: version, MaxVersion: version}))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			open(t, configOf(t, c.ListenAddrs(), fmt.Sprintf("tls: { ca: %s, cert: %s, key: %s, server_name: kafka.internal }", ca, cert, key)))

			_, err = Open(t.Context(), configOf(t, c.ListenAddrs(), fmt.Sprintf("tls: { ca: %s, server_name: kafka.internal }", ca)), "test", nil)
			if fault.CodeOf(err) != "SL2015" || !strings.Contains(err.Error(), "kafka.tls.cert and kafka.tls.key") {
				t.Errorf("without a certificate: %v", err)
			}
		})
	}
}

// What the file says and what the broker asks for do not go together: that is said at once, with the broker and the key.
func TestWhatDoesNotGoTogetherIsSaid(t *testing.T) {
	pair, ca, _ := certificate(t, time.Now().Add(time.Hour), "127.0.0.1")
	expired, expiredCA, _ := certificate(t, time.Now().Add(-time.Hour), "127.0.0.1")
	_, otherCA, _ := certificate(t, time.Now().Add(time.Hour), "127.0.0.1")
	cluster := func(opts ...kfake.Opt) *kfake.Cluster {
		c, err := kfake.NewCluster(append(opts, kfake.NumBrokers(1))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	secure := kfake.TLS(&tls.Config{Certificates: []tls.Certificate{pair}})
	overTLS := cluster(secure)
	withLogin := cluster(kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "line", "pw"))
	// kfake closes the connection where Kafka answers.
	answering := func(key int16, resp func(kmsg.Request) kmsg.Response) *kfake.Cluster {
		c := cluster()
		c.ControlKey(key, func(req kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			return resp(req), nil, true
		})
		return c
	}
	shake := func(code int16) *kfake.Cluster {
		return answering(int16(kmsg.SASLHandshake), func(req kmsg.Request) kmsg.Response {
			r := req.ResponseKind().(*kmsg.SASLHandshakeResponse)
			r.ErrorCode = code
			return r
		})
	}
	const said = "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512"
	refusing := shake(0)
	refusing.ControlKey(int16(kmsg.SASLAuthenticate), func(req kmsg.Request) (kmsg.Response, error, bool) {
		refusing.KeepControl()
		r := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		r.ErrorCode, r.ErrorMessage = kerr.SaslAuthenticationFailed.Code, kmsg.StringPtr(said)
		return r, nil, true
	})
	asLine := login("scram-sha-512", "line", "hunter2")
	for _, c := range []struct {
		name, keys, code string
		at               *kfake.Cluster
		want             []string
	}{
		{"a wrong password", asLine, "SL2014", refusing, []string{"refuses user or password", said, "do: check user and password of kafka.sasl"}},
		{"an unknown mechanism", asLine, "SL2014", shake(kerr.UnsupportedSaslMechanism.Code), []string{"does not take the mechanism", "sasl.enabled.mechanisms"}},
		{"a login at a port without", asLine, "SL2014", shake(kerr.IllegalSaslState.Code), []string{"takes no login", "take kafka.sasl out"}},
		{"no login", "", "SL2001", withLogin, []string{"closed the connection at the first request", "it wants a login: write kafka.sasl"}},
		{"another authority", "tls: { ca: " + otherCA + " }", "SL2015", overTLS, []string{"TLS with ", "authority that is not trusted", "kafka.tls.ca has to name"}},
		{"the system's authorities", "tls: {}", "SL2015", overTLS, []string{"authority that is not trusted", "kafka.tls.ca has to name"}},
		{"another name", "tls: { ca: " + ca + ", server_name: kafka.internal }", "SL2015", overTLS, []string{"certificate is", "kafka.internal", "kafka.tls.server_name"}},
		{"an expired certificate", "tls: { ca: " + expiredCA + " }", "SL2015",
			cluster(kfake.TLS(&tls.Config{Certificates: []tls.Certificate{expired}})), []string{"certificate has expired", "the clock of this machine"}},
		{"plain text to a port with TLS", "", "", overTLS, []string{"write kafka.tls"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			broker := c.at.ListenAddrs()[0]
			_, err := Open(t.Context(), configOf(t, []string{broker}, c.keys), "test", nil)
			if f := (*fault.Error)(nil); !errors.As(err, &f) || f.Class != fault.Transient || f.Do == "" {
				t.Fatalf("no fault, or one that is not waited for: %+v", err)
			}
			if c.code != "" && fault.CodeOf(err) != c.code {
				t.Errorf("code %s, not %s", fault.CodeOf(err), c.code)
			}
			for _, want := range append(c.want, "cannot contact Kafka: ", broker) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("lacks %q:\n%v", want, err)
				}
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("a password is printed: %v", err)
			}
		})
	}

	// Over a connection that was refused at the first request the library's sentences are all there is.
	for sentence, want := range map[string]string{
		"the first three bytes received appear to be a tls alert record for TLS v1.2; is this a plaintext connection speaking to a tls endpoint?": "SL2015",
		"anything else": "SL2010",
	} {
		if got := fault.CodeOf(Wrap(errors.New(sentence), []string{"kafka1:9092"}, "contact Kafka")); got != want {
			t.Errorf("%s: %s", sentence, got)
		}
	}

	t.Run("TLS to a port without", func(t *testing.T) {
		// A broker takes the first bytes for a length that is out of all bounds, and closes; a port of something else may say
		// nothing.
		closing, mute := listen(t, func(c net.Conn) { c.Read(make([]byte, 4)); c.Close() }), listen(t, func(net.Conn) {})
		_, err := Open(t.Context(), configOf(t, []string{closing}, "tls: {}"), "test", nil)
		if fault.CodeOf(err) != "SL2015" || !strings.Contains(err.Error(), "TLS with "+closing+": the broker does not answer as TLS does: it closed the connection") ||
			!strings.Contains(err.Error(), "take kafka.tls out") {
			t.Errorf("%v", err)
		}
		began := time.Now()
		_, err = dialTLS(&tls.Config{}, 50*time.Millisecond)(t.Context(), "tcp", mute)
		err = Wrap(err, nil, "contact Kafka")
		if fault.CodeOf(err) != "SL2015" || !strings.Contains(err.Error(), mute+": the broker takes the connection and says nothing: no answer within 50ms") ||
			!strings.Contains(err.Error(), "do: see whether the broker is at work") {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if dialTimeout > 8*time.Second {
			t.Errorf("a broker that says nothing is waited for %v", dialTimeout)
		}
	})
}

func listen(t *testing.T, serve func(net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
			go serve(c)
		}
	}()
	return l.Addr().String()
}

// Files and variables that are not there are said before a broker is asked. Those that go away later are an outage: it is
// over when they are back.
func TestMissingFilesAndVariables(t *testing.T) {
	for keys, want := range map[string]string{
		"tls: { ca: /nowhere/ca.pem }":                                    "SL1017",
		login("scram-sha-512", "line", `"${SLOTLINE_TEST_UNSET}"`):        "SL1011",
		login("scram-sha-512", "line", `"${file:/nowhere/kafka/secret}"`): "SL1011",
	} {
		cl, err := NewClient(configOf(t, []string{"127.0.0.1:1"}, keys), "test", nil)
		if cl != nil || fault.CodeOf(err) != want || !fault.Is(err, fault.Usage) {
			t.Errorf("%s: %v", keys, err)
		}
	}

	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "line", "pw"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	secret := filepath.Join(t.TempDir(), "secret")
	write := func(password string) {
		if err := os.WriteFile(secret, []byte(password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("old")
	cfg := configOf(t, c.ListenAddrs(), login("scram-sha-512", "line", `"${file:`+secret+`}"`))
	cl, err := NewClient(cfg, "test", nil, kgo.RequestRetries(0))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.Ping(t.Context()); err == nil {
		t.Fatal("a wrong password was taken")
	}
	if err := os.Remove(secret); err != nil {
		t.Fatal(err)
	}
	err = Wrap(cl.Ping(t.Context()), cfg.Kafka.Brokers, "contact Kafka")
	if fault.CodeOf(err) != "SL1011" || !fault.Is(err, fault.Transient) || Classify(err) != fault.Transient {
		t.Errorf("a secret that went away: %v", err)
	}
	write("pw")
	if err := cl.Ping(t.Context()); err != nil {
		t.Errorf("the new password is not used: %v", err)
	}
}

// A client's own certificate that is half renewed is an outage, not a verdict, and what comes of it is the file's name.
func TestClassifySecurity(t *testing.T) {
	inner := &fault.Error{Code: "SL1017", Class: fault.Usage, What: "file /x does not go with file /y", Do: "name the key"}
	err := fmt.Errorf("unable to dial: %w", &handshakeError{"kafka1:9093", inner})
	if got := Wrap(err, nil, "read"); Classify(err) != fault.Transient || !fault.Is(got, fault.Transient) || fault.CodeOf(got) != "SL1017" ||
		!strings.Contains(got.Error(), "cannot read: file /x") || !strings.Contains(got.Error(), "do: name the key") {
		t.Errorf("%v", got)
	}
	for err, want := range map[error]fault.Class{
		kerr.SaslAuthenticationFailed: fault.Transient, kerr.TopicAuthorizationFailed: fault.Fatal,
		&handshakeError{"kafka1:9093", io.EOF}: fault.Transient, &handshakeError{"kafka1:9093", context.Canceled}: fault.Transient,
	} {
		if got := Classify(fmt.Errorf("wrapped: %w", err)); got != want {
			t.Errorf("%v is %v, want %v", err, got, want)
		}
	}
	if err := fmt.Errorf("unable to dial: %w", &handshakeError{"kafka1:9093", context.Canceled}); Wrap(err, nil, "read") != err {
		t.Error("a cancelled handshake is made a fault")
	}
}

// A client that is refused for long says so in the line's words, not at the first try and not each time; and the library's
// own lines stay what they were.
func TestRefusedClientIsSaid(t *testing.T) {
	var out strings.Builder
	log := &clientLog{log: slog.New(slog.NewTextHandler(&out, nil)), brokers: []string{"kafka1:9093"}}
	at := time.Date(2026, 11, 30, 23, 59, 0, 0, time.UTC)
	told := 0
	for range 200 { // 100 s, twice a second
		if log.tell(at) {
			told++
			if told == 1 && at.Second() != 2 {
				t.Errorf("told at %v", at)
			}
		}
		at = at.Add(500 * time.Millisecond)
	}
	if told != 2 {
		t.Errorf("told %d times in 100 s", told)
	}
	if at = at.Add(time.Hour); log.tell(at) {
		t.Error("one refusal, an hour later, is told")
	}

	log.first, log.latest, log.said = time.Now().Add(-time.Minute), time.Now(), time.Time{}
	log.Log(kgo.LogLevelError, "unable to initialize sasl", "broker", "1", "err", kerr.SaslAuthenticationFailed)
	log.Log(kgo.LogLevelError, "unable to initialize sasl", "broker", "1", "err", kerr.SaslAuthenticationFailed)
	log.Log(kgo.LogLevelWarn, "unable to open connection to broker", "err", io.EOF)
	log.Log(kgo.LogLevelError, "something else", "err", io.EOF)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "level=WARN") || !strings.Contains(lines[0], "kafka1:9093: Kafka refuses user or password") ||
		!strings.Contains(lines[0], "code=SL2014") || !strings.Contains(lines[1], `level=INFO msg="kafka client: something else"`) {
		t.Errorf("%s", out.String())
	}
}

// What apply --grants prints of Kafka; that it is enough is for integration/kafka_secure_test.go to show.
func TestGrants(t *testing.T) {
	const cli = "-- kafka-acls.sh --bootstrap-server kafka1:9093 --command-config ADMIN.properties --add --allow-principal "
	const topic = "--operation Read --operation Write --operation Create --operation Alter --operation AlterConfigs --topic "
	cfg := configOf(t, []string{"kafka1:9093", "kafka2:9093"}, login("scram-sha-512", `"${SLOTLINE_TEST_KAFKA_USER}"`, `"${SLOTLINE_TEST_NO_PASSWORD}"`))
	cfg.Outbox.Transactional = true
	// A user that has no value here is shown as what a shell refuses to take for one.
	if got := Grants(cfg); len(got) != 6 || !strings.HasPrefix(got[1], "-- the user of kafka.sasl is ${SLOTLINE_TEST_KAFKA_USER}, ") ||
		!strings.HasPrefix(got[2], cli+"User:<user of the part> "+topic+"flights.events") {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
	t.Setenv("SLOTLINE_TEST_KAFKA_USER", "relay")
	want := []string{"-- Kafka, where the brokers have an authorizer:",
		cli + "'User:relay' " + topic + "flights.events",
		cli + "'User:relay' " + topic + "flights.dead",
		cli + "'User:relay' --operation Read --resource-pattern-type prefixed --group slotline.flights.",
		cli + "'User:relay' --operation Write --operation Describe --resource-pattern-type prefixed --transactional-id slotline-flights-lane-"}
	if got := Grants(cfg); !slices.Equal(got, want) {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
	cfg.Outbox.Transactional = false
	if got := Grants(cfg); !slices.Equal(got, want[:4]) {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
	cfg.Archive = &config.Archive{Dir: "/srv/archive"} // Delete is not the line's right
	if got := Grants(cfg); len(got) != 6 || got[5] != cli+"User:<operator> --operation Delete --topic flights.events" {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
	if got := Grants(configOf(t, []string{"kafka1:9092"}, "tls: {}")); got != nil {
		t.Errorf("a file without a user: %s", got)
	}
	if got := Grants(configOf(t, []string{"kafka1:9092"}, "tls: { cert: /c.pem, key: /k.pem }")); len(got) != 4 || !strings.Contains(got[1], "'User:CN=") {
		t.Errorf("%s", got)
	}
}
