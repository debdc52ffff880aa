package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/fault"
)

func kafkaFile(kafka string) string {
	return `
line: flights
kafka: { brokers: [kafka1:9093], ` + kafka + ` }
outbox: { dsn: "mysql://app@db0/flights" }
shards: { s1: { dsn: "mysql://app@db1/s1" , slots: 0-1023 } }
tables: { t: { id: i, columns: { i: int64 } } }
`
}

func TestKafkaTLSForms(t *testing.T) {
	if cfg := parse(t, kafkaFile("")); cfg.Kafka.TLS != nil || cfg.Kafka.SASL != nil {
		t.Errorf("TLS or SASL that the file does not name: %+v", cfg.Kafka)
	}
	for _, form := range []string{"tls: {}", "tls: "} {
		cfg := parse(t, kafkaFile(form))
		if cfg.Kafka.TLS == nil {
			t.Fatalf("%s: plain text", form)
		}
		c, err := cfg.Kafka.TLS.Client()
		if err != nil || c.RootCAs != nil || c.InsecureSkipVerify || c.ServerName != "" || c.GetClientCertificate != nil {
			t.Errorf("%s is not TLS with the system's authorities: %+v %v", form, c, err)
		}
	}
	cfg := parse(t, kafkaFile("tls: { ca: /a.pem, cert: /b.pem, key: /c.pem, server_name: kafka.internal }"))
	if got := *cfg.Kafka.TLS; got.CA != "/a.pem" || got.Cert != "/b.pem" || got.Key != "/c.pem" || got.ServerName != "kafka.internal" {
		t.Errorf("%+v", got)
	}
}

// User and password are put in late, as those of a URL, and no format prints the password.
func TestKafkaLogin(t *testing.T) {
	const secret = "hunter2:@/${x}"
	t.Setenv("SLOTLINE_TEST_SECRET", secret)
	t.Setenv("SLOTLINE_TEST_USER", "relay")
	t.Setenv("SLOTLINE_TEST_EMPTY", "")
	for _, mechanism := range []string{"scram-sha-512", "scram-sha-256", "plain"} {
		file := kafkaFile("tls: {}, sasl: { " + mechanism + `: { user: "${SLOTLINE_TEST_USER}", password: "%s" } }`)
		for password, want := range map[string]string{"${SLOTLINE_TEST_SECRET}": secret, "hunter2": "hunter2"} {
			cfg := parse(t, fmt.Sprintf(file, password))
			s := cfg.Kafka.SASL
			if s.Mechanism != mechanism {
				t.Errorf("mechanism %s, not %s", s.Mechanism, mechanism)
			}
			user, got, err := s.Login()
			if err != nil || user != "relay" || got != want || !slices.Contains(cfg.Secrets(), want) {
				t.Errorf("user %s, password %q, %v; secrets %q", user, got, err, cfg.Secrets())
			}
			a, _ := s.Account.Resolve()
			for _, text := range []string{fmt.Sprint(cfg.Kafka, s, a), fmt.Sprintf("%+v %#v %+v", cfg, s.Account, s), s.Account.Redacted()} {
				if strings.Contains(text, "hunter2") {
					t.Errorf("a password is printed: %s", text)
				}
			}
		}
		for variable, want := range map[string]string{
			"${SLOTLINE_TEST_UNSET}": "slotline.yaml:3: kafka.sasl." + mechanism + " needs the environment variable SLOTLINE_TEST_UNSET",
			"${SLOTLINE_TEST_EMPTY}": "slotline.yaml:3: kafka.sasl." + mechanism + " has an empty password",
			"${file:/nowhere/x}":     "kafka.sasl." + mechanism + " names file /nowhere/x",
		} {
			_, _, err := parse(t, fmt.Sprintf(file, variable)).Kafka.SASL.Login()
			if fault.CodeOf(err) != codeVariable || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", variable, err)
			}
		}
	}
}

// What is wrong with a file of kafka.tls is said with its key and what to do, before any server is asked.
func TestKafkaTLSFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	certificate := func() (cert, key []byte) {
		private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "line"}, NotAfter: time.Now().Add(time.Hour)}
		der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
		if err != nil {
			t.Fatal(err)
		}
		pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
	}
	cert, key := certificate()
	cert2, key2 := certificate()
	good, goodKey := write("cert.pem", cert), write("key.pem", key)
	binary, otherKey := write("cert.der", []byte{0x30, 0x82, 1, 2}), write("other.pem", key2)
	secret := write("secret.pem", pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte{1}}))

	for _, c := range []struct{ ca, cert, key, at, what, do string }{
		{ca: filepath.Join(dir, "none.pem"), at: "ca", what: "none.pem cannot be read: no such file", do: "put the file there"},
		{ca: binary, at: "ca", what: "cert.der holds no certificate as PEM", do: "openssl"},
		{ca: goodKey, at: "ca", what: "key.pem holds no certificate as PEM", do: "openssl"},
		{cert: filepath.Join(dir, "none.pem"), key: goodKey, at: "cert", what: "cannot be read", do: "put the file there"},
		{cert: binary, key: goodKey, at: "cert", what: "holds no certificate as PEM", do: "openssl"},
		{cert: good, key: good, at: "key", what: "holds no private key as PEM", do: "openssl"},
		{cert: good, key: secret, at: "key", what: "holds a key with a passphrase", do: "openssl pkey"},
		{cert: good, key: otherKey, at: "key", what: "does not go with kafka.tls.cert, file " + good, do: "the key that the certificate was made for"},
	} {
		text := "tls: {"
		for k, v := range map[string]string{"ca": c.ca, "cert": c.cert, "key": c.key} {
			if v != "" {
				text += k + ": " + v + ", "
			}
		}
		_, err := parse(t, kafkaFile(text+"}")).Kafka.TLS.Client()
		if !fault.Is(err, fault.Usage) || fault.CodeOf(err) != codeFile || !strings.Contains(err.Error(), "slotline.yaml:3: kafka.tls."+c.at+": file ") ||
			!strings.Contains(err.Error(), c.what) || !strings.Contains(err.Error(), "do: ") || !strings.Contains(err.Error(), c.do) {
			t.Errorf("%+v: %v", c, err)
		}
	}

	// A certificate that is renewed is used for the next connection, without a restart.
	tls := parse(t, kafkaFile("tls: { ca: "+good+", cert: "+good+", key: "+goodKey+" }")).Kafka.TLS
	c, err := tls.Client()
	if err != nil {
		t.Fatal(err)
	}
	leaf := func() []byte {
		got, err := c.GetClientCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: got.Certificate[0]})
	}
	if !slices.Equal(leaf(), cert) {
		t.Error("not the certificate of the file")
	}
	write("cert.pem", cert2)
	if _, err := c.GetClientCertificate(nil); fault.CodeOf(err) != codeFile {
		t.Errorf("half renewed: %v", err)
	}
	write("key.pem", key2)
	if !slices.Equal(leaf(), cert2) {
		t.Error("a renewed certificate is not used")
	}
}
