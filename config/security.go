package config

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/slotline/slotline/fault"
)

// This file holds kafka.tls and kafka.sasl: how the brokers are spoken to, and as whom.

// tls is nil where the file has none.
func (l loader) tls(e *entry) *TLS {
	if !e.present() {
		return nil
	}
	t := &TLS{}
	for i, f := range []struct {
		key string
		to  *string
	}{{"ca", &t.CA}, {"cert", &t.Cert}, {"key", &t.Key}} {
		at := e.get(f.key)
		if !at.present() {
			continue
		}
		*f.to, t.where[i] = at.node.Value, l.at(at.key)+": "+at.path
		switch {
		case at.node.Value == "":
			l.add(codeValue, at.example, []*yaml.Node{at.key}, "%s is empty", at.path)
		case strings.Contains(at.node.Value, "-----BEGIN"):
			l.add(codeValue, at.example, []*yaml.Node{at.key}, "%s is the path of a file, not what it holds", at.path)
		case strings.Contains(at.node.Value, "${"):
			l.add(codeValue, at.example, []*yaml.Node{at.key}, "%s: variables are put into dsn values, users and passwords only", at.path)
		}
	}
	if cert, key := e.get("cert"), e.get("key"); cert.present() != key.present() {
		at, other := cert, key
		if key.present() {
			at, other = key, cert
		}
		l.add(codeMissing, other.example, []*yaml.Node{at.key}, "%s: cert and key come together, or neither does", e.path)
	}
	if name := e.get("server_name"); name.present() {
		t.ServerName = name.node.Value
		if t.ServerName == "" || strings.ContainsAny(t.ServerName, ":/ ${") {
			l.wrong(codeValue, name, "is no name of a host: no port, no variable", "kafka.internal")
		}
	}
	return t
}

// sasl is nil where the file has none.
func (l loader) sasl(e *entry, brokers []string) *SASL {
	if !e.present() {
		return nil
	}
	if len(e.kids) != 1 {
		if nodes := e.node.Content; len(nodes) == 0 {
			l.add(codeMissing, e.example, []*yaml.Node{e.key}, "%s names no mechanism: %s", e.path, orList(e.names()))
		} else if len(e.kids) > 1 {
			l.add(codeConflict, "one of them", []*yaml.Node{e.kids[0].key, e.kids[1].key}, "%s has %s and %s: a client logs in by one",
				e.path, e.kids[0].name, e.kids[1].name)
		}
		return nil // else what is there was reported
	}
	of := e.kids[0]
	s := &SASL{Mechanism: of.name,
		Account: DSN{scheme: kafkaScheme, key: of.path, where: l.at(of.key), hosts: brokers, hasPass: true}}
	for _, f := range []struct {
		key string
		to  *string
	}{{"user", &s.Account.user}, {"password", &s.Account.password}} {
		at := of.get(f.key)
		if !at.present() {
			continue // reported as missing
		}
		*f.to = at.node.Value
		if _, _, err := maskVariables(*f.to); err != nil {
			l.add(codeValue, at.example, []*yaml.Node{at.key}, "%s: %s", at.path, err.Error())
		} else if *f.to == "" {
			l.add(codeValue, at.example, []*yaml.Node{at.key}, "%s is empty", at.path)
		}
	}
	if s.Mechanism == "plain" && e.parent.get("tls").key == nil {
		l.add(codeConflict, "tls: {} in kafka, or a scram mechanism in place of plain", []*yaml.Node{of.key},
			"%s without kafka.tls would send the password over the network for everyone to read", of.path)
	}
	return s
}

// names are those of the keys below.
func (e *entry) names() (names []string) {
	for _, k := range e.keyNode.kids {
		names = append(names, k.name)
	}
	return names
}

// Login is the user and the password, with their variables put in. Errors have code SL1011.
func (s *SASL) Login() (user, password string, err error) {
	a, err := s.Account.Resolve()
	if err != nil {
		return "", "", err
	}
	for _, f := range []struct{ name, text string }{{"user", a.User}, {"password", a.Password}} {
		if f.text == "" {
			return "", "", &fault.Error{Code: codeVariable, Class: fault.Usage,
				What: fmt.Sprintf("%s: %s has an empty %s", s.Account.where, s.Account.key, f.name),
				Do:   "give the variable or the file that it names a value"}
		}
	}
	return a.User, a.Password, nil
}

// Client is the client's side of TLS. The authorities are read now; certificate and key are read now, and again for each
// connection, so that what was renewed is used without a restart. Errors have code SL1017, and name key and file.
func (t *TLS) Client() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		data, err := t.read(0, t.CA)
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(data) {
			return nil, t.wrong(0, t.CA, "holds no certificate as PEM", nil, pemAdvice)
		}
	}
	if t.Cert != "" {
		if _, err := t.certificate(); err != nil {
			return nil, err
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return t.certificate() }
	}
	return c, nil
}

const pemAdvice = "write it as PEM (-----BEGIN …): openssl pkcs12 makes that of a PKCS#12 file or keystore, openssl x509 -inform DER of a binary one"

// certificate reads that of the client, with its key.
func (t *TLS) certificate() (*tls.Certificate, error) {
	cert, err := t.read(1, t.Cert)
	if err != nil {
		return nil, err
	}
	key, err := t.read(2, t.Key)
	if err != nil {
		return nil, err
	}
	switch {
	case !hasBlock(cert, "CERTIFICATE"):
		return nil, t.wrong(1, t.Cert, "holds no certificate as PEM", nil, pemAdvice)
	case bytes.Contains(key, []byte("ENCRYPTED")):
		return nil, t.wrong(2, t.Key, "holds a key with a passphrase, which is not read", nil,
			"write the key without one, readable by this process's user alone: openssl pkey -in FILE -out FILE")
	case !hasBlock(key, "PRIVATE KEY"):
		return nil, t.wrong(2, t.Key, "holds no private key as PEM", nil, pemAdvice)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, t.wrong(2, t.Key, "does not go with kafka.tls.cert, file "+t.Cert+": "+strings.TrimPrefix(err.Error(), "tls: "), err,
			"name the key that the certificate was made for; the client's own certificate stands first in its file")
	}
	return &pair, nil
}

// hasBlock says whether the text holds a PEM block whose type ends so.
func hasBlock(text []byte, of string) bool {
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			return false
		}
		if strings.HasSuffix(block.Type, of) {
			return true
		}
		text = rest
	}
}

func (t *TLS) read(key int, file string) ([]byte, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, t.wrong(key, file, "cannot be read: "+reason(err), err, "put the file there and let the user that runs this process read it")
	}
	return data, nil
}

func (t *TLS) wrong(key int, file, what string, err error, do string) error {
	return &fault.Error{Code: codeFile, Class: fault.Usage, Err: err,
		What: fmt.Sprintf("%s: file %s %s", cmp.Or(t.where[key], [...]string{"kafka.tls.ca", "kafka.tls.cert", "kafka.tls.key"}[key]), file, what), Do: do}
}

// User is the user as the file has it, variables and all.
func (s *SASL) User() string { return s.Account.user }

// UserName is the user with its variables put in; "" where one of them is not set or cannot be read.
func (s *SASL) UserName() string {
	name, err := s.Account.expand(s.Account.user)
	if err != nil {
		return ""
	}
	return name
}
