package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/slotline/slotline/internal/line"
)

func dlqCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "dlq", Args: cobra.NoArgs, Short: "Dead letters of outbox and sinks",
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(dlqListCommand(o), dlqShowCommand(o), dlqRedriveCommand(o), dlqDiscardCommand(o))
	return cmd
}

// deadFlags select dead letters.
type deadFlags struct {
	line.DeadFilter
	since, until string
}

func (f *deadFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.Sink, "sink", "", "only those of this `sink`: mysql, clickhouse, doris, or outbox for the relay's")
	flags.StringVar(&f.Reason, "reason", "", "only those with this `reason`")
	for flag, values := range map[string][]string{"sink": line.DeadSinks, "reason": line.DeadReasons} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // fails where there is no such flag
	}
	flags.StringVar(&f.Table, "table", "", "only events of this `table`")
	flags.StringVar(&f.Tenant, "tenant", "", "only events of this `tenant`")
	flags.StringVar(&f.since, "since", "", "only those refused from this `time` on: 2026-11-30T09:14:02Z, 2026-11-30, or 2h for two hours ago")
	flags.StringVar(&f.until, "until", "", "only those refused before this `time`")
}

func (f *deadFlags) parse(now time.Time) (err error) {
	if err := f.Check(); err != nil {
		return err
	}
	if f.Since, err = momentOf(f.since, "--since", now); err == nil {
		f.Until, err = momentOf(f.until, "--until", now)
	}
	return err
}

// momentOf reads a time, a day in UTC, or how long ago.
func momentOf(text, flag string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	if t, err := time.Parse(time.DateOnly, text); err == nil {
		return t, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return now.Add(-d), nil
	}
	return time.Time{}, usageError{fmt.Errorf("%s %s is no time: write 2026-11-30T09:14:02Z, 2026-11-30, or 2h for two hours ago", flag, text)}
}

func dlqListCommand(o *options) *cobra.Command {
	f := &deadFlags{}
	cmd := &cobra.Command{
		Use: "list", Args: cobra.NoArgs, Short: "Dead letters by reason",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.parse(time.Now()); err != nil {
				return err
			}
			l, err := o.open()
			if err != nil {
				return err
			}
			defer l.Close()
			dead, err := l.DeadLetters(cmd.Context(), f.DeadFilter)
			if err != nil {
				return err
			}
			return render(o.output, dead, dead.WriteText)
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&f.Settled, "all", false, "also those that were redriven or discarded")
	return cmd
}

func dlqShowCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "show KEY", Args: cobra.ExactArgs(1), Short: "One dead letter whole: record, headers and reason",
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := o.open()
			if err != nil {
				return err
			}
			defer l.Close()
			dead, err := l.DeadLetter(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return render(o.output, dead, dead.WriteText)
		},
	}
}

func dlqRedriveCommand(o *options) *cobra.Command {
	s := &settleFlags{}
	cmd := &cobra.Command{
		Use: "redrive [KEY...]", Short: "Publish the events of dead letters again, as they were",
		Long: `Once the reason is mended (a wider column and an apply, a table in the file), this publishes the events again, byte for
byte and under their old versions, to the partition of their tenant. All sinks see them again, and a newer event of the
same entity still wins: redriving too much, or twice, changes nothing. It shows what it selects and asks first.

A letter that would be refused again by the file's own rules stays open, and the output says why; the exit status is
then 1. Letters of the reason lost_commit are information, and can only be discarded.`,
		Example: `  slotline dlq redrive --sink mysql --reason too_long --table flights
  slotline dlq redrive mysql/flights.events/3/48100 outbox/00/1/18204551`,
		RunE: func(cmd *cobra.Command, keys []string) error {
			return s.run(cmd, o, keys, "Publish these events again?", (*line.Line).Redrive)
		},
	}
	s.add(cmd)
	return cmd
}

func dlqDiscardCommand(o *options) *cobra.Command {
	s := &settleFlags{}
	cmd := &cobra.Command{
		Use: "discard [KEY...]", Short: "Give dead letters up; records who and why",
		Long: `The letters are listed no more unless slotline dlq list --all asks for them; they are not removed, and can still be
shown. It shows what it selects and asks first, and records who, when and why.`,
		Example: `  slotline dlq discard --reason unknown_table --until 2026-11-01 --why "table was dropped, INC-1204"`,
		RunE: func(cmd *cobra.Command, keys []string) error {
			if s.why == "" {
				return usageError{errors.New(`--why is needed: it is recorded with each letter, e.g. --why "test data, INC-1204"`)}
			}
			return s.run(cmd, o, keys, "Give these events up?", (*line.Line).Discard)
		},
	}
	s.add(cmd)
	return cmd
}

// settleFunc is Redrive or Discard.
type settleFunc func(l *line.Line, ctx context.Context, list *line.DeadLetters, who, why string) (*line.Settling, error)

// settleFlags are what redrive and discard have in common.
type settleFlags struct {
	deadFlags
	all, yes bool
	who, why string
}

func (s *settleFlags) add(cmd *cobra.Command) {
	s.deadFlags.add(cmd)
	cmd.Flags().BoolVar(&s.all, "all", false, "all that are open")
	cmd.Flags().StringVar(&s.why, "why", "", "`reason`, recorded")
	cmd.Flags().StringVar(&s.who, "who", "", "`name` recorded; the login name when not given")
	cmd.Flags().BoolVar(&s.yes, "yes", false, "do not ask")
}

func (s *settleFlags) run(cmd *cobra.Command, o *options, keys []string, question string, settle settleFunc) error {
	s.Keys = keys
	if err := s.parse(time.Now()); err != nil {
		return err
	}
	if s.Empty() != s.all {
		return usageError{fmt.Errorf("say which letters: keys, one or more of --sink --reason --table --tenant --since --until, or else --all\n  usage: %s", cmd.UseLine())}
	}
	if s.who == "" {
		s.who = whoAmI()
	}
	l, err := o.open()
	if err != nil {
		return err
	}
	defer l.Close()
	list, err := l.DeadLetters(cmd.Context(), s.DeadFilter)
	if err != nil {
		return err
	}
	if len(list.Letters) == 0 {
		fmt.Fprintln(os.Stderr, "No open dead letter is selected. Nothing was changed.")
		return nil
	}
	if err := list.WriteText(os.Stderr); err != nil {
		return err
	}
	if !s.yes && !confirm(cmd, question) {
		fmt.Fprintln(os.Stderr, "Nothing was changed.")
		return exit(exitFailed)
	}
	result, err := settle(l, cmd.Context(), list, s.who, s.why)
	if err != nil {
		return err
	}
	if err := render(o.output, result, result.WriteText); err != nil {
		return err
	}
	if len(result.Left) > 0 {
		return exit(exitFailed)
	}
	return nil
}
