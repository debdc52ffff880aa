package chdb

import "unsafe"

// empty stands in for the data of an empty string, whose own pointer may be nil.
var empty [1]byte

func stringData(s string) unsafe.Pointer {
	if len(s) == 0 {
		return unsafe.Pointer(&empty[0])
	}
	return unsafe.Pointer(unsafe.StringData(s))
}

// cStrings is a NUL-terminated argv. The bytes stay reachable through it.
type cStrings struct {
	bytes    [][]byte
	pointers []unsafe.Pointer // one more than bytes: argv ends with NULL
}

func newCStrings(values []string) *cStrings {
	c := &cStrings{}
	for _, v := range values {
		b := append([]byte(v), 0)
		c.bytes = append(c.bytes, b)
		c.pointers = append(c.pointers, unsafe.Pointer(&b[0]))
	}
	c.pointers = append(c.pointers, nil)
	return c
}

// cParams are the four parallel arrays of the *_with_params_n calls.
type cParams struct {
	names, nameLens, values, valueLens unsafe.Pointer
	count                              uintptr
}

func newCParams(params []Param) *cParams {
	if len(params) == 0 {
		return &cParams{}
	}
	var (
		names     = make([]unsafe.Pointer, len(params))
		values    = make([]unsafe.Pointer, len(params))
		nameLens  = make([]uintptr, len(params))
		valueLens = make([]uintptr, len(params))
	)
	for i, p := range params {
		names[i], nameLens[i] = stringData(p.Name), uintptr(len(p.Name))
		values[i], valueLens[i] = stringData(p.Value), uintptr(len(p.Value))
	}
	return &cParams{
		names: unsafe.Pointer(&names[0]), nameLens: unsafe.Pointer(&nameLens[0]),
		values: unsafe.Pointer(&values[0]), valueLens: unsafe.Pointer(&valueLens[0]),
		count: uintptr(len(params)),
	}
}

// goString copies a NUL-terminated string.
func goString(p unsafe.Pointer) string {
	n := 0
	for *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}
