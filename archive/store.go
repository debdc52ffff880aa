package archive

import (
	"context"
	"errors"
	"os"
)

// store is where an archive lies: a directory or a bucket. Names are relative to it, with slashes between their parts.
type store interface {
	// place is how a person names it.
	place() string
	// alone keeps other runs of the same host, or all, away until end is called; errTaken when one is at work.
	alone() (end func(), err error)
	// read is a small object, and a tag that changes with what is in it; errNotThere.
	read(ctx context.Context, name string) (data []byte, tag string, err error)
	// swap writes a small object whole if it still has the tag, or is not there where tag is empty, and gives its new tag;
	// errMoved.
	swap(ctx context.Context, name string, data []byte, tag string) (newTag string, err error)
	// put writes what is in a spool file as an object, whole or not at all.
	put(ctx context.Context, name string, spool *os.File) error
	// open is an object as a file that is read at any place; end closes it. errNotThere.
	open(ctx context.Context, name string) (f *os.File, end func(), err error)
	// list is what is in a folder, which ends in a slash, by name.
	list(ctx context.Context, folder string) (map[string]int64, error)
	// remove deletes an object; one that is not there is none.
	remove(ctx context.Context, name string) error
	// spool makes a file whose content can be put; end removes it.
	spool() (f *os.File, end func(), err error)
}

var (
	errNotThere = errors.New("it is not there")
	errMoved    = errors.New("another process has written it")
	errTaken    = errors.New("another process is at work here")
)

// smallBytesMax bounds what read takes into memory: a manifest has some 400 bytes a file.
const smallBytesMax = 64 << 20
