package intent

import (
	"slices"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/progress"
	"github.com/slotline/slotline/lease"
)

// row is a group's row in slotline_intent, the lease apart.
type row struct {
	fence     lease.Fence
	intent    Intent
	confirmed bool
}

// pendingOf is what a new owner must send again: the stored intent, unless it was confirmed, or the progress does not
// stand where it begins. The latter is what an accepted gap or a changed number of groups leaves behind; its rows may
// have been sent, and are sent again under another token: the versions decide.
func pendingOf(r row, stand []progress.Row) *Intent {
	if r.confirmed || len(r.intent.Ranges) == 0 {
		return nil
	}
	for _, at := range r.intent.Ranges {
		i := find(stand, at.Partition)
		if i < 0 || stand[i].Next != at.From {
			return nil
		}
	}
	return &r.intent
}

func find(stand []progress.Row, p event.Partition) int {
	return slices.IndexFunc(stand, func(r progress.Row) bool { return r.Partition == p })
}

// beginning says how a batch begins.
type beginning uint8

const (
	beginNew     beginning = iota + 1 // store a new intent
	beginAgain                        // it is stored: by this owner, or by the one before
	beginRewound                      // the progress stands below the batch
	beginApplied                      // the progress stands above its beginning: it was applied, or cut wrongly
	beginForeign                      // another batch must be sent first
)

// decideBegin compares a batch with what is stored: pending is the intent of an earlier owner that is not confirmed,
// current the one that this owner has stored.
func decideBegin(pending, current *Intent, stand []progress.Row, ranges []event.Range, excluded []Excluded) beginning {
	for _, at := range ranges {
		i := find(stand, at.Partition)
		switch {
		case i < 0:
			return beginForeign
		case stand[i].Next < at.From:
			return beginRewound
		case stand[i].Next > at.From:
			return beginApplied
		}
	}
	if pending != nil {
		if !pending.Covers(ranges) {
			return beginForeign
		}
		if pending.leavesOut(excluded) {
			return beginAgain
		}
	}
	if current != nil && current.Covers(ranges) && current.leavesOut(excluded) {
		return beginAgain
	}
	return beginNew
}

// advancesOf are the moves of the progress rows that a batch makes.
func advancesOf(stand []progress.Row, ranges []event.Range) []progress.Advance {
	var list []progress.Advance
	for _, at := range normalRanges(ranges) {
		i := find(stand, at.Partition)
		if i < 0 {
			continue
		}
		s := stand[i]
		a := progress.Advance{Key: s.Key, Owner: s.Owner, OwnerEpoch: s.OwnerEpoch, Start: at.From, End: at.To,
			LeaderEpoch: at.LeaderEpoch, TopicID: at.TopicID}
		if a.LeaderEpoch < 0 {
			a.LeaderEpoch = s.LeaderEpoch
		}
		if a.TopicID == (event.TopicID{}) {
			a.TopicID = s.TopicID
		}
		list = append(list, a)
	}
	return list
}

// verdict says what the rows mean for a commit whose answer was no, or was lost.
type verdict uint8

const (
	committed verdict = iota + 1 // it was carried out
	open                         // it was not, and may be tried again
	fenced                       // another owner took over, or a gap was accepted
	wentBack                     // the database was restored to an earlier state
	foreign                      // somebody else moves the rows
)

func (v verdict) String() string {
	return [...]string{"", "committed", "open", "fenced", "went back", "foreign"}[v]
}

// decideCommit compares the rows as they are with the moves that were tried under the fence.
func decideCommit(fence lease.Fence, advances []progress.Advance, r row, stand []progress.Row) verdict {
	if r.fence != fence {
		return fenced
	}
	count := map[progress.Verdict]int{}
	for _, a := range advances {
		i := find(stand, a.Partition)
		if i < 0 {
			return foreign
		}
		count[a.Decide(stand[i])]++
	}
	switch {
	case count[progress.Fenced] > 0:
		return fenced
	case count[progress.WentBack] > 0:
		return wentBack
	case count[progress.Done] == len(advances):
		return committed
	case count[progress.Pending] == len(advances):
		return open
	}
	return foreign
}
