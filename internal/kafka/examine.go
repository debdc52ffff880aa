package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/internal/checkup"
)

// TransactionTimeout is how long Kafka keeps a transaction open whose relay is gone and whose lane nobody takes over: until
// then consumers read nothing beyond it. A transaction of a relay that works takes milliseconds.
const TransactionTimeout = 15 * time.Second

// Topics that brokers keep for themselves. They are made at their first use.
const (
	offsetsTopic      = "__consumer_offsets"
	transactionsTopic = "__transaction_state"
)

// Brokers are what a cluster says of itself and of the line's topics. Reading them changes nothing.
type Brokers struct {
	version    string
	topicIDs   bool // each broker knows topic ids
	count      int
	topics     map[string]*found
	lacking    map[string][]string // by topic, the operations that this user may not do
	hidden     map[string]bool     // topics that it does not see: whether they are there is not known
	denied     []string            // those of them that are the brokers' own, for want of a right
	noGroups   bool                // it may not join the sinks' groups
	noSettings bool                // it may not read those of the brokers, which are needed
	settings   map[string]string   // of one broker; empty where it was not asked or does not show them
	unread     []string            // what could not be read, and why
}

// topicOperations are what the relay and the sinks do with a topic, as an ACL names them.
var topicOperations = []struct {
	operation kmsg.ACLOperation
	name      string
}{{kmsg.ACLOperationRead, "Read"}, {kmsg.ACLOperationWrite, "Write"}, {kmsg.ACLOperationDescribeConfigs, "DescribeConfigs"}}

// groupPatience bounds the wait for a coordinator, which is not all that is asked for.
const groupPatience = 2 * time.Second

// ReadBrokers asks for all that Checkup judges.
func ReadBrokers(ctx context.Context, cl *kgo.Client, cfg *config.Config) (*Brokers, error) {
	topics := Topics(cfg)
	adm := kadm.NewClient(cl)
	b := &Brokers{version: version(ctx, cl), topicIDs: true, lacking: map[string][]string{}, hidden: map[string]bool{}, settings: map[string]string{}}
	have, hidden, closed, err := survey(kadm.WithAuthorizedOps(ctx), cl, topics)
	if err != nil {
		return nil, err
	}
	b.topics = have
	meta, err := adm.BrokerMetadata(ctx)
	if err != nil {
		return nil, Wrap(err, seeds(cl), "ask for the brokers")
	}
	b.count = len(meta.Brokers)
	for _, t := range topics {
		b.hidden[t.Name] = hidden[t.Name] != nil
		b.lacking[t.Name] = lacking(have[t.Name], b.hidden[t.Name], closed[t.Name] != nil)
	}
	b.readOwnTopics(ctx, adm, cfg.Outbox.Transactional)
	b.readGroups(ctx, adm, cfg)
	versions, err := adm.ApiVersions(ctx)
	if err != nil {
		return nil, Wrap(err, seeds(cl), "ask for the brokers' versions")
	}
	for _, v := range versions {
		most, ok := v.KeyMaxVersion(int16(kmsg.Fetch))
		b.topicIDs = b.topicIDs && (v.Err != nil || ok && most >= fetchByTopicID)
	}
	// Without transactions they only say how the topic of the groups will be made.
	unmade := b.topics[offsetsTopic] == nil && !b.hidden[offsetsTopic]
	if len(meta.Brokers) > 0 && (cfg.Outbox.Transactional || unmade) {
		b.readSettings(ctx, adm, meta.Brokers[0].NodeID)
	}
	return b, ctx.Err()
}

// lacking are the operations that a user may not do on a topic. Who may read or write it may describe it: a topic that is
// hidden from a user is one that it may neither read nor write.
func lacking(have *found, hidden, closed bool) (missing []string) {
	for _, op := range topicOperations {
		switch {
		case hidden:
			if op.operation != kmsg.ACLOperationDescribeConfigs {
				missing = append(missing, op.name)
			}
		case closed && op.operation == kmsg.ACLOperationDescribeConfigs:
			missing = append(missing, op.name)
		case have == nil || len(have.operations) == 0: // the brokers do not say
		case !slices.Contains(have.operations, op.operation) && !slices.Contains(have.operations, kmsg.ACLOperationAll):
			missing = append(missing, op.name)
		}
	}
	return missing
}

// readOwnTopics needs a right that slotline does not: Describe on the topics of the brokers' own.
func (b *Brokers) readOwnTopics(ctx context.Context, adm *kadm.Client, transactional bool) {
	names := []string{offsetsTopic}
	if transactional {
		names = append(names, transactionsTopic)
	}
	for _, name := range names {
		meta, err := adm.Metadata(ctx, name)
		t := meta.Topics[name]
		switch err = cmp.Or(err, t.Err); {
		case errors.Is(err, kerr.UnknownTopicOrPartition):
		case lacksRight(err):
			b.hidden[name], b.denied = true, append(b.denied, name)
		case err != nil:
			b.hidden[name] = true
			b.unread = append(b.unread, "topic "+name+": "+answer(err))
		default:
			b.topics[name] = &found{partitions: len(t.Partitions), replication: t.Partitions.NumReplicas()}
		}
	}
}

// readGroups asks for a group that is there or not. The question would have brokers make the topic of the groups: where that
// is not there yet it is not asked.
func (b *Brokers) readGroups(ctx context.Context, adm *kadm.Client, cfg *config.Config) {
	if b.topics[offsetsTopic] == nil && !b.hidden[offsetsTopic] {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, groupPatience)
	defer cancel()
	group := GroupPrefix(cfg.Line) + "mysql"
	described, err := adm.DescribeGroups(ctx, group)
	var auth *kadm.AuthError
	switch err = cmp.Or(err, described[group].Err); {
	case errors.Is(err, kerr.GroupAuthorizationFailed), errors.As(err, &auth):
		b.noGroups = true
	case err != nil && !errors.Is(err, kerr.GroupIDNotFound):
		b.unread = append(b.unread, "consumer groups: "+answer(err))
	}
}

// fetchByTopicID is the version of Fetch that names topics by id: Kafka 3.1.
const fetchByTopicID = 13

func (b *Brokers) readSettings(ctx context.Context, adm *kadm.Client, broker int32) {
	configs, err := adm.DescribeBrokerConfigs(ctx, broker)
	for _, c := range configs {
		err = errors.Join(err, c.Err)
		for _, s := range c.Configs {
			if s.Value != nil {
				b.settings[s.Key] = *s.Value
			}
		}
	}
	switch {
	case lacksRight(err):
		b.noSettings = true
	case err != nil:
		b.unread = append(b.unread, "settings of the brokers: "+answer(err))
	}
}

// closed says which rights, which slotline does without, show the rest.
func (b *Brokers) closed(s *checkup.Server) {
	var what, rights []string
	for _, topic := range b.denied {
		what, rights = append(what, "replicas of "+topic), append(rights, "Describe on topic "+topic)
	}
	if b.noSettings {
		what, rights = append(what, "settings of the brokers"), append(rights, "DescribeConfigs on the cluster")
	}
	if len(what) > 0 {
		s.Unchecked = append(s.Unchecked, strings.Join(what, ", ")+": shown to a user with "+strings.Join(rights, ", ")+"; slotline works without")
	}
}

// Checkup judges the cluster. partitions is how many the layout in force has: 0 before the first apply, when topics need
// not be there; -1 where that is not known. It asks nothing.
func (b *Brokers) Checkup(cfg *config.Config, partitions int) *checkup.Server {
	s := &checkup.Server{Where: "kafka " + strings.Join(cfg.Kafka.Brokers, ","), Unchecked: slices.Clone(b.unread)}
	if b.version != "" {
		s.Where += " (" + b.version + ")"
	}
	if !b.topicIDs {
		s.Add(checkup.Finding{Sign: checkup.Stops, What: "a broker is older than Kafka 3.1",
			Why: "without topic ids a topic that was made anew cannot be told from the one before: events would be passed over", Do: "newer brokers"})
	}
	for _, t := range Topics(cfg) {
		have := b.topics[t.Name]
		switch {
		case b.hidden[t.Name]:
			continue // rights says so
		case have == nil && partitions <= 0:
			continue // apply makes it
		case t.checksLayout && partitions > 0:
			t.Partitions = partitions // what the file says more is apply's to make
		case t.checksLayout && have != nil:
			t.Partitions = have.partitions
		}
		for _, d := range compare(t, have) {
			if d.refuse == nil {
				d.refuse = tooNarrow(t.Name, d.note, nil)
			}
			s.Add(checkup.OfFault(checkup.Stops, d.refuse))
		}
		if have != nil {
			s.Add(have.replicas(t.Name, b.count, t.brokers)...)
		}
	}
	b.rights(s, cfg)
	b.closed(s)
	s.Add(b.coordinator(offsetsTopic, "offsets.topic.replication.factor", "consumer groups"))
	if cfg.Outbox.Transactional {
		s.Add(b.coordinator(transactionsTopic, "transaction.state.log.replication.factor", "transactions"), b.transactionISR(), b.transactionTimeout())
	}
	return s
}

// number is a setting as a number; ok is false where the brokers do not show it.
func number(settings map[string]string, key string) (n int, ok bool) {
	n, err := strconv.Atoi(settings[key])
	return n, err == nil
}

// replicas judges what happens to acknowledged records when a broker is lost.
func (f *found) replicas(topic string, brokers int, bootstrap string) []checkup.Finding {
	var list []checkup.Finding
	set := func(setting string) string { return setCommand(bootstrap, topic, setting) }
	add := func(sign, what, why, do string) {
		list = append(list, checkup.Finding{Sign: sign, What: "topic " + topic + " " + what, Why: why, Do: do})
	}
	if len(f.leaderless) > 0 {
		add(checkup.Stops, fmt.Sprintf("has no leader for partitions %v", f.leaderless), "nothing is published to them or read", "see why the brokers that hold them are down")
	}
	if f.settings["unclean.leader.election.enable"] == "true" && f.replication > 1 {
		add(checkup.Stops, "has unclean.leader.election.enable=true", "a replica that lags may become leader: events that were acknowledged are gone, and sinks that have them halt",
			set("unclean.leader.election.enable=false"))
	}
	least, ok := number(f.settings, "min.insync.replicas")
	switch {
	case !ok:
	case least > f.replication:
		add(checkup.Hurts, fmt.Sprintf("has min.insync.replicas=%d and %d replicas", least, f.replication), "newer brokers take all replicas for enough, older ones refuse each record",
			set(fmt.Sprintf("min.insync.replicas=%d", max(1, f.replication-1))))
	case len(f.leaderless) == 0 && f.inSync < least:
		add(checkup.Stops, fmt.Sprintf("has a partition with %d replicas in sync, min.insync.replicas is %d", f.inSync, least), "brokers refuse its records",
			"see why the other replicas are down or behind")
	case least == f.replication && least > 1:
		add(checkup.Hurts, fmt.Sprintf("has min.insync.replicas=%d and as many replicas", least), "while any broker is down, partitions refuse records",
			set(fmt.Sprintf("min.insync.replicas=%d", least-1)))
	case least == 1 && f.replication > 2:
		add(checkup.Hurts, "has min.insync.replicas=1", "an event counts as published when one broker alone has it: it is gone with that one",
			set("min.insync.replicas=2"))
	}
	if f.replication == 1 && brokers > 1 {
		add(checkup.Hurts, "has one replica", "with its broker the events are gone, and until then nothing goes on when that is down", "kafka-reassign-partitions.sh adds replicas")
	}
	return list
}

// rights judges what the file's user may do. Where each part has a user of its own, it cannot be told which this one is of.
func (b *Brokers) rights(s *checkup.Server, cfg *config.Config) {
	user, variable := account(cfg)
	lacks := func(operations []string, what, resource string) {
		f := checkup.Finding{Sign: checkup.Stops, What: fmt.Sprintf("this user may not %s on %s", strings.Join(operations, ", "), what),
			Why: "the relay or the sinks need it; slotline apply --grants prints all", Do: aclCommand(cfg, cmp.Or(user, "…"), strings.Join(operations, " "), resource)}
		if variable {
			s.Unchecked = append(s.Unchecked, "rights: "+f.What+", and each part may have a user of its own; if this one's needs it: "+f.Do)
		} else {
			s.Add(f)
		}
	}
	for _, t := range Topics(cfg) {
		if missing := b.lacking[t.Name]; len(missing) > 0 {
			lacks(missing, "topic "+t.Name, "--topic "+t.Name)
		}
	}
	if b.noGroups {
		lacks([]string{"Read"}, "groups "+GroupPrefix(cfg.Line)+"*", groupResource(cfg))
	}
}

// coordinator judges a topic of the brokers' own, or what it will be made with.
func (b *Brokers) coordinator(topic, setting, what string) checkup.Finding {
	have := b.topics[topic]
	if have != nil && have.replication == 1 && b.count > 1 {
		return checkup.Finding{Sign: checkup.Hurts, What: "topic " + topic + " has one replica",
			Why: what + " stand still while its broker is down", Do: "kafka-reassign-partitions.sh adds replicas"}
	}
	factor, ok := number(b.settings, setting)
	if have != nil || b.hidden[topic] || !ok || factor <= b.count {
		return checkup.Finding{}
	}
	return checkup.Finding{Sign: checkup.Stops, What: fmt.Sprintf("%s is %d, and there are %d brokers", setting, factor, b.count),
		Why: "topic " + topic + " cannot be made: there are no " + what,
		Do:  fmt.Sprintf("%s=%d in server.properties of each broker, and restart it; or more brokers", setting, b.count)}
}

func (b *Brokers) transactionISR() checkup.Finding {
	const setting = "transaction.state.log.min.isr"
	least, ok := number(b.settings, setting)
	replicas, known := number(b.settings, "transaction.state.log.replication.factor")
	if have := b.topics[transactionsTopic]; have != nil {
		replicas, known = have.replication, true
	}
	if !ok || !known || least <= replicas {
		return checkup.Finding{}
	}
	return checkup.Finding{Sign: checkup.Hurts, What: fmt.Sprintf("%s is %d, and topic %s has %d replicas", setting, least, transactionsTopic, replicas),
		Why: "newer brokers take all replicas for enough, older ones refuse each transaction", Do: fmt.Sprintf("%s=%d in server.properties of each broker, and restart it", setting, max(1, replicas-1))}
}

func (b *Brokers) transactionTimeout() checkup.Finding {
	const setting = "transaction.max.timeout.ms"
	most, ok := number(b.settings, setting)
	if !ok || most >= int(TransactionTimeout.Milliseconds()) {
		return checkup.Finding{}
	}
	return checkup.Finding{Sign: checkup.Stops, What: fmt.Sprintf("%s is %d", setting, most),
		Why: fmt.Sprintf("lanes ask for %d: brokers refuse their producers", TransactionTimeout.Milliseconds()),
		Do:  setting + "=900000, Kafka's default, in server.properties of each broker, and restart it"}
}
