package harness

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// SecureKafka is one broker that knows its users and has an authorizer. It has listeners of every kind.
type SecureKafka struct {
	Outage
	Plain  string // host:port without TLS and login; whoever comes here may do everything
	Login  string // of TLS and SASL: scram-sha-512, scram-sha-256 and plain
	Mutual string // of TLS with certificates of the clients: User:CN=<name>
	Bare   string // of SASL without TLS
	CA     *Authority
}

// Authority signs certificates for tests.
type Authority struct {
	File string // its certificate, PEM
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes an authority of its own.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority of a test"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	a := &Authority{File: filepath.Join(t.TempDir(), "ca.pem"), key: key}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(a.File, pemOf("CERTIFICATE", der), 0o600); err != nil {
		t.Fatal(err)
	}
	return a
}

// Certificate signs one for that name, which is also good for 127.0.0.1 and localhost, and returns it and its key as PEM.
func (a *Authority) Certificate(t testing.TB, name string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pemOf("CERTIFICATE", der), pemOf("PRIVATE KEY", pkcs8)
}

// Files writes such a certificate and its key.
func (a *Authority) Files(t testing.TB, name string) (cert, key string) {
	t.Helper()
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	c, k := a.Certificate(t, name)
	for path, data := range map[string][]byte{cert: c, key: k} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// StartSecureKafka starts such a broker for this test alone. PLAIN has the users of plain, with their passwords; SCRAM
// has those that User makes.
func StartSecureKafka(t testing.TB, plain map[string]string) *SecureKafka {
	t.Helper()
	need(t)
	ca := NewAuthority(t)
	cert, key := ca.Certificate(t, "broker")
	authority, err := os.ReadFile(ca.File)
	if err != nil {
		t.Fatal(err)
	}
	users := ""
	for user, password := range plain {
		users += fmt.Sprintf(" user_%s=%q", user, password)
	}
	jaas := "KafkaServer {\n org.apache.kafka.common.security.scram.ScramLoginModule required;\n" +
		" org.apache.kafka.common.security.plain.PlainLoginModule required" + users + ";\n};\n"
	s, err := spec{
		image: kafkaImage,
		port:  9092,
		more:  []int{9095, 9096, 9097},
		files: map[string][]byte{"/tmp/broker.pem": append(key, cert...), "/tmp/ca.pem": authority, "/tmp/jaas.conf": []byte(jaas)},
		env: func(port int, more ...int) map[string]string {
			env := kafkaEnv(port)
			maps.Copy(env, map[string]string{
				"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -Djava.security.auth.login.config=/tmp/jaas.conf",
				"KAFKA_LISTENERS":   env["KAFKA_LISTENERS"] + ",LOGIN://0.0.0.0:9095,MUTUAL://0.0.0.0:9096,BARE://0.0.0.0:9097",
				"KAFKA_ADVERTISED_LISTENERS": env["KAFKA_ADVERTISED_LISTENERS"] +
					",LOGIN://" + loopback(more[0]) + ",MUTUAL://" + loopback(more[1]) + ",BARE://" + loopback(more[2]),
				"KAFKA_LISTENER_SECURITY_PROTOCOL_MAP":       env["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"] + ",LOGIN:SASL_SSL,MUTUAL:SSL,BARE:SASL_PLAINTEXT",
				"KAFKA_SASL_ENABLED_MECHANISMS":              "SCRAM-SHA-512,SCRAM-SHA-256,PLAIN",
				"KAFKA_SSL_KEYSTORE_TYPE":                    "PEM",
				"KAFKA_SSL_KEYSTORE_LOCATION":                "/tmp/broker.pem",
				"KAFKA_SSL_TRUSTSTORE_TYPE":                  "PEM",
				"KAFKA_SSL_TRUSTSTORE_LOCATION":              "/tmp/ca.pem",
				"KAFKA_LISTENER_NAME_MUTUAL_SSL_CLIENT_AUTH": "required",
				"KAFKA_CONNECTIONS_MAX_REAUTH_MS":            "6000", // a user whose password is changed is out within these
				"KAFKA_AUTHORIZER_CLASS_NAME":                "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
				"KAFKA_SUPER_USERS":                          "User:ANONYMOUS",
			})
			return env
		},
		ready: func(port int) func(context.Context) error { return kafkaReady([]string{loopback(port)}) },
	}.start()
	if err != nil {
		unavailable(t, err.Error())
	}
	t.Cleanup(s.remove)
	return &SecureKafka{Outage: Outage{s}, CA: ca, Plain: loopback(s.port), Login: loopback(s.more[0]), Mutual: loopback(s.more[1]), Bare: loopback(s.more[2])}
}

// Admin may do everything.
func (k *SecureKafka) Admin(t testing.TB) *kadm.Client {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(k.Plain))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return kadm.NewClient(c)
}

// User makes a user for both SCRAM mechanisms, and waits until the broker knows it.
func (k *SecureKafka) User(t testing.TB, user, password string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stepTimeout)
	defer cancel()
	admin := k.Admin(t)
	for _, m := range []kadm.ScramMechanism{kadm.ScramSha256, kadm.ScramSha512} { // one request takes a user once
		done, err := admin.AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{{User: user, Mechanism: m, Iterations: 4096, Password: password}})
		if err == nil {
			err = done.Error()
		}
		if err != nil {
			t.Fatalf("user %s: %v", user, err)
		}
	}
	k.settled(t, "user "+user, func(ctx context.Context) (bool, error) {
		all, err := admin.DescribeUserSCRAMs(ctx, user)
		return len(all[user].CredInfos) == 2, err
	})
}

// settled waits until the broker, which takes its controller's records by and by, has what was written.
func (k *SecureKafka) settled(t testing.TB, what string, is func(context.Context) (bool, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stepTimeout)
	defer cancel()
	for {
		ok, err := is(ctx)
		if err == nil && ok {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not there after %v: %v", what, stepTimeout, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Grant gives a user what a line of kafka-acls.sh says, as `slotline apply --grants` prints it, and waits until the broker
// has it.
func (k *SecureKafka) Grant(t testing.TB, command string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stepTimeout)
	defer cancel()
	b := kadm.NewACLs().ResourcePatternType(kadm.ACLPatternLiteral).AllowHosts("*")
	var operations []kadm.ACLOperation
	words := strings.Fields(strings.ReplaceAll(command, "'", ""))
	for i := 0; i+1 < len(words); i++ {
		switch value := words[i+1]; words[i] {
		case "--allow-principal":
			b.Allow(value)
		case "--operation":
			var op kadm.ACLOperation
			if err := op.UnmarshalText([]byte(value)); err != nil {
				t.Fatalf("%s: %v", command, err)
			}
			operations = append(operations, op)
		case "--topic":
			b.Topics(value)
		case "--group":
			b.Groups(value)
		case "--transactional-id":
			b.TransactionalIDs(value)
		case "--resource-pattern-type":
			b.ResourcePatternType(kadm.ACLPatternPrefixed)
		}
	}
	admin := k.Admin(t)
	results, err := admin.CreateACLs(ctx, b.Operations(operations...))
	if err != nil || len(results) == 0 {
		t.Fatalf("%s: %d results, %v", command, len(results), err)
	}
	for _, r := range results {
		if r.Err != nil {
			t.Fatalf("%s: %v", command, r.Err)
		}
	}
	k.settled(t, command, func(ctx context.Context) (bool, error) {
		filters, err := admin.DescribeACLs(ctx, b)
		for _, f := range filters {
			if len(f.Described) == 0 {
				return false, err
			}
		}
		return len(filters) > 0, err
	})
}
