package archive

import (
	"bufio"
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// fakeS3 is a bucket in the test's process: objects by name, with the conditions of PUT. It checks no signature.
type fakeS3 struct {
	mu        sync.Mutex
	objects   map[string][]byte
	unguarded bool                                    // it knows no conditions
	before    func(method, name string) (status int)  // 0: go on
	after     func(method, name string) (losing bool) // the answer is lost
}

func newFakeS3(t *testing.T) (*fakeS3, string) {
	f := &fakeS3{objects: map[string][]byte{}}
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return f, strings.TrimPrefix(s.URL, "http://")
}

func etag(data []byte) string {
	sum := md5.Sum(data)
	return `"` + hex.EncodeToString(sum[:]) + `"`
}

func (f *fakeS3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	bucket, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	fail := func(status int, code string) {
		w.WriteHeader(status)
		fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s</Message></Error>", code, code)
	}
	if bucket != "archive" {
		fail(404, "NoSuchBucket")
		return
	}
	if f.before != nil {
		if status := f.before(r.Method, name); status != 0 {
			fail(status, "InternalError")
			return
		}
	}
	body, err := body(r)
	if err != nil {
		fail(400, "IncompleteBody")
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	data, there := f.objects[name]
	switch {
	case r.Method == http.MethodGet && name == "":
		f.list(w, r.URL.Query().Get("prefix"))
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		if !there {
			fail(404, "NoSuchKey")
			return
		}
		w.Header().Set("ETag", etag(data))
		http.ServeContent(w, r, "", time.Unix(1, 0), bytes.NewReader(data))
	case r.Method == http.MethodPut:
		match, none := r.Header.Get("If-Match"), r.Header.Get("If-None-Match")
		if !f.unguarded && (match != "" && (!there || match != etag(data)) || none == "*" && there) {
			fail(412, "PreconditionFailed")
			return
		}
		f.objects[name] = body
		if f.after != nil && f.after(r.Method, name) {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("ETag", etag(body))
	case r.Method == http.MethodDelete:
		delete(f.objects, name)
		w.WriteHeader(204)
	default:
		fail(405, "MethodNotAllowed")
	}
}

func (f *fakeS3) list(w io.Writer, prefix string) {
	type object struct {
		Key  string
		Size int
		ETag string
	}
	var out struct {
		XMLName  xml.Name `xml:"ListBucketResult"`
		Contents []object
	}
	for _, name := range slices.Sorted(maps.Keys(f.objects)) {
		if strings.HasPrefix(name, prefix) {
			out.Contents = append(out.Contents, object{name, len(f.objects[name]), etag(f.objects[name])})
		}
	}
	_ = xml.NewEncoder(w).Encode(out)
}

// body undoes the chunks in which a signed stream is sent.
func body(r *http.Request) ([]byte, error) {
	if !strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING-") {
		return io.ReadAll(r.Body)
	}
	var out []byte
	in := bufio.NewReader(r.Body)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil, err
		}
		size, err := strconv.ParseInt(strings.SplitN(strings.TrimSpace(line), ";", 2)[0], 16, 64)
		if err != nil || size == 0 {
			return out, err
		}
		chunk := make([]byte, size+2)
		if _, err := io.ReadFull(in, chunk); err != nil {
			return nil, err
		}
		out = append(out, chunk[:size]...)
	}
}
