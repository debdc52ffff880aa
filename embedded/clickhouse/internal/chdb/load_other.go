//go:build !linux

package chdb

import (
	"fmt"
	"runtime"
)

func load(path string) (*binding, error) {
	return nil, fmt.Errorf("load the ClickHouse library %s: only linux is supported, this is %s", path, runtime.GOOS)
}
