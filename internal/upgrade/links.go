package upgrade

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"

	"golang.org/x/net/html"
)

// linkAttributes are the attributes of HTML elements that have URLs.
var linkAttributes = map[string]string{
	"a": "href", "applet": "codebase", "area": "href", "audio": "src", "base": "href", "blockquote": "cite", "body": "background",
	"button": "formaction", "command": "icon", "del": "cite", "embed": "src", "form": "action", "frame": "longdesc src",
	"head": "profile", "html": "manifest", "iframe": "longdesc src", "img": "longdesc src usemap", "input": "src usemap formaction",
	"ins": "cite", "link": "href", "object": "classid codebase data usemap", "q": "cite", "script": "src", "source": "src", "video": "poster src",
}

// tokenBytes bounds a token of HTML. What follows a longer one is not rewritten.
const tokenBytes = 1 << 20

// rewrite makes the links of a response lead through the proxy.
func (p *Proxy) rewrite(out *http.Request, resp *http.Response) error {
	if to := resp.Header.Get("Location"); to != "" {
		u, err := url.Parse(to)
		if err != nil {
			return fmt.Errorf("error trying to parse Location header: %w", err)
		}
		resp.Header["Location"] = []string{p.link(u, out)}
		return nil
	}
	media, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	if strings.TrimSpace(media) != "text/html" || out.Method == http.MethodHead {
		return nil
	}
	body := resp.Body
	from := &rewriting{p: p, out: out, body: body}
	switch resp.Header.Get("Content-Encoding") {
	case "":
		from.plain = body
	case "gzip":
		from.open = func() (io.Reader, error) { return gzip.NewReader(body) }
	case "deflate":
		from.open = func() (io.Reader, error) { return flate.NewReader(body), nil }
	default:
		return nil
	}
	delete(resp.Header, "Content-Encoding")
	delete(resp.Header, "Content-Length")
	resp.ContentLength = -1
	resp.Body = from
	return nil
}

// link returns a URL of the backend as one of the proxy. URLs of other hosts, and relative ones, stay.
func (p *Proxy) link(u *url.URL, out *http.Request) string {
	other := u.Host != "" && u.Host != out.URL.Host && u.Host != out.Host
	if other || !strings.HasPrefix(u.Path, "/") {
		return u.String()
	}
	u.Scheme, u.Host, u.User = "", "", nil
	if u.Path != p.Prefix && !strings.HasPrefix(u.Path, strings.TrimSuffix(p.Prefix, "/")+"/") {
		u.Path, u.RawPath = joinPath(p.Prefix, u.Path), ""
	}
	return u.String()
}

// joinPath joins a prefix and a path. A slash at the end stays.
func joinPath(prefix, p string) string {
	joined := path.Join(prefix, p)
	if strings.HasSuffix(p, "/") && !strings.HasSuffix(joined, "/") {
		joined += "/"
	}
	return joined
}

// rewriting reads HTML, and rewrites the links of its elements as it is read.
type rewriting struct {
	p     *Proxy
	out   *http.Request
	body  io.Closer
	open  func() (io.Reader, error) // opens plain; nil: it is open
	plain io.Reader

	tokens *html.Tokenizer // nil before the first read
	rest   []byte          // to be returned
	raw    io.Reader       // after a token that is too long; nil: there was none
	err    error
}

// Close implements io.Closer.
func (b *rewriting) Close() error { return b.body.Close() }

// Read implements io.Reader.
func (b *rewriting) Read(to []byte) (int, error) {
	if b.tokens == nil && b.err == nil {
		if b.open != nil {
			b.plain, b.err = b.open()
		}
		if b.err == nil {
			b.tokens = html.NewTokenizer(b.plain)
			b.tokens.SetMaxBuf(tokenBytes)
		}
	}
	n := 0
	for n < len(to) && (n == 0 || b.complete()) {
		for len(b.rest) == 0 && b.err == nil && b.raw == nil {
			b.next()
		}
		if len(b.rest) == 0 {
			break
		}
		copied := copy(to[n:], b.rest)
		n, b.rest = n+copied, b.rest[copied:]
	}
	switch {
	case n > 0:
		return n, nil
	case b.err != nil:
		return 0, b.err
	}
	return b.raw.Read(to)
}

// complete reports whether there is more to return without reading the body: the rest of a token, or a token that another one
// follows. If a comment or an attribute contains the next "<", the body may be read nevertheless.
func (b *rewriting) complete() bool {
	if len(b.rest) > 0 {
		return true
	}
	if b.err != nil || b.raw != nil {
		return false
	}
	buffered := b.tokens.Buffered()
	return len(buffered) > 0 && bytes.IndexByte(buffered[1:], '<') >= 0
}

// next reads a token into rest.
func (b *rewriting) next() {
	switch b.tokens.Next() {
	case html.ErrorToken:
		b.rest = b.tokens.Raw()
		if b.err = b.tokens.Err(); b.err == html.ErrBufferExceeded {
			b.err = nil
			b.raw = io.MultiReader(strings.NewReader(string(b.tokens.Buffered())), b.plain)
		}
	case html.StartTagToken, html.SelfClosingTagToken:
		raw := string(b.tokens.Raw()) // reading the token changes it
		token := b.tokens.Token()
		attributes, ok := linkAttributes[token.Data]
		if !ok {
			b.rest = []byte(raw)
			return
		}
		changed := false
		for i, a := range token.Attr {
			if !hasWord(attributes, a.Key) {
				continue
			}
			u, err := url.Parse(a.Val)
			if err != nil {
				continue
			}
			if to := b.p.link(u, b.out); to != a.Val {
				token.Attr[i].Val, changed = to, true
			}
		}
		if b.rest = []byte(raw); changed {
			b.rest = []byte(token.String())
		}
	default:
		b.rest = b.tokens.Raw()
	}
}

func hasWord(words, word string) bool {
	for w := range strings.FieldsSeq(words) {
		if w == word {
			return true
		}
	}
	return false
}
