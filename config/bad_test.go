package config

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slotline/slotline/fault"
)

var update = flag.Bool("update", false, "rewrite golden files and docs/configuration.md")

// Each file of testdata/bad is wrong in its own way; what a person reads about it stands beside it.
func TestBadFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) < 40 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			cfg, err := Parse("slotline.yaml", data)
			if err == nil || cfg != nil {
				t.Fatal("the file was taken")
			}
			ps, ok := errors.AsType[Problems](err)
			if !ok || len(ps) == 0 {
				t.Fatalf("%T: %v", err, err)
			}
			for _, p := range ps {
				if p.Class != fault.Usage || !strings.HasPrefix(p.Code, "SL1") || !strings.HasPrefix(p.What, "slotline.yaml:") {
					t.Errorf("%+v", p)
				}
			}
			if strings.Contains(err.Error(), "hunter") || strings.Contains(err.Error(), "ter2") {
				t.Errorf("a password is in the error:\n%v", err)
			}
			golden := strings.TrimSuffix(file, ".yaml") + ".txt"
			if *update {
				if err := os.WriteFile(golden, []byte(err.Error()+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, rerr := os.ReadFile(golden)
			if rerr != nil {
				t.Fatal(rerr)
			}
			if err.Error()+"\n" != string(want) {
				t.Errorf("reads now:\n%v\n\nwas (-update rewrites it):\n%s", err, want)
			}
		})
	}
}
