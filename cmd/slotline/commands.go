package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/user"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/internal/line"
)

// usageError is a wrong flag or argument: exit status 2.
type usageError struct{ error }

// options are the flags that every command has.
type options struct {
	file      string
	output    string
	logFormat string
}

func (o *options) logger(level slog.Level) *slog.Logger {
	h := &slog.HandlerOptions{Level: level}
	if o.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, h))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, h))
}

// outputsAnnotation names the formats of a command that has others than "table json yaml".
const outputsAnnotation = "outputs"

func (o *options) open() (*line.Line, error) { return line.Open(o.file, o.logger(slog.LevelInfo)) }

// openQuiet is open for a command that says itself how far it is.
func (o *options) openQuiet() (*line.Line, error) {
	return line.Open(o.file, o.logger(slog.LevelWarn))
}

func rootCommand() *cobra.Command {
	o := &options{}
	root := &cobra.Command{
		Use:   "slotline",
		Short: "An event-sourced write pipeline: outbox, Kafka, MySQL shards, ClickHouse, Doris",
		Long: `slotline carries events from an outbox table through Kafka to the MySQL shard and month table that own them,
and to ClickHouse or Apache Doris. Start with: slotline init, slotline apply --dry-run, slotline apply, slotline run.

Exit status: 0 done, 1 failed, 2 wrong use or file, 3 differences found (dry run, verify, doctor), 4 something is halted.`,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			outputs := strings.Fields(cmp.Or(cmd.Annotations[outputsAnnotation], "table json yaml"))
			if !slices.Contains(outputs, o.output) {
				return usageError{fmt.Errorf("-o %s: write %s, %s or %s", o.output, outputs[0], outputs[1], outputs[2])}
			}
			if o.logFormat != "text" && o.logFormat != "json" {
				return usageError{fmt.Errorf("--log-format %s: write text or json", o.logFormat)}
			}
			return nil
		},
	}
	flags := root.PersistentFlags()
	flags.StringVarP(&o.file, "config", "c", "slotline.yaml", "the line's configuration `file`")
	flags.StringVarP(&o.output, "output", "o", "table", "`format`: table, json or yaml; of query: table, csv or json")
	flags.StringVar(&o.logFormat, "log-format", "text", "log lines on stderr: text or json")
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(initCommand(o), applyCommand(o), doctorCommand(o), runCommand(o), relayCommand(o), sinkCommand(o), statusCommand(o),
		routeCommand(o), whereCommand(o), tablesCommand(o), outboxCommand(o), dlqCommand(o), replayCommand(o), archiveCommand(o), queryCommand(o), benchCommand(o), genCommand(o), versionCommand(o))
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			cmd.Args = cobra.NoArgs
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
	wrapArgs(root)
	return root
}

// wrapArgs makes a wrong number of arguments a usage error, for cmd and all below it.
func wrapArgs(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return usageError{fmt.Errorf("%w\n  usage: %s", err, cmd.UseLine())}
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		wrapArgs(sub)
	}
}

func initCommand(o *options) *cobra.Command {
	var example bool
	cmd := &cobra.Command{
		Use: "init", Args: cobra.NoArgs, Short: "Write a commented slotline.yaml (asks nothing)",
		RunE: func(cmd *cobra.Command, _ []string) error {
			text := config.Example()
			if example {
				text = config.ExampleFull()
			}
			f, err := os.OpenFile(o.file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
			if errors.Is(err, os.ErrExist) {
				return usageError{fmt.Errorf("%s is there already; nothing was written\n  do: name another file with -c, or remove it", o.file)}
			}
			if err != nil {
				return err
			}
			if _, err := io.WriteString(f, text); err != nil {
				f.Close()
				return err
			}
			if err := f.Close(); err != nil {
				return err
			}
			named := ""
			if cmd.Flags().Changed("config") {
				named = " -c " + o.file
			}
			fmt.Fprintf(os.Stderr, "wrote %s; next: make the databases and the users that it names (slotline%s apply --grants says what each user needs),\n"+
				"set the variables of their passwords, then slotline%s apply --dry-run\n", o.file, named, named)
			return nil
		},
	}
	cmd.Flags().BoolVar(&example, "example", false, "write the full form: every key, with a table of flights")
	return cmd
}

func applyCommand(o *options) *cobra.Command {
	var dryRun, grants bool
	cmd := &cobra.Command{
		Use: "apply", Args: cobra.NoArgs, Short: "Create or check topics, tables and views; never drops or narrows",
		Long: `Makes what the file needs and the servers lack, and says what it cannot make. Nothing is dropped or narrowed; cut off, it
goes on where it stopped when it is run again. A file with a greater layout.epoch brings that layout into force while the
line runs: new shards, partitions and placed tenants. One that would move tenants with rows is refused.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := o.open()
			if err != nil {
				return err
			}
			defer l.Close()
			if grants {
				return l.WriteGrants(os.Stdout)
			}
			plan, err := l.Plan(cmd.Context())
			if err != nil {
				return err
			}
			if dryRun {
				if err := render(o.output, plan, plan.WriteText); err != nil {
					return err
				}
				if plan.Differs() {
					return exit(exitDifferences)
				}
				return nil
			}
			err = l.Apply(cmd.Context(), plan)
			if werr := render(o.output, plan, plan.WriteText); err == nil {
				err = werr
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print what would be done and change nothing; exit status 3 when there is something")
	cmd.Flags().BoolVar(&grants, "grants", false, "print the GRANT statements that each account needs, and the rights of Kafka's user; asks no server, and needs no password")
	return cmd
}

func doctorCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Args: cobra.NoArgs, Short: "Check versions, privileges, clocks and settings of every server; says how to mend each",
		Long: `Asks every server of the file at once, changes nothing, and says what is not as slotline needs it: x stops it or endangers
one of its promises, ! costs speed or will hurt later. Each finding says what comes of it, and the statement or setting
that mends it. A server that does not answer is named, and hides none of the others. What tables and topics lack is
slotline apply --dry-run's to say.

Exit status: 3 when something was found, 1 when nothing was and a server could not be asked.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := o.openQuiet()
			if err != nil {
				return err
			}
			defer l.Close()
			found, err := l.Doctor(cmd.Context())
			if err != nil {
				return err
			}
			if err := render(o.output, found, found.WriteText); err != nil {
				return err
			}
			switch {
			case found.Found():
				return exit(exitDifferences)
			case found.Partial():
				return exit(exitFailed)
			}
			return nil
		},
	}
}

// workOptions are the flags of commands that run parts of a line.
type workOptions struct{ instance, listen string }

func (w *workOptions) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&w.instance, "instance", "",
		"`name` that is this process's alone and survives its restart, such as a pod's: its partitions then come back to it at once")
	cmd.Flags().StringVar(&w.listen, "listen", "", "`address` of /metrics, /healthz and /readyz, in place of http.listen in the file")
}

func runCommand(o *options) *cobra.Command {
	w := &workOptions{}
	cmd := &cobra.Command{
		Use: "run", Args: cobra.NoArgs, Short: "Run the relay and all sinks in one process",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return work(cmd, o, w, func(l *line.Line) line.Parts {
				return line.Parts{Relay: true, MySQL: true, ClickHouse: l.Config.Sinks.ClickHouse != nil, Doris: l.Config.Sinks.Doris != nil}
			})
		},
	}
	w.add(cmd)
	return cmd
}

func relayCommand(o *options) *cobra.Command {
	w := &workOptions{}
	cmd := &cobra.Command{
		Use: "relay", Args: cobra.NoArgs, Short: "Publish the outbox to Kafka",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return work(cmd, o, w, func(*line.Line) line.Parts { return line.Parts{Relay: true} })
		},
	}
	w.add(cmd)
	return cmd
}

// instanceForm is what Kafka takes for a static member's id, and short enough for the owner of a progress row.
var instanceForm = regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`)

// gcPercent lets more garbage gather before it is collected than Go's 100: batches in flight are scanned less often.
const gcPercent = 400

// work runs parts of a line until a signal; a second signal ends the process at once.
func work(cmd *cobra.Command, o *options, w *workOptions, choose func(*line.Line) line.Parts) error {
	if w.instance != "" && !instanceForm.MatchString(w.instance) {
		return usageError{fmt.Errorf("--instance %.40q is no name: 1 to 100 letters, digits, dots, hyphens and underscores", w.instance)}
	}
	l, err := o.open()
	if err != nil {
		return err
	}
	defer l.Close()
	if w.listen != "" {
		l.Config.HTTP.Listen = w.listen
	}
	parts := choose(l)
	parts.Instance = w.instance
	if os.Getenv("GOMEMLIMIT") == "" { // garbage counts as memory: collect it before the bound is passed (P10)
		debug.SetMemoryLimit(l.Config.Limits.MemoryBytesMax)
	}
	if os.Getenv("GOGC") == "" { // most of what is made is garbage soon; the memory limit still bounds it
		debug.SetGCPercent(gcPercent)
	}
	halted, err := l.Run(cmd.Context(), parts)
	if err != nil {
		return err
	}
	if halted {
		return exit(exitHalted)
	}
	return nil
}

func sinkCommand(o *options) *cobra.Command {
	w := &workOptions{}
	cmd := &cobra.Command{
		Use: "sink mysql|clickhouse|doris|olap", Args: cobra.ExactArgs(1), Short: "Apply events to one sink; olap: to each OLAP sink of the file",
		ValidArgs: []string{"mysql", "clickhouse", "doris", "olap"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(cmd.ValidArgs, args[0]) {
				return usageError{fmt.Errorf("there is no sink %q: write mysql, clickhouse, doris or olap", args[0])}
			}
			return work(cmd, o, w, func(l *line.Line) line.Parts {
				if sinks := l.Config.Sinks; args[0] == "olap" && (sinks.ClickHouse != nil || sinks.Doris != nil) {
					return line.Parts{ClickHouse: sinks.ClickHouse != nil, Doris: sinks.Doris != nil}
				}
				return line.Parts{MySQL: args[0] == "mysql", ClickHouse: args[0] == "clickhouse" || args[0] == "olap", Doris: args[0] == "doris"}
			})
		},
	}
	w.add(cmd)
	cmd.AddCommand(acceptGapCommand(o))
	return cmd
}

func acceptGapCommand(o *options) *cobra.Command {
	var gap line.Gap
	var numbers []string
	var yes bool
	cmd := &cobra.Command{
		Use: "accept-gap", Args: cobra.NoArgs,
		Short: "Go past offsets that are lost for good; records who and why",
		Long: `A partition whose next offset is gone from Kafka halts: nothing is skipped on its own. When the events are lost
for good (no archive, no outbox copy), this moves the sink to the log's start. It asks before it does, and writes who,
when, why and which offsets into slotline_gap beside the progress. Restarting the sink is not needed. With --to it goes
past a record or batch that halts the sink and is no gap of the log. With --partition all, partitions of a database that does not
answer stay as they are; it is named, and the exit status is 1.`,
		Example: `  slotline sink accept-gap --sink mysql --partition 11 --why "disk was lost, INC-1204"
  slotline sink accept-gap --sink clickhouse --partition all --why "topic was made anew, INC-1207"`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			partitions, err := partitionsOf(numbers)
			if err != nil {
				return usageError{err}
			}
			if gap.To >= 0 && len(partitions) != 1 {
				return usageError{errors.New("--to is an offset of one partition: name that one with --partition")}
			}
			if gap.Why == "" {
				return usageError{errors.New(`--why is needed: it is recorded with the gap, e.g. --why "topic recreated, INC-1204"`)}
			}
			if gap.Who == "" {
				gap.Who = whoAmI()
			}
			l, err := o.open()
			if err != nil {
				return err
			}
			defer l.Close()
			list, notAsked, err := l.FindGaps(cmd.Context(), gap, partitions)
			if err != nil {
				return err
			}
			for _, err := range notAsked {
				fmt.Fprintf(os.Stderr, "NOT ASKED  %v\n", err)
			}
			for _, lost := range list {
				fmt.Fprintln(os.Stderr, lost)
			}
			if !yes && !confirm(cmd, "Accept that these are lost?") {
				fmt.Fprintln(os.Stderr, "Nothing was changed.")
				return exit(exitFailed)
			}
			for _, lost := range list {
				if err := l.AcceptGap(cmd.Context(), lost); err != nil {
					return err
				}
			}
			fmt.Fprintln(os.Stderr, "Accepted and recorded in slotline_gap. A running sink takes them up within ten seconds.")
			if len(notAsked) > 0 {
				return exit(exitFailed)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&gap.Sink, "sink", "mysql", "`name` of the sink: mysql, clickhouse or doris")
	cmd.Flags().StringVar(&gap.Topic, "topic", "", "`topic`; the line's when not given")
	cmd.Flags().StringSliceVar(&numbers, "partition", nil, "`numbers` of halted partitions, separated by commas; all for each that is halted at a gap")
	cmd.Flags().Int64Var(&gap.To, "to", -1, "go on from this `offset`, past records that the sink can never take; without it, from where the log goes on")
	cmd.Flags().StringVar(&gap.Why, "why", "", "`reason`, recorded")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().StringVar(&gap.Who, "who", "", "`name` recorded; the login name when not given")
	return cmd
}

// partitionsOf reads --partition: numbers, or nil for all.
func partitionsOf(numbers []string) (list []int32, err error) {
	if slices.Equal(numbers, []string{"all"}) {
		return nil, nil
	}
	for _, text := range numbers {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("--partition %.40q: write numbers as slotline status shows them, separated by commas, or all", text)
		}
		if !slices.Contains(list, int32(n)) {
			list = append(list, int32(n))
		}
	}
	if len(list) == 0 {
		return nil, errors.New("--partition is needed: slotline status names the halted ones; all is each that is halted at a gap")
	}
	return list, nil
}

func whoAmI() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, _ := os.Hostname()
	return name + "@" + host
}

// confirm asks on stderr; anything but y or yes, the end of input, and Ctrl-C are no.
func confirm(cmd *cobra.Command, question string) bool {
	fmt.Fprint(os.Stderr, question+" [y/N] ")
	said := make(chan string, 1)
	go func() { // a read of a terminal cannot be ended: the process ends with it
		answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
		said <- answer
	}()
	select {
	case <-cmd.Context().Done():
		fmt.Fprintln(os.Stderr)
		return false
	case answer := <-said:
		answer = strings.ToLower(strings.TrimSpace(answer))
		return answer == "y" || answer == "yes"
	}
}

func routeCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "route TENANT", Args: cobra.ExactArgs(1),
		Short: "Slot, partition, lane, shard and month tables of a tenant; no server needed at layout epoch 1",
		RunE: func(cmd *cobra.Command, args []string) error {
			route, err := line.RouteOf(cmd.Context(), o.file, args[0])
			if err != nil {
				return err
			}
			return render(o.output, route, route.WriteText)
		},
	}
}

// version is what the release build sets, or what Go's build information knows.
var version = func() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}()

func versionCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "version", Args: cobra.NoArgs, Short: "Print the version",
		RunE: func(*cobra.Command, []string) error {
			return render(o.output, map[string]string{"version": version}, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, "slotline", version)
				return err
			})
		},
	}
}
