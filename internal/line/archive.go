package line

import (
	"context"
	"fmt"
	"io"

	"github.com/slotline/slotline/archive"
)

// ArchiveStatus is how the partitions stand in the archive.
type ArchiveStatus struct {
	Line  string         `json:"line"`
	Place string         `json:"place"`
	Parts []archive.Part `json:"partitions"`
}

// ArchiveStatus asks archive and topics.
func (l *Line) ArchiveStatus(ctx context.Context) (*ArchiveStatus, error) {
	a, err := archive.Open(l.Config, l.Log)
	if err != nil {
		return nil, err
	}
	s := &ArchiveStatus{Line: l.Config.Line, Place: a.Place()}
	s.Parts, err = a.Status(ctx)
	return s, err
}

// Problems says whether there is a partition that cannot be archived.
func (s *ArchiveStatus) Problems() bool {
	for _, p := range s.Parts {
		if p.Problem != "" {
			return true
		}
	}
	return false
}

// WriteText prints a line for each partition.
func (s *ArchiveStatus) WriteText(w io.Writer) error {
	fmt.Fprintf(w, "%s: archive %s\n", s.Line, s.Place)
	t := newTable(w, "TOPIC", "PARTITION", "ARCHIVED", "FILES", "EVENTS", "SIZE", "DUE", "TOPIC HOLDS")
	for _, p := range s.Parts {
		holds := "nothing"
		if p.End > p.Start {
			holds = fmt.Sprintf("%d..%d", p.Start, p.End-1)
		}
		t.row(p.Topic, fmt.Sprint(p.Partition), fmt.Sprintf("below %d", p.Archived), fmt.Sprint(p.Files), fmt.Sprint(p.Records), size(p.Bytes),
			fmt.Sprint(p.Due-p.Archived), holds)
	}
	if err := t.flush(); err != nil {
		return err
	}
	for _, p := range s.Parts {
		if p.Problem != "" {
			fmt.Fprintf(w, "x %s\n", p.Problem)
		}
	}
	return nil
}

// Archived is what a run did.
type Archived struct{ archive.Written }

// WriteText prints it in one line.
func (a Archived) WriteText(w io.Writer) error {
	left := ""
	if a.Removed > 0 {
		left = fmt.Sprintf("; %d files of a run that was cut off removed", a.Removed)
	}
	_, err := fmt.Fprintf(w, "%d events of %d partitions archived, %d files, %s%s\n", a.Records, a.Partitions, a.Files, size(a.Bytes), left)
	return err
}

// ArchiveVerdict is what reading the whole archive has found.
type ArchiveVerdict struct{ *archive.Verified }

// WriteText names what is damaged.
func (v ArchiveVerdict) WriteText(w io.Writer) error {
	for _, d := range v.Damaged {
		fmt.Fprintf(w, "x %s\n", d)
	}
	for _, u := range v.Unnamed {
		fmt.Fprintf(w, "! %s: no manifest names it; the next run of its partition removes it\n", u)
	}
	_, err := fmt.Fprintf(w, "%d events of %d partitions read, %d files, %s; %d damaged\n", v.Records, v.Partitions, v.Files, size(v.Bytes), len(v.Damaged))
	return err
}
