package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/fault"
)

// security is what kafka.tls and kafka.sasl ask of a client. Files and secrets that cannot be read are said now, and not
// when the first broker is dialed; user and password are read again for each connection, so that new ones are used
// without a restart.
func security(cfg *config.Config) (opts []kgo.Opt, err error) {
	if t := cfg.Kafka.TLS; t != nil {
		secure, err := t.Client()
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.Dialer(dialTLS(secure, dialTimeout)))
	}
	if s := cfg.Kafka.SASL; s != nil {
		if _, _, err := s.Login(); err != nil {
			return nil, err
		}
		opts = append(opts, kgo.SASL(mechanism(s)))
	}
	return opts, nil
}

func mechanism(s *config.SASL) sasl.Mechanism {
	login := func() (user, password string, err error) {
		if user, password, err = s.Login(); err != nil {
			err = &loginError{err}
		}
		return user, password, err
	}
	asScram := func(context.Context) (scram.Auth, error) {
		user, password, err := login()
		return scram.Auth{User: user, Pass: password}, err
	}
	switch s.Mechanism {
	case "scram-sha-512":
		return scram.Sha512(asScram)
	case "scram-sha-256":
		return scram.Sha256(asScram)
	case "plain":
		return plain.Plain(func(context.Context) (plain.Auth, error) {
			user, password, err := login()
			return plain.Auth{User: user, Pass: password}, err
		})
	}
	panic("kafka: no mechanism " + s.Mechanism) // the file has no others
}

// dialTLS connects and shakes hands, both within patience: a port that does not speak TLS may say nothing at all.
func dialTLS(secure *tls.Config, patience time.Duration) func(ctx context.Context, network, host string) (net.Conn, error) {
	return func(ctx context.Context, network, host string) (net.Conn, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, patience, errNoHandshake)
		defer cancel()
		conn, err := (&net.Dialer{}).DialContext(ctx, network, host)
		if err != nil {
			return nil, err
		}
		c := secure
		if c.ServerName == "" {
			name, _, err := net.SplitHostPort(host)
			if err != nil {
				conn.Close()
				return nil, err
			}
			c = c.Clone()
			c.ServerName = name
		}
		shaken := tls.Client(conn, c)
		if err := shaken.HandshakeContext(ctx); err != nil {
			conn.Close()
			if context.Cause(ctx) == errNoHandshake {
				err = fmt.Errorf("%w within %v", errNoHandshake, patience)
			}
			return nil, &handshakeError{host, err}
		}
		return shaken, nil
	}
}

// errNoHandshake stands for a port that takes connections and does not answer as TLS does.
var errNoHandshake = errors.New("no answer")

// handshakeError says with which broker TLS failed.
type handshakeError struct {
	broker string
	err    error
}

func (e *handshakeError) Error() string { return "TLS with " + e.broker + ": " + e.err.Error() }
func (e *handshakeError) Unwrap() error { return e.err }

// loginError is of a user or password that could be read when the client was made, and now cannot.
type loginError struct{ err error }

func (e *loginError) Error() string { return e.err.Error() }
func (e *loginError) Unwrap() error { return e.err }

const (
	codeLogin = "SL2014"
	codeTLS   = "SL2015"
	ending    = "a broker that is just ending does so too"
)

// refused is the fault of what does not go together: kafka.tls and kafka.sasl, and what the broker asks for; nil for an
// error that is about neither. All of it is transient: certificates, users and passwords are renewed while a line runs, and
// a loop that waits loses nothing. doing and brokers are as in Wrap.
func refused(err error, brokers []string, doing string) *fault.Error {
	at := strings.Join(brokers, ", ") + ": "
	because := func(code, what, why, do string) *fault.Error {
		return &fault.Error{Code: code, Class: fault.Transient, Err: err, What: "cannot " + doing + ": " + what, Why: why, Do: do}
	}
	h, inHandshake := errors.AsType[*handshakeError](err)
	_, inLogin := errors.AsType[*loginError](err)
	if f, ok := errors.AsType[*fault.Error](err); ok && (inHandshake || inLogin) { // of a file or variable
		return because(f.Code, f.What, f.Why, f.Do)
	}
	if inHandshake {
		what, why, do := handshake(h.err)
		return because(codeTLS, "TLS with "+h.broker+": "+what, why, do)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" { // TLS 1.3 refuses a client after the handshake
		what, do := alert(op)
		return because(codeTLS, at+what, "", do)
	}
	switch text := err.Error(); {
	case errors.Is(err, kerr.SaslAuthenticationFailed):
		_, said, _ := strings.Cut(text, kerr.SaslAuthenticationFailed.Error()+": ")
		return because(codeLogin, at+"Kafka refuses user or password", oneLine(said),
			"check user and password of kafka.sasl, and that the user is there with a password for this very mechanism")
	case errors.Is(err, kerr.UnsupportedSaslMechanism):
		return because(codeLogin, at+"Kafka does not take the mechanism that kafka.sasl names", "",
			"name one that is in the broker's sasl.enabled.mechanisms: scram-sha-512, scram-sha-256 or plain")
	case errors.Is(err, kerr.IllegalSaslState):
		return because(codeLogin, at+"this port of the broker takes no login", "",
			"name the port that does in kafka.brokers, or take kafka.sasl out")
	case strings.Contains(text, "plaintext connection speaking to a tls endpoint"):
		return because(codeTLS, at+"this port of the broker speaks TLS", "",
			"write kafka.tls (tls: {} where the system trusts the brokers' authority), or name a port in kafka.brokers without TLS")
	}
	return nil
}

// Answered says whether an error is an answer of the brokers: a login or a certificate that is not as it must be, and not a
// server that is silent or down.
func Answered(err error) bool {
	e, ok := errors.AsType[*fault.Error](err)
	return ok && (e.Code == codeLogin || e.Code == codeTLS) && !errors.Is(err, errNoHandshake)
}

// handshake says why TLS with a broker failed.
func handshake(err error) (what, why, do string) {
	const names = "kafka.brokers and the brokers' advertised.listeners"
	if host, ok := errors.AsType[x509.HostnameError](err); ok {
		return strings.TrimPrefix(host.Error(), "x509: "), "",
			"use the name in " + names + " that the certificate holds, or write it as kafka.tls.server_name"
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "the broker's certificate was signed by an authority that is not trusted", "",
			"kafka.tls.ca has to name the PEM file of the authority that signed it; without it those that the system trusts count"
	}
	if invalid, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "the broker's certificate: " + strings.TrimPrefix(invalid.Err.Error(), "x509: "), "",
			"let the broker have a valid certificate; if it is about its time, check the clock of this machine too"
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
		what, do = alert(op)
		return what, "", do
	}
	if errors.Is(err, errNoHandshake) {
		return "the broker takes the connection and says nothing: " + err.Error(), "it is paused or overloaded, or the port is one without TLS",
			"see whether the broker is at work, and its log; only if its listener is without TLS, take kafka.tls out, or name the port that speaks it in " + names
	}
	how := err.Error()
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		how = "it closed the connection"
	}
	return "the broker does not answer as TLS does: " + how, ending,
		"take kafka.tls out if this port is without TLS, or name the port that speaks it in " + names
}

// alert says what a broker refuses of this client's TLS.
func alert(op *net.OpError) (what, do string) {
	text := strings.TrimPrefix(op.Err.Error(), "tls: ")
	if strings.Contains(text, "certificate") || strings.Contains(text, "handshake failure") || strings.Contains(text, "authority") {
		do = "write kafka.tls.cert and kafka.tls.key: a certificate that is valid, of an authority in the broker's ssl.truststore"
	} else {
		do = "see what the broker's log says of this connection"
	}
	return "the broker refuses: " + text, do
}
