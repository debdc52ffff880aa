//go:build race

package partitioner

const raceEnabled = true
