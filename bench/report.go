package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
)

// writeTable prints the results for a person: the ratio first, since it is what holds on another day.
func writeTable(w io.Writer, results []Result) {
	if len(results) == 0 {
		return
	}
	fmt.Fprintln(w, "\nours ÷ bare is the median of the rounds' ratios, then their range; on a shared machine nothing else means much.")
	fmt.Fprintln(w, "Times (ms, µs) are better low, rates (/s) high.")
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "\nname\tours ÷ bare\tmin–max\tours\tbare\tunit\trounds")
	for _, r := range results {
		fmt.Fprintf(tw, "%s\t%.2f\t%.2f–%.2f\t%s\t%s\t%s\t%d\n", r.Name, r.Ratio, r.ratioMin, r.ratioMax, figure(r.Ours), figure(r.Bare), r.Unit, r.Rounds)
	}
	tw.Flush()
	fmt.Fprintln(w)
	for _, r := range results {
		if r.note != "" {
			fmt.Fprintf(w, "%s: %s\n", r.Name, r.note)
		}
	}
}

// figure writes three digits that count: 0.123, 12.3, 145k.
func figure(v float64) string {
	switch {
	case v >= 100_000:
		return fmt.Sprintf("%.0fk", v/1000)
	case v >= 10_000:
		return fmt.Sprintf("%.1fk", v/1000)
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// writeJSON replaces the file.
func writeJSON(path string, results []Result) error {
	text, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err // a NaN: a bench measured nothing
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// versionsSeen are those of the servers that were used, in order of their first use.
var versionsSeen []string

// sawVersion notes a server's version for the report.
func sawVersion(server, version string) {
	line := server + " " + version
	for _, seen := range versionsSeen {
		if seen == line {
			return
		}
	}
	versionsSeen = append(versionsSeen, line)
}

func versions() string { return strings.Join(versionsSeen, ", ") }
