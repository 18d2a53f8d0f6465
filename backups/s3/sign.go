package s3

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
)

// keys are the credentials of a user.
type keys struct {
	access, secret, session string
}

// credentials reads them, again for each request, so that they can change.
func (b *Bucket) credentials() (keys, error) {
	var k keys
	if b.CredentialsFile == "" {
		k = keys{os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY"), os.Getenv("AWS_SESSION_TOKEN")}
		if k.access == "" || k.secret == "" {
			return k, errors.New("there are no credentials for the bucket: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a file with them")
		}
		return k, nil
	}
	text, err := os.ReadFile(b.CredentialsFile)
	if err != nil {
		return k, fmt.Errorf("the credentials for the bucket: %w", err)
	}
	section := ""
	for scan := bufio.NewScanner(bytes.NewReader(text)); scan.Scan(); {
		line := strings.TrimSpace(scan.Text())
		if name, ok := strings.CutPrefix(line, "["); ok {
			section = strings.TrimSpace(strings.TrimSuffix(name, "]"))
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok || section != "default" {
			continue
		}
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(name) {
		case "aws_access_key_id":
			k.access = value
		case "aws_secret_access_key":
			k.secret = value
		case "aws_session_token":
			k.session = value
		}
	}
	if k.access == "" || k.secret == "" {
		return k, fmt.Errorf("%s has no aws_access_key_id and aws_secret_access_key in a section [default]", b.CredentialsFile)
	}
	return k, nil
}

// sign signs a request with version 4 of the signatures of AWS. Its URL has the canonical path and query.
//
//	canonical request = method, path, query, headers, their names, SHA-256 of the body; each on a line
//	to sign           = "AWS4-HMAC-SHA256", time, scope, SHA-256 of the canonical request
//	key               = HMAC chain over the secret, the date, the region, "s3", "aws4_request"
func sign(r *http.Request, body []byte, k keys, region string, now time.Time) {
	at := now.UTC().Format("20060102T150405Z")
	hash := sum(body)
	r.Header.Set("x-amz-date", at)
	r.Header.Set("x-amz-content-sha256", hash)
	if k.session != "" {
		r.Header.Set("x-amz-security-token", k.session)
	}
	values := map[string]string{"host": r.URL.Host}
	for name, v := range r.Header {
		values[strings.ToLower(name)] = strings.TrimSpace(strings.Join(v, ","))
	}
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	var headers strings.Builder
	for _, name := range names {
		headers.WriteString(name + ":" + values[name] + "\n")
	}
	signed := strings.Join(names, ";")
	canonical := strings.Join([]string{r.Method, r.URL.EscapedPath(), r.URL.RawQuery, headers.String(), signed, hash}, "\n")
	scope := strings.Join([]string{at[:8], region, "s3", "aws4_request"}, "/")
	key := []byte("AWS4" + k.secret)
	for part := range strings.SplitSeq(scope, "/") {
		key = mac(key, part)
	}
	signature := mac(key, strings.Join([]string{"AWS4-HMAC-SHA256", at, scope, sum([]byte(canonical))}, "\n"))
	r.Header.Set("Authorization", fmt.Sprintf("AWS4-HMAC-SHA256 Credential=%s/%s,SignedHeaders=%s,Signature=%x", k.access, scope, signed, signature))
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// canonicalQuery returns a query as it is signed: sorted, and escaped as escape does.
func canonicalQuery(q url.Values) string {
	var all []string
	for name, values := range q {
		for _, v := range values {
			all = append(all, escape(name)+"="+escape(v))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "&")
}

// escapePath escapes all but the slashes of a path.
func escapePath(path string) string { return strings.ReplaceAll(escape(path), "%2F", "/") }

// escape escapes all bytes but the unreserved ones of RFC 3986.
func escape(s string) string {
	const unreserved = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
	var b strings.Builder
	for i := range len(s) {
		if strings.IndexByte(unreserved, s[i]) >= 0 {
			b.WriteByte(s[i])
		} else {
			fmt.Fprintf(&b, "%%%02X", s[i])
		}
	}
	return b.String()
}
