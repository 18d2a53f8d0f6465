package s3

import (
	"bytes"
	"crypto/sha256"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-dev/tidemark/backups"
)

// TestSign compares signatures with those of the documentation of S3.
func TestSign(t *testing.T) {
	k := keys{access: "AKIAIOSFODNN7EXAMPLE", secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}
	at := time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		method, path, query, body string
		header                    map[string]string
		want                      string
	}{
		{method: "GET", path: "/", query: "lifecycle=", want: "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
		{method: "GET", path: "/", query: "max-keys=2&prefix=J", want: "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
		{
			method: "GET", path: "/test.txt", header: map[string]string{"Range": "bytes=0-9"},
			want: "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
		},
		{
			method: "PUT", path: "/test$file.text", body: "Welcome to Amazon S3.",
			header: map[string]string{"Date": "Fri, 24 May 2013 00:00:00 GMT", "x-amz-storage-class": "REDUCED_REDUNDANCY"},
			want:   "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
		},
	} {
		r, err := http.NewRequest(c.method, "https://examplebucket.s3.amazonaws.com", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.URL.Path, r.URL.RawPath, r.URL.RawQuery = c.path, escapePath(c.path), c.query
		for name, value := range c.header {
			r.Header.Set(name, value)
		}
		sign(r, []byte(c.body), k, "us-east-1", at)
		if got := r.Header.Get("Authorization"); !strings.HasSuffix(got, "Signature="+c.want) {
			t.Errorf("%s %s: %s, want %s", c.method, c.path, got, c.want)
		}
	}
}

// service is an S3 service with one bucket, in memory.
type service struct {
	t        *testing.T
	objects  map[string]string
	uploads  map[string]map[int]string // by key and ID
	requests []string
	// fail returns the status of a request that fails; zero: it does not.
	fail func(r *http.Request) int
}

func newService(t *testing.T) (*service, *Bucket) {
	t.Helper()
	s := &service{t: t, objects: map[string]string{}, uploads: map[string]map[int]string{}}
	credentials := filepath.Join(t.TempDir(), "credentials")
	if err := os.WriteFile(credentials, []byte("[other]\naws_access_key_id = no\n[default]\naws_access_key_id = ID\naws_secret_access_key=secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := &Bucket{
		Name: "bucket", Folder: "a folder/b", Endpoint: "https://s3.example.com/", CredentialsFile: credentials, part: 10,
		Client: &http.Client{Transport: s},
	}
	if err := b.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, b
}

// RoundTrip implements http.RoundTripper.
func (s *service) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	s.requests = append(s.requests, r.Method+" "+r.URL.RequestURI())
	if got, want := r.Header.Get("x-amz-content-sha256"), fmt.Sprintf("%x", sha256.Sum256(body)); got != want {
		s.t.Errorf("the sum %s, want %s", got, want)
	}
	if got := r.Header.Get("Authorization"); !strings.HasPrefix(got, "AWS4-HMAC-SHA256 Credential=ID/20000101/us-east-1/s3/aws4_request,SignedHeaders=host;x-amz-content-sha256;x-amz-date,Signature=") {
		s.t.Errorf("Authorization: %s", got)
	}
	w := &bytes.Buffer{}
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(w), Request: r}
	if s.fail != nil {
		if code := s.fail(r); code != 0 {
			resp.StatusCode, resp.Status = code, http.StatusText(code)
			w.WriteString("<Error><Code>Broken</Code><Message>try later</Message></Error>")
			return resp, nil
		}
	}
	key, q := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/bucket"), "/"), r.URL.Query()
	switch {
	case r.Method == "GET" && q.Has("uploads"):
		w.WriteString("<ListMultipartUploadsResult>")
		for _, id := range slices.Sorted(maps.Keys(s.uploads)) {
			of, _, _ := strings.Cut(id, "|")
			fmt.Fprintf(w, "<Upload><Key>%s</Key><UploadId>%s</UploadId></Upload>", of, id)
		}
		w.WriteString("</ListMultipartUploadsResult>")
	case r.Method == "GET": // two objects a page
		keys := slices.Sorted(maps.Keys(s.objects))
		after := q.Get("continuation-token")
		keys = slices.DeleteFunc(keys, func(k string) bool { return k <= after || !strings.HasPrefix(k, q.Get("prefix")) })
		page := keys[:min(2, len(keys))]
		w.WriteString("<ListBucketResult>")
		for _, k := range page {
			fmt.Fprintf(w, "<Contents><Key>%s</Key><Size>%d</Size></Contents>", k, len(s.objects[k]))
		}
		if len(keys) > 2 {
			fmt.Fprintf(w, "<IsTruncated>true</IsTruncated><NextContinuationToken>%s</NextContinuationToken>", page[1])
		}
		w.WriteString("</ListBucketResult>")
	case r.Method == "POST" && q.Has("uploads"):
		id := key + "|" + strconv.Itoa(len(s.requests))
		s.uploads[id] = map[int]string{}
		fmt.Fprintf(w, "<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>", id)
	case r.Method == "PUT" && q.Has("partNumber"):
		n, _ := strconv.Atoi(q.Get("partNumber"))
		s.uploads[q.Get("uploadId")][n] = string(body)
		resp.Header.Set("ETag", fmt.Sprintf("%q", q.Get("partNumber")))
	case r.Method == "POST":
		var c completion
		if err := xml.Unmarshal(body, &c); err != nil {
			s.t.Errorf("%s: %v", body, err)
		}
		parts, whole := s.uploads[q.Get("uploadId")], ""
		for i, p := range c.Parts {
			if p.PartNumber != i+1 || p.ETag != fmt.Sprintf("%q", strconv.Itoa(i+1)) {
				s.t.Errorf("part %d: %+v", i, p)
			}
			whole += parts[p.PartNumber]
		}
		if len(c.Parts) != len(parts) {
			s.t.Errorf("%d parts of %d", len(c.Parts), len(parts))
		}
		s.objects[key] = whole
		delete(s.uploads, q.Get("uploadId"))
		w.WriteString("<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>")
	case r.Method == "PUT":
		s.objects[key] = string(body)
	case r.Method == "DELETE" && q.Has("uploadId"):
		delete(s.uploads, q.Get("uploadId"))
		resp.StatusCode = http.StatusNoContent
	case r.Method == "DELETE":
		delete(s.objects, key)
		resp.StatusCode = http.StatusNoContent
	}
	return resp, nil
}

const name, key = "tidemark-20000101T000000Z.tar", "a folder/b/tidemark-20000101T000000Z.tar"

// store stores a backup with the text, in writes of seven bytes. Verify reads as much as it is given, and returns fault.
func (s *service) store(b *Bucket, text string, fault error) (int64, error) {
	return b.Store(s.t.Context(), name, func(w io.Writer) error {
		for chunk := range slices.Chunk([]byte(text), 7) {
			if _, err := w.Write(chunk); err != nil {
				return err
			}
		}
		return nil
	}, func(r io.Reader) error {
		if fault != nil {
			_, _ = r.Read(make([]byte, 1))
			return fault
		}
		got, err := io.ReadAll(r)
		if err == nil && string(got) != text {
			s.t.Errorf("verified %q", got)
		}
		return err
	})
}

// TestBucket stores, lists and removes backups of one part and of several.
func TestBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b := newService(t)
		for _, text := range []string{"", "short", "0123456789", "0123456789a", strings.Repeat("0123456789", 3)} {
			clear(s.objects)
			if n, err := s.store(b, text, nil); n != int64(len(text)) || err != nil || s.objects[key] != text || len(s.uploads) != 0 {
				t.Errorf("%q: %d, %v, %v", text, n, err, s.objects)
			}
		}
		for i := range 4 {
			s.objects[fmt.Sprint("a folder/b/more", i)] = "12345"
		}
		s.objects["other"] = "1"
		all, err := b.List(t.Context())
		if err != nil || len(all) != 5 || all[0] != (backups.File{Name: "more0", Bytes: 5}) || all[4] != (backups.File{Name: name, Bytes: 30}) {
			t.Errorf("%v, %v", all, err)
		}
		if err := b.Remove(t.Context(), name); err != nil || s.objects[key] != "" {
			t.Errorf("%v, %v", s.objects, err)
		}
		if got := b.String(); got != "s3://bucket/a folder/b/" {
			t.Error(got)
		}
	})
}

// TestBucketFailures: a backup that is refused, cut off or not verified leaves nothing.
func TestBucketFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, text := range []string{"short", strings.Repeat("0123456789", 3)} {
			s, b := newService(t)
			if _, err := s.store(b, text, errors.New("a wrong sum")); err == nil || !strings.Contains(err.Error(), "a wrong sum") {
				t.Errorf("a backup that is not verified: %v", err)
			}
			s.fail = func(r *http.Request) int {
				if r.Method == "PUT" {
					return http.StatusForbidden
				}
				return 0
			}
			before := len(s.requests)
			_, err := s.store(b, text, nil)
			if err == nil || !strings.Contains(err.Error(), "Broken: try later") || strings.Contains(err.Error(), "secret") {
				t.Errorf("a bucket that refuses: %v", err)
			}
			if n := len(s.requests) - before; n > 4 {
				t.Errorf("%d requests", n)
			}
			if len(s.objects) != 0 || len(s.uploads) != 0 {
				t.Errorf("left: %v, %v", s.objects, s.uploads)
			}
		}
	})
}

// TestBucketRetries: errors of the service are tried again, with pauses of 1, 2 and 4 seconds.
func TestBucketRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b := newService(t)
		failures := 3
		s.fail = func(r *http.Request) int {
			if failures > 0 && r.Method == "PUT" {
				failures--
				return http.StatusServiceUnavailable
			}
			return 0
		}
		began := time.Now()
		if _, err := s.store(b, "short", nil); err != nil || s.objects[key] != "short" || time.Since(began) != 7*time.Second {
			t.Errorf("%v after %v: %v", s.objects, time.Since(began), err)
		}
		failures = 4
		if _, err := s.store(b, "short", nil); err == nil {
			t.Error("four failures")
		}
	})
}

// TestBucketCleans removes the parts that a process left which was killed.
func TestBucketCleans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b := newService(t)
		s.uploads[key+"|1"] = map[int]string{1: "half"}
		s.uploads["a folder/b/other|2"] = map[int]string{1: "of others"}
		if _, err := s.store(b, "short", nil); err != nil || len(s.uploads) != 1 {
			t.Errorf("%v: %v", s.uploads, err)
		}
	})
}

// TestBucketRefused: configurations that are not valid.
func TestBucketRefused(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	for want, b := range map[string]*Bucket{
		"not the name of a bucket": {Name: "a/b"},
		"URL of an S3 service":     {Name: "b", Endpoint: "s3.example.com"},
		"AWS_ACCESS_KEY_ID":        {Name: "b"},
		"no such file":             {Name: "b", CredentialsFile: filepath.Join(t.TempDir(), "none")},
	} {
		if err := b.Open(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
