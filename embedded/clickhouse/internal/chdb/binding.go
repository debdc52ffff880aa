package chdb

import "unsafe"

// binding holds the C functions that are used, with the shapes of chdb.h 26.7. A chdb_connection is a pointer to a
// struct; chdb_connect returns a pointer to that pointer, and only chdb_close_conn takes the outer one.
type binding struct {
	version           func() string
	setSignalHandlers func(enabled int32)
	shutdown          func() int32

	connect func(argc int32, argv unsafe.Pointer) unsafe.Pointer
	close   func(conn unsafe.Pointer)

	query       func(conn unsafe.Pointer, sql unsafe.Pointer, sqlLen uintptr, format unsafe.Pointer, formatLen uintptr, names, nameLens, values, valueLens unsafe.Pointer, count uintptr) unsafe.Pointer
	streamQuery func(conn unsafe.Pointer, sql unsafe.Pointer, sqlLen uintptr, format unsafe.Pointer, formatLen uintptr, names, nameLens, values, valueLens unsafe.Pointer, count uintptr) unsafe.Pointer
	streamFetch func(conn, stream unsafe.Pointer) unsafe.Pointer
	streamStop  func(conn, stream unsafe.Pointer)

	resultBuffer  func(result unsafe.Pointer) unsafe.Pointer
	resultLength  func(result unsafe.Pointer) uintptr
	resultError   func(result unsafe.Pointer) unsafe.Pointer
	resultRows    func(result unsafe.Pointer) uint64
	resultBytes   func(result unsafe.Pointer) uint64
	resultWritten func(result unsafe.Pointer) uint64
	resultDestroy func(result unsafe.Pointer)

	insert        func(conn unsafe.Pointer, sql unsafe.Pointer, sqlLen uintptr, format unsafe.Pointer, formatLen uintptr, names, nameLens, values, valueLens unsafe.Pointer, count uintptr) unsafe.Pointer
	insertAppend  func(stream, data unsafe.Pointer, length uintptr) int32
	insertDone    func(stream unsafe.Pointer) unsafe.Pointer
	insertCancel  func(stream unsafe.Pointer)
	insertError   func(stream unsafe.Pointer) unsafe.Pointer
	insertDestroy func(stream unsafe.Pointer)
}
