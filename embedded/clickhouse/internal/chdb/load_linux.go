package chdb

import (
	"fmt"

	"github.com/ebitengine/purego"
)

func load(path string) (*binding, error) {
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("load the ClickHouse library %s: %w", path, err)
	}
	b := &binding{}
	for _, f := range []struct {
		name string
		into any
	}{
		{"chdb_version", &b.version},
		{"chdb_set_signal_handlers_enabled", &b.setSignalHandlers},
		{"chdb_shutdown", &b.shutdown},
		{"chdb_connect", &b.connect},
		{"chdb_close_conn", &b.close},
		{"chdb_query_with_params_n", &b.query},
		{"chdb_stream_query_with_params_n", &b.streamQuery},
		{"chdb_stream_fetch_result", &b.streamFetch},
		{"chdb_stream_cancel_query", &b.streamStop},
		{"chdb_result_buffer", &b.resultBuffer},
		{"chdb_result_length", &b.resultLength},
		{"chdb_result_error", &b.resultError},
		{"chdb_result_rows_read", &b.resultRows},
		{"chdb_result_bytes_read", &b.resultBytes},
		{"chdb_result_rows_written", &b.resultWritten},
		{"chdb_destroy_query_result", &b.resultDestroy},
		{"chdb_stream_insert_with_params_n", &b.insert},
		{"chdb_stream_append", &b.insertAppend},
		{"chdb_stream_done", &b.insertDone},
		{"chdb_stream_cancel_insert", &b.insertCancel},
		{"chdb_stream_insert_error", &b.insertError},
		{"chdb_destroy_insert_stream", &b.insertDestroy},
	} {
		symbol, err := purego.Dlsym(handle, f.name)
		if err != nil {
			return nil, fmt.Errorf("%s lacks %s, it is not the library that this program was written for: %w", path, f.name, err)
		}
		purego.RegisterFunc(f.into, symbol)
	}
	return b, nil
}
