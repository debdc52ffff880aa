package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/fault"
)

// Forever is the retention of a topic that shards are rebuilt from.
const Forever time.Duration = -1

// leaderWait bounds how long a new topic is waited for. A broker elects leaders within a second or two.
const leaderWait = 30 * time.Second

// Topic is what a line needs a topic to be.
type Topic struct {
	Name         string
	Partitions   int
	Replication  int
	Retention    time.Duration // Forever, or for dead letters a bound
	BatchBytes   int           // max.message.bytes
	LayoutEpoch  int64         // 0 where no layout decides the number of partitions
	checksLayout bool
	brokers      string // of the file, for commands
}

// Topics are the topics of a line: those of its tables in file order, then the one for dead letters.
func Topics(cfg *config.Config) []Topic {
	var topics []Topic
	for _, name := range cfg.Topics() {
		topics = append(topics, Topic{Name: name, Partitions: cfg.Kafka.Partitions, Replication: cfg.Kafka.Replication,
			Retention: Forever, BatchBytes: RecordBytesMax(cfg), LayoutEpoch: cfg.Layout.Epoch, checksLayout: true, brokers: strings.Join(cfg.Kafka.Brokers, ",")})
	}
	return append(topics, Topic{Name: cfg.Dead.Topic, Partitions: 1, Replication: cfg.Kafka.Replication,
		Retention: cfg.Dead.Retention, BatchBytes: DeadRecordBytesMax(cfg), brokers: strings.Join(cfg.Kafka.Brokers, ",")})
}

// Settings are the topic's configuration as Kafka writes it.
func (t Topic) Settings() map[string]string {
	ms := int64(-1)
	if t.Retention != Forever {
		ms = t.Retention.Milliseconds()
	}
	return map[string]string{
		"cleanup.policy":    "delete",
		"retention.ms":      strconv.FormatInt(ms, 10),
		"retention.bytes":   "-1",
		"max.message.bytes": strconv.Itoa(t.BatchBytes),
	}
}

// found is a topic as the brokers describe it.
type found struct {
	partitions  int
	leaderless  []int32
	id          [16]byte
	replication int
	inSync      int // of the partition that has the fewest
	settings    map[string]string
	operations  []kmsg.ACLOperation // that this user may do, where they were asked for and the brokers say
}

// difference is one way in which a topic is not as it should be.
type difference struct {
	refuse *fault.Error      // what a person must decide; nil when alter mends it
	alter  map[string]string // settings to change; widening only
	note   string
}

// compare is the pure part of Check and Plan. have is nil for a topic that is not there.
func compare(want Topic, have *found) []difference {
	if have == nil {
		return []difference{{refuse: &fault.Error{Code: "SL2011", Class: fault.Fatal,
			What: fmt.Sprintf("topic %s is not there; nothing was started", want.Name),
			Do:   "slotline apply makes it"}}}
	}
	var out []difference
	if have.partitions != want.Partitions && want.checksLayout {
		out = append(out, difference{refuse: &fault.Error{Code: "SL2003", Class: fault.Fatal,
			What: fmt.Sprintf("topic %s has %d partitions, layout epoch %d says %d; nothing was started",
				want.Name, have.partitions, want.LayoutEpoch, want.Partitions),
			Why: "publishing now would send tenants to partitions where other processes do not look for them",
			Do: fmt.Sprintf("slotline apply, if one did not end; else set kafka.partitions: %d if the topic is right, or delete the empty topic and apply",
				have.partitions)}})
	}
	if policy := have.settings["cleanup.policy"]; strings.Contains(policy, "compact") {
		out = append(out, difference{refuse: &fault.Error{Code: "SL2004", Class: fault.Fatal,
			What: fmt.Sprintf("topic %s has cleanup.policy=%s; nothing was started", want.Name, policy),
			Why: "a late repeat after a newer event makes compaction drop the newer one, and a rebuild needs every event;\n" +
				"a topic that was ever compacted lacks some: start a new one",
			Do: setCommand(want.brokers, want.Name, "cleanup.policy=delete")}})
	}
	widen := map[string]string{}
	for _, key := range []string{"retention.ms", "retention.bytes"} {
		if narrower(have.settings[key], want.Settings()[key]) {
			widen[key] = want.Settings()[key]
		}
	}
	if got, err := strconv.Atoi(have.settings["max.message.bytes"]); err == nil && got < want.BatchBytes {
		widen["max.message.bytes"] = strconv.Itoa(want.BatchBytes)
	}
	if len(widen) > 0 {
		var notes []string
		for _, key := range slices.Sorted(maps.Keys(widen)) {
			notes = append(notes, fmt.Sprintf("%s %s -> %s", key, have.settings[key], widen[key]))
		}
		out = append(out, difference{alter: widen, note: strings.Join(notes, ", ")})
	}
	return out
}

// setCommand changes a setting of a topic.
func setCommand(brokers, topic, setting string) string {
	return fmt.Sprintf("kafka-configs.sh --bootstrap-server %s --alter --entity-type topics --entity-name %s --add-config %s", brokers, topic, setting)
}

// narrower compares retentions, where -1 is without bound. A setting that the broker does not show is not judged.
func narrower(have, want string) bool {
	h, errHave := strconv.ParseInt(have, 10, 64)
	w, errWant := strconv.ParseInt(want, 10, 64)
	if errHave != nil || errWant != nil || h == -1 {
		return false
	}
	return w == -1 || h < w
}

// Check compares the topics with what is there and refuses what would lose or misplace events: every problem at once.
// It changes nothing.
func Check(ctx context.Context, cl *kgo.Client, topics []Topic) error {
	have, err := describe(ctx, cl, topics)
	if err != nil {
		return err
	}
	var problems []error
	for _, t := range topics {
		for _, d := range compare(t, have[t.Name]) {
			if d.refuse == nil {
				d.refuse = tooNarrow(t.Name, d.note+"; nothing was started", nil)
			}
			problems = append(problems, d.refuse)
		}
	}
	return errors.Join(problems...)
}

func tooNarrow(topic, note string, err error) *fault.Error {
	return &fault.Error{Code: "SL2005", Class: fault.Fatal, Err: err,
		What: fmt.Sprintf("topic %s is too narrow: %s", topic, note),
		Why:  "events would expire before they are archived, or the largest of them would be refused",
		Do:   "slotline apply widens it"}
}

// RefusedSize is the fault of a topic that refuses, for its size, a record which is within what the file says: its
// max.message.bytes was lowered. Nothing is wrong with the record.
func RefusedSize(cfg *config.Config, topic string, partition int32, recordBytes int, err error) error {
	return tooNarrow(topic, fmt.Sprintf("partition %d refuses a record of %d bytes; max.message.bytes must be %d, as %s asks",
		partition, recordBytes, RecordBytesMax(cfg), cfg.File), err)
}

// describe returns what is there, without the topics that are not.
func describe(ctx context.Context, cl *kgo.Client, topics []Topic) (map[string]*found, error) {
	have, hidden, closed, err := survey(ctx, cl, topics)
	if err != nil {
		return nil, err
	}
	for _, t := range topics {
		if err := hidden[t.Name]; err != nil {
			return nil, Wrap(err, seeds(cl), "describe topic "+t.Name)
		}
		if err := closed[t.Name]; err != nil {
			return nil, Wrap(err, seeds(cl), "read the settings of topic "+t.Name)
		}
	}
	return have, nil
}

// survey is describe that goes on where a right is missing: hidden are the topics that this user may not describe, closed
// those whose settings it may not read.
func survey(ctx context.Context, cl *kgo.Client, topics []Topic) (have map[string]*found, hidden, closed map[string]error, err error) {
	names := make([]string, len(topics))
	for i, t := range topics {
		names[i] = t.Name
	}
	brokers := seeds(cl)
	adm := kadm.NewClient(cl)
	have = map[string]*found{}
	hidden, err = each(names, func(names ...string) error {
		meta, err := adm.Metadata(ctx, names...)
		if err != nil {
			return err
		}
		for _, name := range names {
			t, ok := meta.Topics[name]
			if !ok || errors.Is(t.Err, kerr.UnknownTopicOrPartition) {
				continue
			}
			if t.Err != nil {
				return Wrap(t.Err, brokers, "describe topic "+name)
			}
			f := &found{partitions: len(t.Partitions), id: t.ID, replication: t.Partitions.NumReplicas(),
				operations: t.AuthorizedOperations, settings: map[string]string{}}
			f.inSync = f.replication
			for _, p := range t.Partitions.Sorted() {
				if p.Err != nil || p.Leader < 0 {
					f.leaderless = append(f.leaderless, p.Partition)
				}
				f.inSync = min(f.inSync, len(p.ISR))
			}
			have[name] = f
		}
		return nil
	})
	if err != nil {
		return nil, nil, nil, Wrap(err, brokers, "describe topics "+strings.Join(names, ", "))
	}
	present := slices.Sorted(maps.Keys(have))
	closed, err = each(present, func(names ...string) error {
		configs, err := adm.DescribeTopicConfigs(ctx, names...)
		if err != nil {
			return err
		}
		for _, c := range configs {
			if c.Err != nil {
				return Wrap(c.Err, brokers, "read the settings of topic "+c.Name)
			}
			for _, s := range c.Configs {
				if s.Value != nil && have[c.Name] != nil {
					have[c.Name].settings[s.Key] = *s.Value
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, nil, nil, Wrap(err, brokers, "read the settings of topics "+strings.Join(present, ", "))
	}
	return have, hidden, closed, nil
}

// each asks of all topics at once, and of one after the other where the right to one is missing: the library answers for all
// of them then, and does not say for which. refused are those.
func each(topics []string, ask func(names ...string) error) (refused map[string]error, err error) {
	if err = ask(topics...); !lacksRight(err) {
		return nil, err
	}
	refused = map[string]error{}
	for _, name := range topics {
		err := ask(name)
		switch {
		case lacksRight(err):
			refused[name] = err
		case err != nil:
			return nil, err
		}
	}
	return refused, nil
}

// Create makes the topic and waits until every partition has a leader. A topic that is there already is left as it is
// and only waited for.
func (t Topic) Create(ctx context.Context, cl *kgo.Client) error {
	brokers := seeds(cl)
	settings := map[string]*string{}
	for k, v := range t.Settings() {
		settings[k] = &v
	}
	if least := "2"; t.Replication > 2 { // what is acknowledged outlives the loss of a broker, also one that was alone for a while
		settings["min.insync.replicas"] = &least
	}
	resp, err := kadm.NewClient(cl).CreateTopic(ctx, int32(t.Partitions), int16(t.Replication), settings, t.Name)
	switch {
	case errors.Is(err, kerr.TopicAlreadyExists):
	case errors.Is(err, kerr.InvalidReplicationFactor):
		return &fault.Error{Code: "SL2012", Class: fault.Fatal, Err: err,
			What: fmt.Sprintf("topic %s cannot have %d replicas: %s", t.Name, t.Replication, oneLine(resp.ErrMessage)),
			Do:   "set kafka.replication to at most the number of brokers (1 on a laptop)"}
	case err != nil:
		return Wrap(err, brokers, "make topic "+t.Name)
	}
	return awaitLeaders(ctx, cl, t, 1)
}

// addPartitions brings the topic to its number of partitions and waits until each has a leader.
func (t Topic) addPartitions(ctx context.Context, cl *kgo.Client) error {
	resp, err := kadm.NewClient(cl).UpdatePartitions(ctx, t.Partitions, t.Name)
	for _, r := range resp {
		if !errors.Is(r.Err, kerr.InvalidPartitions) { // it has as many already
			err = errors.Join(err, r.Err)
		}
	}
	if err != nil {
		return Wrap(err, seeds(cl), "add partitions to topic "+t.Name)
	}
	return awaitLeaders(ctx, cl, t, t.Partitions)
}

// awaitLeaders waits until the topic has at least so many partitions, and each a leader that this client sees.
func awaitLeaders(ctx context.Context, cl *kgo.Client, t Topic, partitions int) error {
	wait, cancel := context.WithTimeout(ctx, leaderWait)
	defer cancel()
	var last error
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		have, err := describe(wait, cl, []Topic{t})
		f := have[t.Name]
		switch {
		case err == nil && f != nil && f.partitions >= partitions && len(f.leaderless) == 0:
			return nil
		case err != nil && Classify(err) == fault.Fatal:
			return err
		case err == nil:
			last = &fault.Error{Code: "SL2008", Class: fault.Transient,
				What: fmt.Sprintf("topic %s was made, but has partitions without a leader after %v", t.Name, leaderWait),
				Why:  "a first record sent to such a partition can be lost",
				Do:   "check that all brokers are up, then run slotline apply again"}
		default:
			last = err
		}
		select {
		case <-wait.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return last
		case <-time.After(pause):
		}
	}
}

// widen changes settings of a topic; compare only ever asks for wider ones.
func (t Topic) widen(ctx context.Context, cl *kgo.Client, settings map[string]string) error {
	var alter []kadm.AlterConfig
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		value := settings[key]
		alter = append(alter, kadm.AlterConfig{Op: kadm.SetConfig, Name: key, Value: &value})
	}
	resp, err := kadm.NewClient(cl).AlterTopicConfigs(ctx, alter, t.Name)
	for _, r := range resp {
		err = errors.Join(err, r.Err)
	}
	return Wrap(err, seeds(cl), "change the settings of topic "+t.Name)
}

// seeds are the brokers that the client was made with, for errors.
func seeds(cl *kgo.Client) []string {
	s, _ := cl.OptValue(kgo.SeedBrokers).([]string)
	return s
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
