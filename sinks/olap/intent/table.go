package intent

import (
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/lease"
)

const (
	// Table holds one row per group of an OLAP sink.
	Table = "slotline_intent"
	// Format is the greatest format of it that this release reads.
	Format = 1
)

// DDL creates the table unless it exists. The lease's columns are lease.Columns.
func DDL() string {
	return "CREATE TABLE IF NOT EXISTS `slotline_intent` (\n" +
		"  `sink` VARBINARY(64) NOT NULL,\n" +
		"  `grp` INT NOT NULL,\n" +
		"  " + lease.Columns + ",\n" +
		"  `run_id` BINARY(16) NOT NULL,\n" +
		"  `seq` BIGINT NOT NULL,\n" +
		"  `codec` INT NOT NULL,\n" +
		"  `ranges` LONGTEXT CHARACTER SET utf8mb4 NOT NULL,\n" +
		"  `excluded` LONGTEXT CHARACTER SET utf8mb4 NOT NULL,\n" +
		"  `confirmed` TINYINT(1) NOT NULL,\n" +
		"  `updated_at` DATETIME(6) NOT NULL,\n" +
		"  PRIMARY KEY (`sink`,`grp`)\n" +
		") ENGINE=InnoDB COMMENT='slotline intent format 1'"
}

// The columns ranges and excluded are JSON, for people who look.

type rangeText struct {
	Topic       string `json:"topic"`
	Part        int32  `json:"part"`
	From        int64  `json:"from"`
	To          int64  `json:"to"`
	LeaderEpoch int32  `json:"leader_epoch"`
	TopicID     string `json:"topic_id"`
}

type excludedText struct {
	Topic   string  `json:"topic"`
	Part    int32   `json:"part"`
	Offsets []int64 `json:"offsets"`
}

func rangesText(ranges []event.Range) string {
	list := make([]rangeText, len(ranges))
	for i, r := range ranges {
		list[i] = rangeText{r.Topic, r.Number, r.From, r.To, r.LeaderEpoch, hex.EncodeToString(r.TopicID[:])}
	}
	return marshal(list)
}

func excludedTexts(excluded []Excluded) string {
	list := make([]excludedText, len(excluded))
	for i, e := range excluded {
		list[i] = excludedText{e.Topic, e.Number, e.Offsets}
	}
	return marshal(list)
}

func marshal(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // numbers and checked names
	}
	return string(b)
}

func parseRanges(text string) ([]event.Range, error) {
	var list []rangeText
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, err
	}
	ranges := make([]event.Range, len(list))
	for i, r := range list {
		ranges[i] = event.Range{Partition: event.Partition{Topic: r.Topic, Number: r.Part}, From: r.From, To: r.To, LeaderEpoch: r.LeaderEpoch}
		id, err := hex.DecodeString(r.TopicID)
		if err != nil || len(id) != len(ranges[i].TopicID) || r.From < 0 || r.To < r.From {
			return nil, fmt.Errorf("range %d is %+v", i, r)
		}
		copy(ranges[i].TopicID[:], id)
	}
	return normalRanges(ranges), nil
}

func parseExcluded(text string) ([]Excluded, error) {
	var list []excludedText
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, err
	}
	excluded := make([]Excluded, len(list))
	for i, e := range list {
		excluded[i] = Excluded{event.Partition{Topic: e.Topic, Number: e.Part}, e.Offsets}
	}
	return normalExcluded(excluded), nil
}
