package config

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/slotline/slotline/fault"
)

// Problems is everything that is wrong with a file, in the order of its lines. Each is of class fault.Usage.
type Problems []*fault.Error

func (ps Problems) Error() string {
	texts := make([]string, len(ps))
	for i, p := range ps {
		texts[i] = p.Error()
	}
	return strings.Join(texts, "\n\n")
}

// Unwrap gives each problem to errors.As.
func (ps Problems) Unwrap() []error {
	errs := make([]error, len(ps))
	for i, p := range ps {
		errs[i] = p
	}
	return errs
}

// problemsMax bounds what is printed for one file: past it something more basic is wrong.
const problemsMax = 100

// report collects problems with the lines they concern.
type report struct {
	file     string // as errors call it
	lines    []string
	problems []located
}

type located struct {
	line, column int
	*fault.Error
}

func newReport(file string, data []byte) *report {
	return &report{file: file, lines: strings.Split(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n")}
}

// at is "slotline.yaml:7".
func (r *report) at(node *yaml.Node) string { return fmt.Sprintf("%s:%d", r.file, lineOf(node)) }

func lineOf(node *yaml.Node) int {
	if node == nil || node.Line < 1 {
		return 1
	}
	return node.Line
}

// add reports a problem; the last node is where to look first, the excerpt shows the lines of all.
func (r *report) add(code, write string, nodes []*yaml.Node, format string, args ...any) {
	lines := make([]int, 0, len(nodes))
	for _, n := range nodes {
		lines = append(lines, lineOf(n))
	}
	r.addLines(code, write, lines, "", fmt.Sprintf(format, args...))
	if last := nodes[len(nodes)-1]; last != nil {
		r.problems[len(r.problems)-1].column = last.Column
	}
}

func (r *report) addLines(code, write string, lines []int, why, what string) {
	line := lines[len(lines)-1]
	text := r.excerpt(lines)
	if why != "" {
		text += "\n" + why
	}
	r.problems = append(r.problems, located{line, 0, &fault.Error{Code: code, Class: fault.Usage,
		What: fmt.Sprintf("%s:%d: %s", r.file, line, what), Why: text, Write: write}})
}

// excerpt shows lines of the file with their numbers, without secrets.
func (r *report) excerpt(lines []int) string {
	lines = slices.Clone(lines)
	slices.Sort(lines)
	var shown []string
	for _, n := range slices.Compact(lines) {
		if n <= len(r.lines) {
			shown = append(shown, fmt.Sprintf("%3d | %s", n, hideSecrets(r.lines[n-1])))
		}
	}
	return strings.Join(shown, "\n")
}

// err is nil without problems.
func (r *report) err() error {
	if len(r.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(r.problems, func(a, b located) int { return cmp.Or(a.line-b.line, a.column-b.column) })
	ps := make(Problems, 0, min(len(r.problems), problemsMax+1))
	for i, p := range r.problems {
		if i == problemsMax {
			ps = append(ps, &fault.Error{Code: p.Code, Class: fault.Usage,
				What: fmt.Sprintf("%s: and %d more", r.file, len(r.problems)-i)})
			break
		}
		ps = append(ps, p.Error)
	}
	return ps
}

// secretKeys are the keys whose values an excerpt leaves out, password or not: it is about other things. A
// key that slotline does not know, and that sounds like a secret's, is taken for one.
var secretKeys = regexp.MustCompile(`(?i)((?:dsn|state|[a-z_]*(?:pass|secret|token)[a-z_]*)["']?\s*:\s*)("[^"]*"?|'[^']*'?|[^\s,}]+)`)

const excerptRunesMax = 120

// hideSecrets makes a line fit to be printed.
func hideSecrets(line string) string {
	line = secretKeys.ReplaceAllString(maskUserinfo(line), "${1}…")
	if at := strings.Index(line, "-----BEGIN"); at >= 0 { // a private key where its file should be named
		line = line[:at] + "…"
	}
	line = strings.ToValidUTF8(strings.ReplaceAll(line, "\t", "→"), "?")
	if runes := []rune(line); len(runes) > excerptRunesMax {
		line = string(runes[:excerptRunesMax]) + "…"
	}
	return strings.TrimRight(strings.Map(printable, line), " ")
}

// printable replaces control characters, so that a file cannot steer a terminal.
func printable(c rune) rune {
	if c < ' ' || c == 0x7f || 0x80 <= c && c < 0xa0 {
		return '?'
	}
	return c
}

// maskUserinfo hides what may be a password in anything that looks like a URL, well-formed or not: from the colon
// after the user, or else the first colon, up to the last @ of the line.
func maskUserinfo(line string) string {
	at := strings.LastIndexByte(line, '@')
	if at < 0 {
		return line
	}
	from := 0
	if i := strings.Index(line[:at], "://"); i >= 0 {
		from = i + len("://")
	}
	colon := strings.IndexByte(line[from:at], ':')
	if colon < 0 {
		return line
	}
	return line[:from+colon+1] + "…" + line[at:]
}
