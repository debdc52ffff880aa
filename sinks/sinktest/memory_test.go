package sinktest

import "testing"

func TestMemory(t *testing.T) { Run(t, MemoryFactory(0)) }

func TestMemoryWithGroups(t *testing.T) { Run(t, MemoryFactory(2)) }
