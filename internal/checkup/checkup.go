// Package checkup holds what `slotline doctor` says of one server, so that each engine can judge its own. It is pure.
package checkup

import (
	"slices"
	"strings"

	"github.com/slotline/slotline/fault"
)

// Signs of a Finding, as they are printed at the start of its line.
const (
	Stops = "x" // stops slotline, or endangers one of its promises
	Hurts = "!" // costs speed, or will hurt later
)

// Finding is one thing that is not as slotline needs it.
type Finding struct {
	Sign string `json:"sign"` // Stops or Hurts
	What string `json:"what"`
	Why  string `json:"why"`            // what comes of it
	Do   string `json:"do"`             // the statement or setting that mends it
	Code string `json:"code,omitempty"` // where a command that meets it names one: SL2004
}

// Headline is its first line, with the code.
func (f Finding) Headline() string {
	if f.Code == "" {
		return f.What
	}
	return f.What + " [" + f.Code + "]"
}

// Server is what was found on one server.
type Server struct {
	Where     string    `json:"where"` // "shard s1 db1/flights_s1 (MySQL 8.4.3)"
	Findings  []Finding `json:"findings"`
	Unchecked []string  `json:"unchecked"`           // what could not be judged, and why: "privileges: …"
	NotAsked  string    `json:"not_asked,omitempty"` // what became of the question, where the server did not answer
	Why       string    `json:"why,omitempty"`       // how that usually comes about
	Do        string    `json:"do,omitempty"`        // what to do about it
}

// Add adds findings; the empty one is none.
func (s *Server) Add(findings ...Finding) {
	for _, f := range findings {
		if f != (Finding{}) {
			s.Findings = append(s.Findings, f)
		}
	}
}

// Sort puts what stops before what hurts, each in the order in which it was found.
func (s *Server) Sort() {
	slices.SortStableFunc(s.Findings, func(a, b Finding) int { return strings.Compare(b.Sign, a.Sign) })
}

// OfFault is a finding with the words of an error that a command would end with.
func OfFault(sign string, e *fault.Error) Finding {
	return Finding{Sign: sign, What: strings.TrimSuffix(e.What, "; nothing was started"), Why: e.Why, Do: e.Do, Code: e.Code}
}
