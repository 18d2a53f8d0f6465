// Package s3 keeps backups in a bucket of S3, or of another service with its protocol.
//
// One request uploads a backup that fits into one part. Larger backups are uploaded part by part, with one part in memory.
// The service shows the object only after the last request has succeeded. Each request is signed with the
// SHA-256 of its body, which the service verifies.
package s3

import (
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/tidemark-dev/tidemark/backups"
)

// partBytes is the size of a part. S3 takes 10,000 parts, so a backup has 156 GiB at most.
const partBytes = 16 << 20

// Bucket is a backups.Place in a bucket.
type Bucket struct {
	// Name is the bucket. Folder is what the names of objects begin with, without a slash at its ends; empty: nothing.
	Name, Folder string
	// Endpoint is the URL of the service; empty: https://s3.REGION.amazonaws.com. Requests name the bucket in the path.
	Endpoint string
	// Region is the one of the bucket; empty: us-east-1, which most other services accept.
	Region string
	// CredentialsFile has the credentials, as ~/.aws/credentials has them in the section [default]. It is read for each
	// request. Empty: the variables AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN.
	CredentialsFile string
	// Client sends the requests; nil: http.DefaultClient.
	Client *http.Client

	part int // partBytes; less in tests
}

// Open implements backups.Place. It makes no request.
func (b *Bucket) Open(context.Context) error {
	if b.Name == "" || strings.ContainsAny(b.Name, "/?#") {
		return fmt.Errorf("%q is not the name of a bucket", b.Name)
	}
	if u, err := url.Parse(b.endpoint()); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || strings.Trim(u.Path, "/") != "" || u.User != nil {
		return fmt.Errorf("%q is not the URL of an S3 service: want https://host", b.Endpoint)
	}
	_, err := b.credentials()
	return err
}

// Close implements backups.Place.
func (b *Bucket) Close() error { return nil }

// String implements backups.Place.
func (b *Bucket) String() string { return "s3://" + b.Name + "/" + b.key("") }

// key returns the name of the object of a backup.
func (b *Bucket) key(name string) string {
	if b.Folder == "" {
		return name
	}
	return strings.Trim(b.Folder, "/") + "/" + name
}

// Store implements backups.Place.
func (b *Bucket) Store(ctx context.Context, name string, write func(io.Writer) error, verify func(io.Reader) error) (int64, error) {
	if err := b.clean(ctx); err != nil {
		return 0, fmt.Errorf("uploads that were not completed: %w", err)
	}
	check, verified := io.Pipe()
	result := make(chan error, 1)
	go func() {
		err := verify(check)
		if err == nil {
			_, err = io.Copy(io.Discard, check) // what verify does not read is uploaded too
		}
		check.CloseWithError(errVerify)
		result <- err
	}()
	u := &upload{b: b, ctx: ctx, key: b.key(name), size: cmp.Or(b.part, partBytes)}
	err := write(io.MultiWriter(verified, u))
	verified.CloseWithError(err) // nil: the end
	if failed := <-result; err == nil || errors.Is(err, errVerify) {
		err = failed
	}
	if err == nil {
		err = u.complete()
	}
	if err != nil {
		return 0, errors.Join(err, u.abort())
	}
	return u.bytes, nil
}

// errVerify ends the writing of a backup that verify refuses.
var errVerify = errors.New("the backup is not whole")

// upload collects what is written to it into parts, and sends them.
type upload struct {
	b     *Bucket
	ctx   context.Context
	key   string
	size  int // of a part
	buf   []byte
	id    string // empty: all is in buf
	etags []string
	bytes int64
	done  bool
}

// Write implements io.Writer.
func (u *upload) Write(p []byte) (n int, err error) {
	for n < len(p) {
		if len(u.buf) == u.size {
			if err := u.send(); err != nil {
				return n, err
			}
		}
		k := min(u.size-len(u.buf), len(p)-n)
		u.buf = append(u.buf, p[n:n+k]...)
		n += k
		u.bytes += int64(k)
	}
	return n, nil
}

// send sends a part.
func (u *upload) send() error {
	if u.id == "" {
		var begun struct {
			UploadID string `xml:"UploadId"`
		}
		if err := u.b.do(u.ctx, request{method: http.MethodPost, key: u.key, query: url.Values{"uploads": {""}}, result: &begun}); err != nil {
			return err
		}
		if begun.UploadID == "" {
			return errors.New("the service began an upload without an ID")
		}
		u.id = begun.UploadID
	}
	header := http.Header{}
	part := strconv.Itoa(len(u.etags) + 1)
	if err := u.b.do(u.ctx, request{method: http.MethodPut, key: u.key, query: url.Values{"partNumber": {part}, "uploadId": {u.id}}, body: u.buf, header: &header}); err != nil {
		return fmt.Errorf("part %s: %w", part, err)
	}
	u.etags = append(u.etags, header.Get("ETag"))
	u.buf = u.buf[:0]
	return nil
}

// completion is the body of the request that completes an upload.
type completion struct {
	XMLName xml.Name `xml:"CompleteMultipartUpload"`
	Parts   []part   `xml:"Part"`
}

type part struct {
	PartNumber int
	ETag       string
}

// complete makes the object.
func (u *upload) complete() error {
	if u.id == "" {
		return u.b.do(u.ctx, request{method: http.MethodPut, key: u.key, body: u.buf})
	}
	if err := u.send(); err != nil {
		return err
	}
	var c completion
	for i, etag := range u.etags {
		c.Parts = append(c.Parts, part{i + 1, etag})
	}
	body, err := xml.Marshal(c)
	if err != nil {
		return err
	}
	var made struct {
		XMLName xml.Name
		ETag    string
		Code    string
		Message string
	}
	if err := u.b.do(u.ctx, request{method: http.MethodPost, key: u.key, query: url.Values{"uploadId": {u.id}}, body: body, result: &made}); err != nil {
		return err
	}
	if made.XMLName.Local == "Error" { // S3 sends the status before it has put the parts together
		return fmt.Errorf("%s: %s", made.Code, made.Message)
	}
	u.done = true
	return nil
}

// abort removes the parts that were sent. It has a moment after the end of the context.
func (u *upload) abort() error {
	if u.id == "" || u.done {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(u.ctx), abortTime)
	defer cancel()
	return u.b.abort(ctx, u.key, u.id)
}

func (b *Bucket) abort(ctx context.Context, key, id string) error {
	return b.do(ctx, request{method: http.MethodDelete, key: key, query: url.Values{"uploadId": {id}}})
}

// clean aborts unfinished uploads. Their parts are not listed as objects, but use space.
func (b *Bucket) clean(ctx context.Context) error {
	var list struct {
		Upload []struct {
			Key      string
			UploadID string `xml:"UploadId"`
		}
	}
	if err := b.do(ctx, request{method: http.MethodGet, query: url.Values{"uploads": {""}, "prefix": {b.key("")}}, result: &list}); err != nil {
		return err
	}
	for _, u := range list.Upload {
		if _, err := backups.ParseName(strings.TrimPrefix(u.Key, b.key(""))); err == nil {
			if err := b.abort(ctx, u.Key, u.UploadID); err != nil {
				return err
			}
		}
	}
	return nil
}

// List implements backups.Place.
func (b *Bucket) List(ctx context.Context) (all []backups.File, err error) {
	query := url.Values{"list-type": {"2"}, "prefix": {b.key("")}, "delimiter": {"/"}}
	for {
		var page struct {
			Contents []struct {
				Key  string
				Size int64
			}
			IsTruncated           bool
			NextContinuationToken string
		}
		if err := b.do(ctx, request{method: http.MethodGet, query: query, result: &page}); err != nil {
			return nil, err
		}
		for _, o := range page.Contents {
			all = append(all, backups.File{Name: strings.TrimPrefix(o.Key, b.key("")), Bytes: o.Size})
		}
		if !page.IsTruncated || page.NextContinuationToken == "" {
			return all, nil
		}
		query.Set("continuation-token", page.NextContinuationToken)
	}
}

// Remove implements backups.Place.
func (b *Bucket) Remove(ctx context.Context, name string) error {
	return b.do(ctx, request{method: http.MethodDelete, key: b.key(name)})
}

var _ backups.Place = (*Bucket)(nil)
