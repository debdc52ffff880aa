package consumers

import "github.com/slotline/slotline/event"

// Linking is what a unit does with the messages of a batch when Options.Applied is set, or is not.
func Linking(applied bool) func(messages []event.Message) {
	u := &unit{loop: &loop{}}
	if applied {
		u.loop.opts.Applied = func(Applied) {}
	}
	f := &flight{}
	return func(messages []event.Message) { u.link(f, messages) }
}
