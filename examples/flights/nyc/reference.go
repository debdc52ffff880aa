package nyc

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // the reference reads America/New_York on machines without a zone database
)

// Bucket is what figures are kept by.
type Bucket struct {
	Carrier string
	Month   string // of the scheduled departure in UTC: "201301"
}

// Figures are the sums over a bucket's flights.
type Figures struct {
	Flights       int64
	Cancelled     int64
	Distance      int64
	ArrDelaySum   int64
	ArrDelayCount int64
}

// Reference computes the figures straight from CSV text: it splits lines by hand and reads the departure from the local
// date and hour, so that it shares no code with Flights or Life.
func Reference(text io.Reader, keep func(id uint64) bool) (map[Bucket]Figures, error) {
	zone, err := time.LoadLocation("America/New_York")
	if err != nil {
		return nil, err
	}
	const year, month, day, hour, minute, carrier, depTime, arrDelay, distance = 0, 1, 2, 3, 4, 6, 10, 12, 13
	out := map[Bucket]Figures{}
	lines := bufio.NewScanner(text)
	lines.Scan() // header
	for id := uint64(1); lines.Scan(); id++ {
		if keep != nil && !keep(id) {
			continue
		}
		cell := strings.Split(lines.Text(), ",")
		if len(cell) != 14 {
			return nil, fmt.Errorf("line %d has %d cells, want 14", id+1, len(cell))
		}
		var bad error
		num := func(i int) int {
			n, err := strconv.Atoi(cell[i])
			if err != nil {
				bad = fmt.Errorf("line %d, cell %d: %w", id+1, i, err)
			}
			return n
		}
		utc := time.Date(num(year), time.Month(num(month)), num(day), num(hour), num(minute), 0, 0, zone).UTC()
		b := Bucket{cell[carrier], utc.Format("200601")}
		f := out[b]
		f.Flights++
		f.Distance += int64(num(distance))
		if cell[depTime] == "NA" {
			f.Cancelled++
		}
		if cell[arrDelay] != "NA" {
			f.ArrDelaySum += int64(num(arrDelay))
			f.ArrDelayCount++
		}
		if bad != nil {
			return nil, bad
		}
		out[b] = f
	}
	return out, lines.Err()
}
