//go:build !linux

package chdb

type signalActions struct{}

func saveSignalActions() *signalActions { return &signalActions{} }

func (*signalActions) restore() {}
