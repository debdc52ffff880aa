package archive

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/slotline/slotline/config"
)

// s3Store is a bucket. A file lies in the directory for temporary files while it is sent or read; it has no name there, and
// is gone with its process.
type s3Store struct {
	client func() (*minio.Client, error) // made when it is needed: a sink that reads no archive needs no secret of it
	bucket string
	prefix string // ends in a slash
	where  string
}

// s3Tries is how often a request is made: an outage of some seconds is waited for, a longer one is the command's failure.
const s3Tries = 5

func openS3(c *config.S3) *s3Store {
	return &s3Store{bucket: c.DSN.Database(), prefix: c.Prefix + "/", where: "s3://" + c.DSN.Place() + "/" + c.Prefix,
		client: sync.OnceValues(func() (*minio.Client, error) {
			a, err := c.DSN.Resolve()
			if err != nil {
				return nil, err
			}
			creds := credentials.NewIAM("")
			if a.User != "" {
				creds = credentials.NewStaticV4(a.User, a.Password, "")
			}
			return minio.New(a.Hosts[0], &minio.Options{Creds: creds, Secure: c.HTTPS, Region: c.Region, MaxRetries: s3Tries})
		})}
}

func (s *s3Store) place() string { return s.where }

// alone lets everybody in: the tags of manifests keep two runs apart.
func (s *s3Store) alone() (func(), error) { return func() {}, nil }

// known turns the service's answers into this package's.
func known(err error) error {
	var answer minio.ErrorResponse
	if errors.As(err, &answer) {
		switch {
		case answer.Code == minio.NoSuchKey:
			return errNotThere
		case answer.StatusCode == http.StatusPreconditionFailed, answer.StatusCode == http.StatusConflict:
			return errMoved
		}
	}
	return err
}

func (s *s3Store) read(ctx context.Context, name string) ([]byte, string, error) {
	client, err := s.client()
	if err != nil {
		return nil, "", err
	}
	o, err := client.GetObject(ctx, s.bucket, s.prefix+name, minio.GetObjectOptions{})
	if err != nil {
		return nil, "", known(err)
	}
	defer o.Close()
	data, err := io.ReadAll(io.LimitReader(o, smallBytesMax))
	if err != nil {
		return nil, "", known(err)
	}
	info, err := o.Stat() // of what was read
	return data, info.ETag, known(err)
}

func (s *s3Store) swap(ctx context.Context, name string, data []byte, tag string) (string, error) {
	client, err := s.client()
	if err != nil {
		return "", err
	}
	o := minio.PutObjectOptions{ContentType: "application/json", DisableMultipart: true}
	if tag == "" {
		o.SetMatchETagExcept("*")
	} else {
		o.SetMatchETag(tag)
	}
	info, err := client.PutObject(ctx, s.bucket, s.prefix+name, bytes.NewReader(data), int64(len(data)), o)
	if err = known(err); errors.Is(err, errMoved) {
		// An answer may have been lost, and the request made twice.
		if have, now, rerr := s.read(ctx, name); rerr == nil && bytes.Equal(have, data) {
			return now, nil
		}
	}
	return info.ETag, err
}

func (s *s3Store) put(ctx context.Context, name string, spool *os.File) error {
	client, err := s.client()
	if err != nil {
		return err
	}
	size, err := spool.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	// In one request: what was cut off leaves no parts in the bucket that nobody sees and somebody pays for.
	_, err = client.PutObject(ctx, s.bucket, s.prefix+name, io.NewSectionReader(spool, 0, size), size,
		minio.PutObjectOptions{ContentType: "application/vnd.apache.parquet", DisableMultipart: true})
	return known(err)
}

func (s *s3Store) open(ctx context.Context, name string) (*os.File, func(), error) {
	client, err := s.client()
	if err != nil {
		return nil, nil, err
	}
	o, err := client.GetObject(ctx, s.bucket, s.prefix+name, minio.GetObjectOptions{})
	if err != nil {
		return nil, nil, known(err)
	}
	defer o.Close()
	f, end, err := s.spool()
	if err != nil {
		return nil, nil, err
	}
	if _, err := io.Copy(f, o); err != nil {
		end()
		return nil, nil, known(err)
	}
	return f, end, nil
}

func (s *s3Store) list(ctx context.Context, folder string) (map[string]int64, error) {
	client, err := s.client()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx) // ends the listing where it is left early
	defer cancel()
	found := map[string]int64{}
	for o := range client.ListObjects(ctx, s.bucket, minio.ListObjectsOptions{Prefix: s.prefix + folder}) {
		if o.Err != nil {
			return nil, known(o.Err)
		}
		if name := strings.TrimPrefix(o.Key, s.prefix+folder); name != "" && !strings.HasSuffix(name, "/") {
			found[name] = o.Size
		}
	}
	return found, nil
}

func (s *s3Store) remove(ctx context.Context, name string) error {
	client, err := s.client()
	if err != nil {
		return err
	}
	return known(client.RemoveObject(ctx, s.bucket, s.prefix+name, minio.RemoveObjectOptions{}))
}

func (s *s3Store) spool() (*os.File, func(), error) {
	f, err := os.CreateTemp("", "slotline-archive-")
	if err != nil {
		return nil, nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, func() { f.Close() }, nil
}
