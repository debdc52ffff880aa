package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/slotline/slotline/archive"
	"github.com/slotline/slotline/internal/line"
	"github.com/slotline/slotline/replay"
)

func archiveCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "archive", Args: cobra.NoArgs, Short: "Keep closed parts of the log as Parquet files",
		Long: `Writes what is older than archive.older_than into Parquet files of a directory or a bucket. A rebuild reads them for what the
topics do not hold any more. See docs/archive.md.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(archiveRunCommand(o), archiveStatusCommand(o), archiveVerifyCommand(o))
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
