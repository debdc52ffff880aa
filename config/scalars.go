package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The readers of single values. A second result says what is wrong, a third what to write instead; both are empty for
// a good value.

// readCount reads 5_000_000.
func readCount(text string) (n int64, wrong, write string) {
	digits := text
	if strings.Contains(text, "_") {
		for part := range strings.SplitSeq(text, "_") {
			if part == "" {
				return 0, "is not a whole number: underscores stand between digits", strings.Trim(strings.ReplaceAll(text, "__", "_"), "_")
			}
		}
		digits = strings.ReplaceAll(text, "_", "")
	}
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return 0, "is not a whole number", ""
	}
	if len(digits) > 1 && digits[0] == '0' {
		return 0, "begins with 0, which some readers take for octal", strings.TrimLeft(digits[:len(digits)-1], "0") + digits[len(digits)-1:]
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0, "is too large", ""
	}
	return n, "", ""
}

var sizeUnits = []struct {
	name  string
	bytes int64
}{{"GiB", gib}, {"MiB", mib}, {"KiB", kib}}

// readSize reads 4MiB. Units are binary; a plain number is refused.
func readSize(text string) (n int64, wrong, write string) {
	digits := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
	unit := strings.TrimSpace(text[len(digits):])
	value, bad, better := readCount(digits)
	if bad != "" {
		if better != "" {
			better += unit
		}
		return 0, "is not a size: a whole number and KiB, MiB or GiB", better
	}
	for _, u := range sizeUnits {
		if u.name == unit {
			if value > (1<<62)/u.bytes {
				return 0, "is too large", ""
			}
			return value * u.bytes, "", ""
		}
	}
	if unit == "" {
		return 0, "has no unit", formatSize(value)
	}
	for _, u := range sizeUnits {
		if strings.EqualFold(u.name[:1], unit[:1]) {
			return 0, "has an unknown unit", digits + u.name
		}
	}
	return 0, "has an unknown unit; units are KiB, MiB and GiB", ""
}

// formatSize writes a number of bytes in the largest unit that divides it, or rounded up to KiB.
func formatSize(bytes int64) string {
	for _, u := range sizeUnits {
		if bytes >= u.bytes && bytes%u.bytes == 0 {
			return strconv.FormatInt(bytes/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt((bytes+kib-1)/kib, 10) + "KiB"
}

// ParseDuration reads a duration as files have it: 90d, 1h30m, 20ms. The error says what is wrong with the text, and what to
// write where that is known.
func ParseDuration(text string) (time.Duration, error) {
	d, wrong, write := readDuration(text)
	switch {
	case wrong == "":
		return d, nil
	case write != "":
		wrong += "\n  write: " + write
	}
	return 0, fmt.Errorf("%.70q %s", text, wrong)
}

// readDuration reads 90d, 1h30m, 20ms: Go's form, and days in front.
func readDuration(text string) (d time.Duration, wrong, write string) {
	const daysMax = 100_000 // a Duration holds 106,751
	rest := text
	if days, after, found := strings.Cut(text, "d"); found {
		n, bad, _ := readCount(days)
		if bad != "" || n > daysMax {
			return 0, "is not a duration: write it as 20ms, 10s, 5m, 1h30m or 90d", ""
		}
		d, rest = time.Duration(n)*day, after
		if rest == "" {
			return d, "", ""
		}
	}
	if n, bad, _ := readCount(rest); bad == "" && rest == text {
		if n == 0 {
			return 0, "has no unit", "0s"
		}
		return 0, "has no unit", text + "s"
	}
	part, err := time.ParseDuration(rest)
	if err != nil || part < 0 || rest == "0" || strings.HasPrefix(rest, "+") || strings.HasPrefix(rest, "-") {
		return 0, "is not a duration: write it as 20ms, 10s, 5m, 1h30m or 90d", ""
	}
	if d+part < d {
		return 0, "is too long", ""
	}
	return d + part, "", ""
}

// formatDuration writes what readDuration reads, in the shortest form: 90d, 10m, 1h30m.
func formatDuration(d time.Duration) string {
	if d > 0 && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// formatCount writes 5_000_000.
func formatCount(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0 && n >= 10_000; i -= 3 {
		text = text[:i] + "_" + text[i:]
	}
	return text
}

// read reads a value of kind count, size or span into one number.
func (s *keySpec) read(text string) (n int64, wrong, write string) {
	switch s.kind {
	case count:
		return readCount(text)
	case size:
		return readSize(text)
	case span:
		d, wrong, write := readDuration(text)
		return int64(d), wrong, write
	}
	panic("config: " + s.path + " is not a number")
}

// fits says whether a text is a good value.
func (s *keySpec) fits(text string) bool {
	n, wrong, _ := s.read(text)
	return wrong == "" && s.min <= n && n <= s.max
}

// format writes what read reads.
func (s *keySpec) format(n int64) string {
	switch s.kind {
	case size:
		return formatSize(n)
	case span:
		return formatDuration(time.Duration(n))
	}
	return formatCount(n)
}

// bounds is "1 to 64".
func (s *keySpec) bounds() string { return fmt.Sprintf("%s to %s", s.format(s.min), s.format(s.max)) }
