package archive

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/fault"
)

// Verified is what reading the whole archive has found.
type Verified struct {
	Partitions int      `json:"partitions"` // with a manifest
	Files      int      `json:"files"`
	Records    int64    `json:"records"`
	Bytes      int64    `json:"bytes"`
	Damaged    []string `json:"damaged"` // each with its file, partition and offsets
	Unnamed    []string `json:"unnamed"` // files that no manifest names: nothing reads them
}

// Verify reads every file, compares it with its digest, and looks at each record's place. say is told of each partition.
func (a *Archive) Verify(ctx context.Context, say func(string)) (*Verified, error) {
	v := &Verified{Damaged: []string{}, Unnamed: []string{}}
	for _, p := range a.parts {
		m, _, err := a.load(ctx, p)
		if fault.CodeOf(err) == codeManifest {
			v.Damaged = append(v.Damaged, firstLine(err))
			continue
		}
		if err != nil {
			return v, err
		}
		there, err := a.store.list(ctx, folder(p))
		if err != nil {
			return v, a.wrap(err, "list "+folder(p))
		}
		if m != nil {
			v.Partitions++
			for _, f := range m.Files {
				delete(there, f.Name)
				err := a.readFile(ctx, p, f, 0, func([]*kgo.Record) error { return nil })
				switch {
				case fault.CodeOf(err) == codeDamaged:
					v.Damaged = append(v.Damaged, firstLine(err))
				case err != nil:
					return v, err
				default:
					v.Files, v.Records, v.Bytes = v.Files+1, v.Records+f.Records, v.Bytes+f.Bytes
				}
			}
			if say != nil {
				say(fmt.Sprintf("%s partition %d  %d files, offsets 0 to %d", p.Topic, p.Number, len(m.Files), m.End()-1))
			}
		}
		var unnamed []string
		for _, name := range slices.Sorted(maps.Keys(there)) {
			if _, _, ok := rangeOf(name); ok {
				unnamed = append(unnamed, folder(p)+name)
			}
		}
		if m == nil && len(unnamed) > 0 { // without a manifest nobody can tell what they are, and nothing reads them
			v.Damaged = append(v.Damaged, fmt.Sprintf("%s is not there, and beside it are %d files, the first %s: put it back from a copy; if it "+
				"never was, a first run was cut off, and the next one begins anew", manifestName(p), len(unnamed), unnamed[0]))
			continue
		}
		v.Unnamed = append(v.Unnamed, unnamed...)
	}
	if v.Partitions == 0 && len(v.Damaged) == 0 {
		return v, &fault.Error{Code: codeEmpty, Class: fault.Fatal, What: fmt.Sprintf("archive %s holds nothing of this line", a.Place()),
			Why: "a disk that is not mounted, and a wrong directory or prefix, look the same", Do: "look at archive in the file; slotline archive run begins one"}
	}
	return v, nil
}
