package outbox

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The automatic version of an event is generation<<47 | id. A new generation begins above everything that an earlier
// one can have given out, when ids may have been given out twice: another server answers, or the database went back.

const (
	// generationShift leaves 47 bits to ids: 140 trillion per lane.
	generationShift = 47
	idMax           = 1<<generationShift - 1
	// generationMax keeps versions below 2^62.
	generationMax = 1<<(62-generationShift) - 1
)

// generation begins at an outbox id.
type generation struct {
	From   uint64
	Number int64
}

// generations is sorted by From and by Number; its first begins at id 1 or at the lane's first cursor + 1.
type generations []generation

func (g generations) String() string {
	parts := make([]string, len(g))
	for i, e := range g {
		parts[i] = strconv.FormatUint(e.From, 10) + ":" + strconv.FormatInt(e.Number, 10)
	}
	return strings.Join(parts, ",")
}

// parseGenerations reads "1:1,20481:2".
func parseGenerations(text string) (generations, error) {
	var g generations
	for part := range strings.SplitSeq(text, ",") {
		from, number, ok := strings.Cut(part, ":")
		id, okID := parseID(from)
		n, okNumber := parseID(number)
		if !ok || !okID || !okNumber || n < 1 || n > generationMax {
			return nil, fmt.Errorf("%q is not a generation, first id and number as in 20481:2", part)
		}
		if k := len(g); k > 0 && (id <= g[k-1].From || int64(n) <= g[k-1].Number) {
			return nil, fmt.Errorf("generation %q does not lie above the one before it", part)
		}
		g = append(g, generation{id, int64(n)})
	}
	return g, nil
}

// at is the generation of an id.
func (g generations) at(id uint64) int64 {
	for i := len(g) - 1; i > 0; i-- {
		if g[i].From <= id {
			return g[i].Number
		}
	}
	return g[0].Number
}

// version is the automatic version of an id.
func (g generations) version(id uint64) int64 { return g.at(id)<<generationShift | int64(id) }

// last is the present generation.
func (g generations) last() int64 { return g[len(g)-1].Number }

// begin adds a generation above all that are known and above tail, the greatest that the topic's tail holds. A
// generation in which no id was passed yet is replaced, so that a database that fails over again and again does not
// grow the list.
func (g generations) begin(from uint64, tail int64) (generations, error) {
	last := max(g.last(), tail)
	if last >= generationMax { // compared before 1 is added, which may overflow
		return nil, fmt.Errorf("generation %d is the last there can be", generationMax)
	}
	kept := slices.Clone(g)
	for len(kept) > 0 && kept[len(kept)-1].From >= from {
		kept = kept[:len(kept)-1]
	}
	return append(kept, generation{from, last + 1}), nil
}
