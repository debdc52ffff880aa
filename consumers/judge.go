package consumers

import (
	"fmt"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/kafka"
)

// judge says whether a partition's log continues what the sink has applied of it (P8), or why not. It is asked at each
// take-over and at each change of leader.
//
// The position's own facts are compared first with the topic's id, then with the ends of the log, then with the leader
// epochs: a log that was cut and filled again past the position has all its ends in place, and only the epochs differ.
// acceptGap is the command that goes past what is lost, and records who and why.
func judge(at event.Position, log kafka.Log, acceptGap string) *fault.Error {
	switch {
	case at.TopicID != (event.TopicID{}) && log.TopicID != (event.TopicID{}) && at.TopicID != log.TopicID:
		return &fault.Error{Code: "SL6003", Class: fault.Fatal,
			What: fmt.Sprintf("topic %s was deleted and made again: its offsets are not those that were applied up to %d. Nothing was skipped.",
				at.Topic, at.Next),
			Why: "what the old topic held above that offset is lost unless an archive or the outbox has it",
			Do:  "find out who deleted it; to start on the new topic: " + acceptGap}
	case at.Next < log.Start:
		return &fault.Error{Code: "SL6001", Class: fault.Fatal,
			What: fmt.Sprintf("offset %d is gone from Kafka (log starts at %d): %d offsets cannot be applied. Nothing was skipped.",
				at.Next, log.Start, log.Start-at.Next),
			Why: "the topic's retention, or a DeleteRecords, removed what this sink had not applied",
			Do:  goPast + acceptGap}
	case at.Next > log.End:
		return cutFault(at, log.End, acceptGap)
	case at.LeaderEpoch < 0:
		return nil // nothing was applied yet: there is nothing to continue
	case log.Epoch < 0 || log.EpochEnd < 0:
		if log.Start == log.End && at.Next == log.End {
			return nil // an empty log holds no epochs, and nothing that could differ
		}
		return &fault.Error{Code: "SL6004", Class: fault.Fatal,
			What: fmt.Sprintf("the leader does not know leader epoch %d, in which the event below offset %d was applied. Nothing was skipped.",
				at.LeaderEpoch, at.Next),
			Why: "the log was replaced: what it holds below that offset may not be what was applied",
			Do:  goPast + acceptGap}
	case log.EpochEnd < at.Next:
		return cutFault(at, log.EpochEnd, acceptGap)
	}
	return nil
}

// goPast introduces the command.
const goPast = "if they are lost for good, to go past them: "

func cutFault(at event.Position, end int64, acceptGap string) *fault.Error {
	return &fault.Error{Code: "SL6002", Class: fault.Fatal,
		What: fmt.Sprintf("the log of leader epoch %d was cut at offset %d, below offset %d that was applied: %d offsets are other events now, or none. Nothing was skipped.",
			at.LeaderEpoch, end, at.Next, at.Next-end),
		Why: "a broker lost data that it had acknowledged (an unclean election, a lost disk)",
		Do:  "to go on from where the log was cut (what was applied above it stays, and newer versions win): " + acceptGap}
}
