package front

import (
	"errors"
	"fmt"

	"github.com/ClickHouse/ch-go/proto"

	"github.com/slotline/slotline/embedded/clickhouse/internal/wire"
)

// revision is the only one spoken: everything that clients have asked for since 2022, query parameters included.
// A newer client goes down to it, an older one is refused.
const revision = 54460

// Limits of what a client may send, by the longest of its kind that anyone has a use for.
const (
	helloBytesMax    = 64 << 10
	settingBytesMax  = 1 << 20
	settingsMax      = 10_000
	queryBytesMax    = 64 << 20
	tableNameBytes   = 64 << 10
	traceStateBytes  = 64 << 10
	blockInfoFields  = 16
	compressionNone  = 0
	compressionBlock = 1
)

// hello is the client's first packet, without its code.
type hello struct {
	name     string
	revision uint64
	database string
}

func readHello(src *wire.Source) (hello, error) {
	var h hello
	var err error
	if h.name, err = src.String("client name", helloBytesMax); err != nil {
		return h, err
	}
	for range 2 { // major, minor
		if _, err = src.UVarInt(); err != nil {
			return h, err
		}
	}
	if h.revision, err = src.UVarInt(); err != nil {
		return h, err
	}
	if h.database, err = src.String("database", helloBytesMax); err != nil {
		return h, err
	}
	for _, what := range []string{"user", "password"} {
		if _, err = src.String(what, helloBytesMax); err != nil {
			return h, err
		}
	}
	return h, nil
}

// setting of a query; a parameter has the same form.
type setting struct {
	name, value string
	// important: an unknown name is an error; otherwise it is passed over.
	important bool
}

const settingImportant = 1

// query is the client's packet of that name, as far as this front uses it.
type query struct {
	compressed bool
	settings   []setting
	parameters []setting
	body       string
}

func readQuery(src *wire.Source) (query, error) {
	var q query
	if _, err := src.String("query id", settingBytesMax); err != nil {
		return q, err
	}
	if err := skipClientInfo(src); err != nil {
		return q, fmt.Errorf("client info: %w", err)
	}
	var err error
	if q.settings, err = readSettings(src); err != nil {
		return q, fmt.Errorf("settings: %w", err)
	}
	if _, err = src.String("secret", settingBytesMax); err != nil {
		return q, err
	}
	if _, err = src.Count("stage", 16); err != nil {
		return q, err
	}
	compression, err := src.Count("compression", compressionBlock)
	if err != nil {
		return q, err
	}
	q.compressed = compression != compressionNone
	if q.body, err = src.String("query", queryBytesMax); err != nil {
		return q, err
	}
	if q.parameters, err = readSettings(src); err != nil {
		return q, fmt.Errorf("parameters: %w", err)
	}
	return q, nil
}

func readSettings(src *wire.Source) ([]setting, error) {
	var all []setting
	for range settingsMax {
		name, err := src.String("setting name", settingBytesMax)
		if err != nil {
			return nil, err
		}
		if name == "" {
			return all, nil
		}
		flags, err := src.UVarInt()
		if err != nil {
			return nil, err
		}
		value, err := src.String("setting value", settingBytesMax)
		if err != nil {
			return nil, err
		}
		all = append(all, setting{name: name, value: value, important: flags&settingImportant != 0})
	}
	return nil, fmt.Errorf("%w: more than %d", wire.ErrFormat, settingsMax)
}

// skipClientInfo goes over who the client says it is. Only its form matters here.
func skipClientInfo(src *wire.Source) error {
	kind, err := src.Byte()
	if err != nil {
		return err
	}
	if kind == byte(proto.ClientQueryNone) {
		return nil
	}
	skipStrings := func(names ...string) error {
		for _, name := range names {
			if _, err := src.String(name, settingBytesMax); err != nil {
				return err
			}
		}
		return nil
	}
	skipNumbers := func(n int) error {
		for range n {
			if _, err := src.UVarInt(); err != nil {
				return err
			}
		}
		return nil
	}
	if err := skipStrings("initial user", "initial query id", "initial address"); err != nil {
		return err
	}
	if _, err := src.UInt64(); err != nil { // initial time
		return err
	}
	by, err := src.Byte()
	if err != nil {
		return err
	}
	if by != byte(proto.InterfaceTCP) {
		return fmt.Errorf("%w: interface %d", wire.ErrFormat, by)
	}
	if err := skipStrings("system user", "host name", "client name"); err != nil {
		return err
	}
	if err := skipNumbers(3); err != nil { // major, minor, revision
		return err
	}
	if err := skipStrings("quota key"); err != nil {
		return err
	}
	if err := skipNumbers(2); err != nil { // distributed depth, patch
		return err
	}
	traced, err := src.Byte()
	if err != nil {
		return err
	}
	if traced != 0 {
		var ids [16 + 8]byte
		if err := src.Fixed(ids[:]); err != nil {
			return err
		}
		if _, err := src.String("trace state", traceStateBytes); err != nil {
			return err
		}
		if _, err := src.Byte(); err != nil {
			return err
		}
	}
	return skipNumbers(3) // parallel replicas
}

// skipBlockInfo goes over the fields before a block.
func skipBlockInfo(src *wire.Source) error {
	for range blockInfoFields {
		field, err := src.UVarInt()
		if err != nil {
			return err
		}
		var value [4]byte
		switch field {
		case 0:
			return nil
		case 1: // overflows
			err = src.Fixed(value[:1])
		case 2: // bucket
			err = src.Fixed(value[:4])
		default:
			err = fmt.Errorf("%w: block info field %d", wire.ErrFormat, field)
		}
		if err != nil {
			return err
		}
	}
	return errors.New("block info does not end")
}
