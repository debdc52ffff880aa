package chdb

import (
	"syscall"
	"unsafe"
)

// signalCount is the number of signals that Linux numbers, from 1.
const signalCount = 64

// kernelAction is struct sigaction as the kernel has it on amd64 and arm64: handler, flags, restorer, mask. It is
// only copied, never looked into.
type kernelAction [4]uint64

type signalActions [signalCount + 1]kernelAction

// saveSignalActions reads what each signal does now. SIGKILL and SIGSTOP can be read as well.
func saveSignalActions() *signalActions {
	var saved signalActions
	for sig := 1; sig <= signalCount; sig++ {
		_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(sig), 0, uintptr(unsafe.Pointer(&saved[sig])), 8, 0, 0)
	}
	return &saved
}

// restore puts back the actions that have changed since.
func (saved *signalActions) restore() {
	for sig := 1; sig <= signalCount; sig++ {
		var now kernelAction
		_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(sig), 0, uintptr(unsafe.Pointer(&now)), 8, 0, 0)
		if now != saved[sig] {
			_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&saved[sig])), 0, 8, 0, 0)
		}
	}
}
