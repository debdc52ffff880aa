package config

import "strings"

// orList writes choices for a person: "a, b or c".
func orList(choices []string) string {
	n := len(choices)
	if n < 2 {
		return strings.Join(choices, "")
	}
	return strings.Join(choices[:n-1], ", ") + " or " + choices[n-1]
}
