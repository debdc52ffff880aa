package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/slotline/slotline/archive"
	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/internal/line"
	"github.com/slotline/slotline/replay"
)

func archiveCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "archive", Args: cobra.NoArgs, Short: "Keep closed parts of the log as Parquet files",
		Long: `Writes what is older than archive.older_than into Parquet files of a directory or a bucket. A rebuild and the sinks
read them for what the topics do not hold any more. See docs/archive.md.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(archiveRunCommand(o), archiveStatusCommand(o), archiveVerifyCommand(o), archiveTrimCommand(o))
	return cmd
}

// progress prints what a command says of how far it is.
func progress(stage string) func(string) {
	out := newLines(os.Stderr)
	return func(text string) { out.say(replay.Line{Stage: stage, Text: text}) }
}

func archiveRunCommand(o *options) *cobra.Command {
	return &cobra.Command{Use: "run", Args: cobra.NoArgs, Short: "Archive what is old enough, and end",
		Long: `For cron, once a day or so: each run closes a file in every partition that has events old enough. It goes on from where the
last one ended, also one that was killed; of two at once one ends. A partition that cannot be archived is named, and holds
up no other.

Exit status: 1 when a partition could not be archived.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := o.openQuiet()
			if err != nil {
				return err
			}
			defer l.Close()
			a, err := archive.Open(l.Config, l.Log)
			if err != nil {
				return err
			}
			written, err := a.Run(cmd.Context(), progress("archive"))
			done := line.Archived{Written: written}
			if rerr := render(o.output, done, done.WriteText); err == nil {
				err = rerr
			}
			if err != nil && cmd.Context().Err() != nil {
				fmt.Fprintln(os.Stderr, "stopped; the next run goes on from there")
				return exit(exitFailed)
			}
			return err
		}}
}

func archiveStatusCommand(o *options) *cobra.Command {
	return &cobra.Command{Use: "status", Args: cobra.NoArgs, Short: "How far each partition is archived, and what is due",
		Long: "Exit status: 1 when a partition cannot be archived.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := o.openQuiet()
			if err != nil {
				return err
			}
			defer l.Close()
			s, err := l.ArchiveStatus(cmd.Context())
			if err != nil {
				return err
			}
			if err := render(o.output, s, s.WriteText); err != nil {
				return err
			}
			if s.Problems() {
				return exit(exitFailed)
			}
			return nil
		}}
}

func archiveVerifyCommand(o *options) *cobra.Command {
	return &cobra.Command{Use: "verify", Args: cobra.NoArgs, Short: "Read every file of the archive and compare it with its manifest",
		Long: `Compares size and SHA-256 of each file, and reads each record's place. It needs no topic.

Exit status: 3 when something is damaged or missing.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := o.openQuiet()
			if err != nil {
				return err
			}
			defer l.Close()
			a, err := archive.Open(l.Config, l.Log)
			if err != nil {
				return err
			}
			v, err := a.Verify(cmd.Context(), progress("verify"))
			if err != nil {
				return err
			}
			verdict := line.ArchiveVerdict{Verified: v}
			if err := render(o.output, verdict, verdict.WriteText); err != nil {
				return err
			}
			if len(v.Damaged) > 0 {
				return exit(exitDifferences)
			}
			return nil
		}}
}

// trimAgeMin is the least age of what trim removes, as that of what is archived.
const trimAgeMin = time.Second

func archiveTrimCommand(o *options) *cobra.Command {
	var older string
	var yes bool
	cmd := &cobra.Command{Use: "trim", Args: cobra.NoArgs, Short: "Remove from the topics what the archive has and everybody has applied",
		Long: `Removes the events at the beginning of each partition that are older than the span by their records' own time, lie in files of
the archive which this command reads and compares with their digests, and were applied by every sink and by the tables of
every job that has not ended. HELD BY says what keeps the rest: age, archive, a sink (mysql/s2, clickhouse), a job, or outbox,
whose lanes read the end of the topic when they are taken over. Who cannot be asked keeps all that it meets. What is needed
again later is read from the archive. The dead-letter topic is left alone.

It shows what would go and asks first. From cron it is run with --yes, after slotline archive run. Kafka's user needs Delete on
the topics.

Exit status: 1 when something was not asked or is damaged, or a partition could not be shortened; the others are.`,
		Example: `  slotline archive trim --older-than 90d
  slotline archive trim --older-than 90d --yes -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if older == "" {
				return usageError{errors.New("--older-than is needed: the age from which on events leave the topics\n  write: --older-than 90d")}
			}
			age, err := config.ParseDuration(older)
			if err == nil && age < trimAgeMin {
				err = fmt.Errorf("%q is less than %v", older, trimAgeMin)
			}
			if err != nil {
				return usageError{fmt.Errorf("--older-than %w", err)}
			}
			l, err := o.openQuiet()
			if err != nil {
				return err
			}
			defer l.Close()
			t, err := l.Trim(cmd.Context(), age, progress("read"))
			if err != nil {
				return err
			}
			if t.Any() {
				if !yes {
					if err := t.WriteText(os.Stderr); err != nil {
						return err
					}
					if !confirm(cmd, "Remove these events from the topics? The archive keeps them.") {
						fmt.Fprintln(os.Stderr, "Nothing was changed.")
						return exit(exitFailed)
					}
				}
				if err := t.Remove(cmd.Context()); err != nil {
					return err
				}
			}
			if err := render(o.output, t, t.WriteText); err != nil {
				return err
			}
			if t.Failed() {
				return exit(exitFailed)
			}
			return nil
		}}
	cmd.Flags().StringVar(&older, "older-than", "", "`span`, as 90d or 12h: younger events stay")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}
