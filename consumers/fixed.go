package consumers

import "context"

// runFixed runs a unit for each fixed group of the sink. Which process has a group is decided by its lease: a unit that
// finds it taken tries again, so that a second process stands by.
func (l *loop) runFixed(ctx context.Context, sink FixedGroups) error {
	var units []*unit
	for _, parts := range sink.Groups() {
		units = append(units, l.newUnit(parts, nil, nil))
	}
	if l.opts.Ready != nil {
		l.opts.Ready()
	}
	<-ctx.Done()
	stopAll(units, l.opts.Config.Limits.DrainTimeout)
	join(units)
	return nil
}
