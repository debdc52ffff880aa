package consumers

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
)

// newsWait is how long a line waits for other partitions of which the same is to be said.
const newsWait = time.Second

// news is what the log says of partitions: one line for all that halt for the same reason at about the same time.
type news struct {
	log *slog.Logger

	mu    sync.Mutex
	lines []newsLine
	timer *time.Timer // runs while there are lines
}

type newsLine struct {
	level  slog.Level
	what   string
	topic  string
	code   string
	text   string
	parts  []int32
	offset int64 // of the first
}

// add says something of a partition; err may be nil.
func (n *news) add(level slog.Level, what string, at event.Position, err error) {
	line := newsLine{level: level, what: what, topic: at.Topic, parts: []int32{at.Number}, offset: at.Next}
	if err != nil {
		line.code, line.text = fault.CodeOf(err), err.Error()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range n.lines {
		l := &n.lines[i]
		if l.what == what && l.topic == line.topic && l.code == line.code && l.text == line.text {
			l.parts = append(l.parts, at.Number)
			return
		}
	}
	n.lines = append(n.lines, line)
	if n.timer == nil {
		n.timer = time.AfterFunc(newsWait, n.flush)
	}
}

// flush writes what waits.
func (n *news) flush() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.timer != nil {
		n.timer.Stop()
		n.timer = nil
	}
	for _, l := range n.lines {
		args := []any{"topic", l.topic, "partition", l.parts[0], "offset", l.offset}
		if parts := spans(l.parts); len(l.parts) > 1 {
			args = []any{"topic", l.topic, "partitions", parts}
		}
		if l.code != "" {
			args = append(args, "code", l.code)
		}
		if l.text != "" {
			args = append(args, "error", l.text)
		}
		n.log.Log(context.Background(), l.level, l.what, args...)
	}
	n.lines = nil
}

// place is how a log line names partitions.
func place(parts []event.Partition) []any {
	if len(parts) == 1 {
		return []any{"topic", parts[0].Topic, "partition", parts[0].Number}
	}
	var topics []string
	numbers := map[string][]int32{}
	for _, p := range parts {
		if numbers[p.Topic] == nil {
			topics = append(topics, p.Topic)
		}
		numbers[p.Topic] = append(numbers[p.Topic], p.Number)
	}
	var args []any
	for _, topic := range topics {
		args = append(args, "topic", topic, "partitions", spans(numbers[topic]))
	}
	return args
}

// spans writes numbers as people do: "0-3, 7".
func spans(numbers []int32) string {
	numbers = slices.Clone(numbers)
	slices.Sort(numbers)
	numbers = slices.Compact(numbers)
	var parts []string
	for i := 0; i < len(numbers); {
		first := i
		for i++; i < len(numbers) && numbers[i] == numbers[i-1]+1; i++ {
		}
		part := strconv.Itoa(int(numbers[first]))
		if i-first > 1 {
			part += "-" + strconv.Itoa(int(numbers[i-1]))
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}
