package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/fault"
)

// errNoAnswer stands for a broker that takes a connection, or no connection, and says nothing within openTimeout.
var errNoAnswer = errors.New("no answer within " + openTimeout.String())

// Classify says how to treat an error of the Kafka client. Only what Kafka will answer in the same way for ever is
// Fatal; what it does not know is Transient, since a loop that waits loses nothing.
func Classify(err error) fault.Class {
	if err == nil {
		return fault.Unknown
	}
	if refused(err, nil, "") != nil {
		return fault.Transient
	}
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f.Class
	}
	switch {
	case errors.Is(err, kerr.MessageTooLarge), errors.Is(err, kerr.RecordListTooLarge), errors.Is(err, kerr.InvalidRecord):
		return fault.Data
	case lacksRight(err), errors.Is(err, kerr.UnsupportedVersion), errors.Is(err, kerr.UnsupportedForMessageFormat),
		errors.Is(err, kerr.InvalidTopicException):
		return fault.Fatal
	case errors.Is(err, kerr.ProducerFenced), errors.Is(err, kerr.InvalidProducerEpoch):
		return fault.Fenced
	}
	return fault.Transient
}

func lacksRight(err error) bool {
	for _, e := range []error{kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed, kerr.ClusterAuthorizationFailed,
		kerr.TransactionalIDAuthorizationFailed} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// Wrap makes a fault of an error of the Kafka client. doing completes "cannot …" and names the topic or partition;
// brokers are named when the error itself does not say which one failed. A *fault.Error and a cancelled context are
// returned as they are.
func Wrap(err error, brokers []string, doing string) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	if f := refused(err, brokers, doing); f != nil {
		return f
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	class := Classify(err)
	switch {
	case lacksRight(err):
		return &fault.Error{Code: "SL2006", Class: fault.Fatal, Err: err,
			What: fmt.Sprintf("cannot %s: Kafka refuses: %s", doing, answer(err)),
			Do:   "give the user its rights on the topic, group or transactional.id: slotline apply --grants prints what a line needs"}
	case errors.Is(err, kerr.MessageTooLarge), errors.Is(err, kerr.RecordListTooLarge):
		return &fault.Error{Code: "SL2007", Class: class, Err: err,
			What: fmt.Sprintf("cannot %s: larger than the topic's max.message.bytes", doing),
			Do:   "raise max.message.bytes of the topic (slotline apply does it), or lower outbox.event_bytes_max"}
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
		return &fault.Error{Code: "SL2002", Class: class, Err: err,
			What: fmt.Sprintf("cannot %s: the topic is not there", doing),
			Do:   "slotline apply makes it"}
	case errors.Is(err, kerr.InvalidTimestamp):
		return &fault.Error{Code: "SL2016", Class: fault.Transient, Err: err,
			What: fmt.Sprintf("cannot %s: to the broker this host's clock is too far ahead: %s", doing, answer(err)),
			Why:  "a record has the time at which it was published, and the broker takes none that is later than its own clock by message.timestamp.after.max.ms, an hour unless set; nothing is lost",
			Do:   "set the clock of this host right, or the broker's; publishing goes on by itself"}
	case unreachable(err):
		return &fault.Error{Code: "SL2001", Class: class, Err: err,
			What: fmt.Sprintf("cannot %s: %s", doing, whichBroker(err, brokers)),
			Why:  "nothing is lost: events stay in the outbox, progress in the sinks",
			Do:   "check kafka.brokers, the network, and that the broker is up" + closedAtOnce(err)}
	}
	return &fault.Error{Code: "SL2010", Class: class, Err: err, What: fmt.Sprintf("cannot %s: %s", doing, answer(err))}
}

// Silent is the fault of brokers that have said nothing within patience.
func Silent(cfg *config.Config, patience time.Duration) error {
	tls := ""
	if cfg.Kafka.TLS != nil {
		tls = "; if it is, that this port speaks TLS"
	}
	return &fault.Error{Code: "SL2001", Class: fault.Transient,
		What: fmt.Sprintf("cannot contact Kafka: %s: no answer within %v", strings.Join(cfg.Kafka.Brokers, ", "), patience),
		Why:  "nothing is lost: events stay in the outbox, progress in the sinks",
		Do:   "check kafka.brokers, the network, and that the broker is up" + tls}
}

// unreachable says whether no broker answered at all.
func unreachable(err error) bool {
	if _, ok := errors.AsType[*kerr.Error](err); ok {
		return false
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	if _, ok := errors.AsType[*kgo.ErrFirstReadEOF](err); ok {
		return true
	}
	return errors.Is(err, errNoAnswer) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, net.ErrClosed) ||
		strings.Contains(err.Error(), "EOF")
}

// closedAtOnce is what else a broker means that closes a connection at the first request: it may be ending, and it may
// want what the file does not have. The library says which by its sentence alone.
func closedAtOnce(err error) string {
	if _, ok := errors.AsType[*kgo.ErrFirstReadEOF](err); !ok {
		return ""
	}
	if strings.Contains(err.Error(), "SASL") {
		return "; if it is, it wants a login: write kafka.sasl"
	}
	return "; if it is, it wants TLS, or a certificate of this client: write kafka.tls"
}

// whichBroker says who did not answer and how: "kafka1:9092: connection refused".
func whichBroker(err error, brokers []string) string {
	where, why := strings.Join(brokers, ", "), err.Error()
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return fmt.Sprintf("%s: no such host", dns.Name)
	}
	if _, ok := errors.AsType[*kgo.ErrFirstReadEOF](err); ok {
		return where + ": the broker closed the connection at the first request"
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		if op.Addr != nil && op.Op == "dial" {
			where = op.Addr.String()
			// The address as the file writes it is easier to find than the resolved one.
			if len(brokers) == 1 {
				where = brokers[0]
			}
		}
		if op.Err != nil {
			why = strings.TrimPrefix(op.Err.Error(), "connect: ")
		}
	}
	return where + ": " + why
}

// answer is Kafka's own sentence for an error, without the library's wrapping.
func answer(err error) string {
	if k, ok := errors.AsType[*kerr.Error](err); ok {
		return k.Message + ": " + k.Description
	}
	return err.Error()
}
